// Pipelines: every number of stages trains as one rank does.
#include <map>
#include <string>

#include "plan/check_job.h"
#include "runtime/tiny.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using namespace tiny;

Geometry staged_geometry(const std::string& which) {
  Geometry g = odd_geometry();
  g.num_layers = 5;
  g.tied_embeddings = which == "tied";
  return g;
}

struct StagedStrategy {
  std::string name;
  Sharding sharding;
  int replicate, shard, pp, chunks;
  int64_t accumulation;
};

TEST_CASE("pipelines of 2 and 4 stages, with every sharding, train as one rank does", "[pp]") {
  const auto s = GENERATE(
      StagedStrategy{"pp 2", Sharding::kDdp, 1, 1, 2, 1, 4}, StagedStrategy{"pp 2, one micro-batch", Sharding::kDdp, 1, 1, 2, 1, 1},
      StagedStrategy{"pp 4", Sharding::kDdp, 1, 1, 4, 1, 8}, StagedStrategy{"pp 4, 2 micro-batches", Sharding::kDdp, 1, 1, 4, 1, 2},
      StagedStrategy{"pp 2 x 2 chunks", Sharding::kDdp, 1, 1, 2, 2, 4},
      StagedStrategy{"pp 2 x 2 chunks, one", Sharding::kDdp, 1, 1, 2, 2, 1},
      StagedStrategy{"ddp 2 x pp 2", Sharding::kDdp, 2, 1, 2, 1, 2}, StagedStrategy{"zero1 2 x pp 2", Sharding::kZero1, 1, 2, 2, 1, 4},
      StagedStrategy{"zero2 2 x pp 2 x 2 chunks", Sharding::kZero2, 1, 2, 2, 2, 2},
      StagedStrategy{"zero3 2 x pp 2", Sharding::kZero3, 1, 2, 2, 1, 2},
      StagedStrategy{"hybrid 2 x 2 x pp 2", Sharding::kZero3, 2, 2, 2, 1, 2});
  const auto which = GENERATE(as<std::string>{}, "plain", "tied");
  TinyOptions o;
  o.geometry = staged_geometry(which);
  static std::map<std::string, RunResult> reference;
  constexpr int64_t kSteps = 8;
  if (!reference.count(which)) reference[which] = train(tiny_plan(o), kSteps);
  const RunResult& one = reference[which];
  o.sharding = s.sharding, o.replicate = s.replicate, o.shard = s.shard, o.pp = s.pp, o.chunks = s.chunks;
  o.accumulation = s.accumulation;
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    if (s.replicate * s.shard > 1 && recompute == Recompute::kSelective) continue;
    INFO(s.name << ", " << which << ", recompute " << name(recompute));
    o.recompute = recompute;
    const Plan plan = tiny_plan(o);
    const std::vector<std::string> broken = check_job(plan);
    CHECK(broken == std::vector<std::string>{});
    if (!broken.empty()) return;
    const RunResult run = train(plan, kSteps);
    CHECK(difference(run.losses, one.losses) < 1e-5);
    CHECK(difference(run.norms, one.norms) < 1e-4);
    CHECK(difference(run.parameters, one.parameters) < 1e-4);
    CHECK(run.held_out == Approx(one.held_out).epsilon(1e-5));
    if (recompute == Recompute::kFull) CHECK(train(plan, kSteps, {.poison = true}) == run);  // and a rerun is bit-identical
  }
}

}  // namespace
}  // namespace distsetup
