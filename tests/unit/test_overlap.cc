// Megatron's overlap of reductions and gathers, and FSDP1's prefetch in backward: read, written, refused, and in seconds and bytes.
#include <catch2/catch.hpp>

#include <algorithm>

#include "cli/settings/bundled_settings.h"
#include "planner/frameworks/memory.h"
#include "planner/search/make_plan.h"
#include "planner/time/step.h"
#include "support/problems.h"

using namespace distsetup;

namespace {

const Flags kRun = {{"model", "8B"},       {"nodes", "2"},         {"gpu", "h100_sxm"},        {"micro-batch", "1"},
                    {"recompute", "full"}, {"global-batch", "16"}, {"sequence-length", "2048"}};

Flags with(Flags flags, const Flags& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

Plan plan_of(const Flags& flags) {
  const Result<Problem> problem = resolved(flags);
  INFO(format_diagnostics(problem.diagnostics));
  REQUIRE(problem.ok());
  Result<Plan> plan = make_plan(*problem);
  REQUIRE(plan.ok());
  return std::move(*plan);
}

std::string refusal(const Flags& flags) {
  const Result<Problem> problem = resolved(flags);
  const auto found = std::find_if(problem.diagnostics.begin(), problem.diagnostics.end(),
                                  [](const Diagnostic& one) { return one.severity == Severity::kError; });
  return found == problem.diagnostics.end() ? "" : found->message;
}

const Flags kMegatron = {{"trainer", "megatron"}, {"sharding", "zero1"}, {"tp", "1"}, {"pp", "1"}, {"cp", "1"}};
const Flags kFsdp = {{"trainer", "fsdp1"}, {"sharding", "zero3"}};

}  // namespace

// 8.03e9 gradients of 4 bytes and as many parameters of 2 over 16 GPUs of two nodes: a good part of a step of one micro-batch.
TEST_CASE("overlap: without Megatron's flags a step is longer by the reduction, and by the gather") {
  const Plan both = plan_of(with(kRun, kMegatron));
  const Plan reduces = plan_of(with(kRun, with(kMegatron, {{"overlap-grad-reduce", "false"}})));
  const Plan neither = plan_of(with(kRun, with(kMegatron, {{"overlap-grad-reduce", "false"}, {"overlap-param-gather", "false"}})));
  CHECK(both.strategy.overlap_grad_reduce);
  CHECK_FALSE(reduces.strategy.overlap_grad_reduce);
  CHECK(reduces.time.step_s > 1.02 * both.time.step_s);
  CHECK(neither.time.step_s > 1.01 * reduces.time.step_s);
  CHECK(neither.memory.peak_allocated_bytes == both.memory.peak_allocated_bytes);
}

TEST_CASE("overlap: one rank has nothing to reduce or gather") {
  Flags alone = kMegatron;
  alone.insert(alone.end(), {{"model", "1B"}, {"nodes", "1"}, {"gpus", "1"}, {"gpu", "h100_sxm"}, {"micro-batch", "1"}});
  const Plan with_it = plan_of(alone), without = plan_of(with(alone, {{"overlap-grad-reduce", "false"}}));
  CHECK(with_it.time.step_s == without.time.step_s);
}

TEST_CASE("overlap: other trainers refuse what they have no switch for, and files lose it") {
  for (const char* flag : {"overlap-grad-reduce", "overlap-param-gather"}) {
    CHECK(refusal(with(kRun, {{"trainer", "fsdp2"}, {flag, "false"}})).find("is a switch of Megatron's") != std::string::npos);
    CHECK(refusal(with(kRun, {{"trainer", "fsdp2"}, {flag, "true"}})).empty());
  }
  CHECK(refusal(with(kRun, {{"trainer", "fsdp2"}, {"backward-prefetch", "none"}})).find("FSDP version 1") != std::string::npos);
  CHECK(refusal(with(kRun, {{"trainer", "native"}, {"overlap-grad-reduce", "false"}})) ==
        "parallel.overlap_grad_reduce is a switch of Megatron's");
  CHECK(refusal(with(kRun, {{"trainer", "native"}, {"backward-prefetch", "none"}})) ==
        "parallel.backward_prefetch is a choice of other trainers");
  const auto lost = [](const char* trainer, const char* path, const char* text) {
    const ReadSetting one = {path, text, "key", {}};
    const auto found = BundledSettings({{"trainer.name", trainer, "engine", {}}, one}, Spec()).lost(one);
    return found.has_value() ? found->reason : "";
  };
  CHECK(lost("megatron", "parallel.overlap_grad_reduce", "false").empty());
  CHECK(lost("fsdp2", "parallel.overlap_grad_reduce", "false") == "a switch of Megatron's");
  CHECK(lost("fsdp1", "parallel.backward_prefetch", "none").empty());
  CHECK(lost("fsdp2", "parallel.backward_prefetch", "none") == "a setting of FSDP's version 1");
}

// A block of 70B has 856 million parameters, 1.6 GiB in 16 bits.
TEST_CASE("prefetch: FSDP1 without it gathers one block at a time, and waits for each") {
  const Flags run = {{"model", "70B"},     {"nodes", "4"},        {"gpu", "h100_sxm"},
                     {"micro-batch", "1"}, {"recompute", "full"}, {"sequence-length", "512"}};
  const auto with_prefetch = [&](const char* when) { return plan_of(with(run, with(kFsdp, {{"backward-prefetch", when}}))); };
  const Plan pre = plan_of(with(run, kFsdp)), post = with_prefetch("backward_post"), none = with_prefetch("NO_PREFETCH");
  CHECK(none.strategy.backward_prefetch == kNoPrefetch);
  CHECK(post.strategy.backward_prefetch == kPrefetchPost);
  CHECK(post.time.step_s > pre.time.step_s);
  CHECK(none.time.step_s > post.time.step_s);
  CHECK(static_cast<double>(pre.memory.peak_allocated_bytes - none.memory.peak_allocated_bytes) > 1.9 * 856e6);
  CHECK(post.memory.peak_allocated_bytes == none.memory.peak_allocated_bytes);
}
