// Releases of Transformers that a user names: trainer.transformers.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "base/diagnostic_codes.h"
#include "planner/frameworks/experts.h"
#include "planner/frameworks/memory.h"
#include "planner/resolve/releases.h"
#include "support/problems.h"

using namespace distsetup;

namespace {

Problem problem_of(const char* trainer, const char* version, Flags more = {}) {
  more.push_back({"nodes", "1"});
  more.push_back({"trainer", trainer});
  if (*version != 0) more.push_back({"transformers", version});
  Result<Problem> problem = resolved(more);
  INFO(format_diagnostics(problem.diagnostics));
  REQUIRE(problem.ok());
  return *problem;
}

bool assumes(const Problem& problem, std::string_view text) {
  return std::any_of(problem.base.assumptions.begin(), problem.base.assumptions.end(),
                     [&](const std::string& one) { return one.find(text) != std::string::npos; });
}

}  // namespace

TEST_CASE("Transformers: a release is found by its number") {
  const ReleaseTable& table = built_in_releases("transformers");
  const auto day = [&](std::string_view version) {
    const NamedRelease* release = find_named_release(table, version);
    return release == nullptr ? 0 : release->day;
  };
  for (const char* same : {"4.46", "4.46.3", "v4.46.0", "4.46.0.dev0"}) CHECK(day(same) == 20241024);
  CHECK(day("4") == 20251003);  // 4.57, the last
  CHECK(day("4.5") == 0);       // older than the table, and not 4.50
  CHECK(day("5") == 20260126);
  for (const char* none : {"", "4.", "4.460", "4.46x", "3.5", "latest", "-4.46"}) {
    INFO(none);
    CHECK(day(none) == 0);
  }
  for (size_t i = 1; i < table.named.size(); ++i) CHECK(table.named[i - 1].day < table.named[i].day);
}

TEST_CASE("Transformers: what a release does is planned") {
  const Flags model = {{"model", "8B"}};
  const Problem now = problem_of("fsdp1", "", model), old = problem_of("fsdp1", "4.44", model),
                late = problem_of("fsdp1", "4.57", model);
  CHECK_FALSE(now.setup.software.logits_shifted);
  CHECK(old.setup.software.logits_shifted);
  CHECK(old.setup.software.low_precision_logits_kept);
  CHECK(old.setup.software.released == 202408);
  CHECK(old.setup.loss == LossHead::kHfShift);
  CHECK(late.setup.loss == LossHead::kEager);
  CHECK(assumes(old, "transformers 4.44 (2024-08), program hf_eager"));
  CHECK_FALSE(late.setup.software.logits_shifted);
  CHECK(problem_of("deepspeed", "4.44", model).setup.software.name == "deepspeed under transformers 4.44 (2024-08)");
  CHECK(problem_of("fsdp2", "4.57", {{"model", "8B"}, {"code-base", "axolotl"}}).setup.software.name == "transformers 4.57 (2025-10)");
  CHECK(problem_of("ddp", "4.44", {{"model", "8B"}, {"code-base", "unsloth"}}).setup.software.name ==
        "Unsloth with transformers 4.44 (2024-08)");
  CHECK(problem_of("fsdp1", "4.48", model).setup.software.logits_shifted);
  CHECK_FALSE(problem_of("fsdp1", "4.49", model).setup.software.logits_shifted);
  // What the trainer's preset says of it stays.
  CHECK(old.setup.software.accumulates_whole);
  CHECK(old.setup.software.wrapping == now.setup.software.wrapping);
  Setup before = old.setup, after = late.setup;
  for (Setup* s : {&before, &after}) s->dp_shard = 8, s->micro_batch = 4;
  CHECK(simulate_memory(before).allocated_bytes > simulate_memory(after).allocated_bytes);
}

TEST_CASE("Transformers: attention, experts and sync_each_batch are those of the release") {
  const Flags model = {{"model", "8B"}};
  CHECK(assumes(problem_of("ddp", "4.35", model), "attention eager: Transformers takes sdpa from 4.36 on"));
  CHECK_FALSE(assumes(problem_of("ddp", "4.36", model), "attention eager"));
  const auto kernels = [](const char* version) {
    return expert_kernels(problem_of("fsdp1", version, {{"model", "mixtral_8x7b"}, {"sharding", "zero3"}}).setup);
  };
  CHECK(kernels("4.57") == ExpertKernels::kModulesInTurn);
  CHECK(kernels("5.0") == ExpertKernels::kGrouped);
  const Flags syncs = {{"model", "8B"}, {"sync-each-batch", "true"}};
  CHECK(problem_of("fsdp1", "4.45", syncs).setup.sync_each_batch);
  CHECK_FALSE(problem_of("fsdp1", "4.46", syncs).setup.sync_each_batch);
  CHECK_FALSE(problem_of("fsdp1", "5.0", syncs).setup.sync_each_batch);
  CHECK(problem_of("fsdp1", "", syncs).setup.sync_each_batch);
}

TEST_CASE("Transformers: a compiled model of DDP has its loss in the graph, whatever the release") {
  const Flags compiled = {{"model", "8B"}, {"compile", "true"}};
  CHECK(problem_of("ddp", "4.46", compiled).setup.loss == problem_of("ddp", "", compiled).setup.loss);
}

TEST_CASE("Transformers: a release says whose layers are meant, and trainers without them refuse it") {
  CHECK(problem_of("fsdp2", "4.46", {{"model", "8B"}}).trainer.label == "FSDP2 (Hugging Face Trainer)");
  const Result<Problem> unnamed = resolved({{"model", "8B"}, {"nodes", "1"}, {"transformers", "4.46"}});
  REQUIRE(unnamed.ok());
  CHECK(unnamed->trainer.label == "FSDP2 (Hugging Face Trainer)");
  for (const char* trainer : {"megatron", "native", "unknown"}) {
    const Result<Problem> refused = resolved({{"model", "8B"}, {"nodes", "1"}, {"trainer", trainer}, {"transformers", "4.46"}});
    INFO(trainer);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.diagnostics.front().code == code::kUnsupportedFeature);
    CHECK(refused.diagnostics.front().help.find("fsdp2") != std::string::npos);
  }
  const Result<Problem> unknown = resolved({{"model", "8B"}, {"trainer", "ddp"}, {"transformers", "3.1"}});
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.diagnostics.front().message == "no release '3.1' of Transformers is known, expected 4.21 to 5.0");
}
