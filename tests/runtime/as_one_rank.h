// The measure of every way to split a run over ranks: it ends as the same training on one rank does, up to the order of sums.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "plan/check_job.h"
#include "plan/plan_json.h"
#include "runtime/tiny.h"

#include <catch2/catch.hpp>

namespace distsetup::tiny {

// The same training without any split and in one micro-batch. Plans that differ in the split alone are compared with one run.
inline const RunResult& on_one_rank(const TinyOptions& o) {
  TinyOptions alone;
  alone.geometry = o.geometry;
  alone.preference = o.preference;
  alone.trainable = o.trainable, alone.targets = o.targets, alone.rank = o.rank;
  alone.quantized = o.quantized;
  alone.global_batch = o.global_batch, alone.sequence_length = o.sequence_length, alone.steps = o.steps, alone.packed = o.packed;
  const Plan plan = tiny_plan(alone);
  static std::map<std::string, RunResult> known;
  const auto [run, is_new] = known.try_emplace(dump_json(to_json(plan)));
  if (is_new) run->second = train(plan, alone.steps);
  return run->second;
}

// In fp32, with each of these ways to recompute; and poisoned memory changes no bit.
inline void check_as_one_rank(TinyOptions o, const std::vector<Recompute>& ways) {
  const RunResult& one = on_one_rank(o);
  for (const Recompute recompute : ways) {
    INFO("recompute " << name(recompute));
    o.recompute = recompute;
    const Plan plan = tiny_plan(o);
    const std::vector<std::string> broken = check_job(plan);
    CHECK(broken == std::vector<std::string>{});
    if (!broken.empty()) return;  // its ranks could wait for each other for ever
    const RunResult run = train(plan, o.steps);
    CHECK(difference(run.losses, one.losses) < 1e-5);
    CHECK(difference(run.norms, one.norms) < 1e-4);
    CHECK(difference(run.parameters, one.parameters) < 1e-4);
    CHECK(run.held_out == Approx(one.held_out).epsilon(1e-5));
    if (recompute == ways.back()) CHECK(train(plan, o.steps, {.poison = true}) == run);
  }
}

}  // namespace distsetup::tiny
