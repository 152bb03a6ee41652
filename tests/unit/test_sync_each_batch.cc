// accelerate's sync_each_batch: what a plan of the Hugging Face Trainer's FSDP and DDP keeps and sends with it, and who has it not.
#include <catch2/catch.hpp>

#include <algorithm>

#include "cli/settings/bundled_settings.h"
#include "model/presets.h"
#include "planner/frameworks/memory.h"
#include "planner/search/fixes.h"
#include "planner/search/make_plan.h"
#include "support/problems.h"

using namespace distsetup;

namespace {

const Flags kRun = {{"model", "8B"},
                    {"nodes", "1"},
                    {"gpu", "h100_sxm"},
                    {"micro-batch", "1"},
                    {"recompute", "full"},
                    {"gradient-accumulation", "8"},
                    {"sequence-length", "2048"}};

Flags run_with(const Flags& more) {
  Flags flags = kRun;
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

Plan plan_of(const Flags& more) {
  const Result<Problem> problem = resolved(run_with(more));
  INFO(format_diagnostics(problem.diagnostics));
  REQUIRE(problem.ok());
  Result<Plan> plan = make_plan(*problem);
  REQUIRE(plan.ok());
  return std::move(*plan);
}

Flags with_sync(Flags flags) {
  flags.emplace_back("sync-each-batch", "true");
  return flags;
}

std::string refusal(const Flags& more) {
  const Result<Problem> problem = resolved(run_with(with_sync(more)));
  const auto found = std::find_if(problem.diagnostics.begin(), problem.diagnostics.end(),
                                  [](const Diagnostic& one) { return one.severity == Severity::kError; });
  return found == problem.diagnostics.end() ? "" : found->message;
}

}  // namespace

TEST_CASE("sync_each_batch: FSDP keeps no whole gradients, and reduces in each micro-batch") {
  const double parameters = 8.03e9;
  for (const Flags& trainer : {Flags{{"trainer", "fsdp1"}, {"sharding", "zero3"}},
                               Flags{{"trainer", "fsdp2"}, {"code-base", "transformers"}, {"sharding", "zero3"}}}) {
    const Plan whole = plan_of(trainer), reduced = plan_of(with_sync(trainer));
    CHECK(static_cast<double>(whole.memory.peak_allocated_bytes - reduced.memory.peak_allocated_bytes) > 1.2 * parameters);
    CHECK_FALSE(whole.strategy.sync_each_batch);
    CHECK(reduced.strategy.sync_each_batch);
  }
  // On a network on which reductions are seen.
  const Flags slow = {{"trainer", "fsdp1"}, {"sharding", "zero3"}, {"nodes", "2"}, {"network-bandwidth", "25"}};
  Flags flags = kRun;
  std::erase_if(flags, [](const auto& one) { return one.first == "nodes"; });
  flags.insert(flags.end(), slow.begin(), slow.end());
  const Result<Problem> once = resolved(flags), each = resolved(with_sync(flags));
  REQUIRE((once.ok() && each.ok()));
  CHECK(make_plan(*each)->time.step_s > 1.1 * make_plan(*once)->time.step_s);
}

TEST_CASE("sync_each_batch: DDP has whole gradients anyway, and sends them each time") {
  const Flags ddp = {{"model", "1B"}, {"trainer", "ddp"}, {"network-bandwidth", "10"}};
  Flags flags = kRun;
  std::erase_if(flags, [](const auto& one) { return one.first == "model" || one.first == "nodes"; });
  flags.insert(flags.end(), ddp.begin(), ddp.end());
  flags.emplace_back("nodes", "2");
  const Result<Problem> once = resolved(flags), each = resolved(with_sync(flags));
  REQUIRE((once.ok() && each.ok()));
  const Result<Plan> rarely = make_plan(*once), often = make_plan(*each);
  CHECK(often->memory.peak_allocated_bytes == rarely->memory.peak_allocated_bytes);
  CHECK(often->time.step_s > 2 * rarely->time.step_s);
}

TEST_CASE("sync_each_batch: FSDP2 with it is the Hugging Face Trainer's, others refuse it plainly") {
  CHECK(resolved(run_with(with_sync({{"trainer", "fsdp2"}})))->trainer.label == "FSDP2 (Hugging Face Trainer)");
  CHECK(refusal({{"trainer", "native"}}) == "parallel.sync_each_batch is a choice of other trainers");
  CHECK(refusal({{"trainer", "deepspeed"}}) ==
        "DeepSpeed's stage says when gradients are reduced: 2 and 3 in each micro-batch, 0 and 1 once a step");
  CHECK(refusal({{"trainer", "megatron"}}) == "sync_each_batch is a switch of accelerate, and Megatron-Core does not run under it");
  CHECK(refusal({{"trainer", "fsdp2"}, {"code-base", "torchtitan"}}) ==
        "sync_each_batch is a switch of accelerate, and FSDP2 (torchtitan) does not run under it");
  const Result<Problem> off = resolved(run_with({{"trainer", "deepspeed"}, {"sync-each-batch", "false"}}));
  CHECK(off.ok());
}

TEST_CASE("sync_each_batch: offered with its cost where whole gradients are too much") {
  const auto fixes = [](const Flags& more) {
    Flags flags = more;
    flags.insert(flags.end(), {{"trainer", "fsdp1"}, {"sharding", "zero3"}, {"gpu-memory", "36GiB"}});
    const Result<Problem> problem = resolved(run_with(flags));
    REQUIRE(problem.ok());
    const Result<Plan> plan = make_plan(*problem);
    REQUIRE(plan.ok());
    return find_fixes(*problem, *plan);
  };
  const auto is_it = [](const Fix& one) { return one.flags == "--sync-each-batch"; };
  const std::vector<Fix> offered = fixes({});
  const auto found = std::find_if(offered.begin(), offered.end(), is_it);
  REQUIRE(found != offered.end());
  CHECK(found->effect.find("× the step time per token") != std::string::npos);
  const std::vector<Fix> others = fixes({{"sync-each-batch", "true"}});
  CHECK(std::none_of(others.begin(), others.end(), is_it));
}

TEST_CASE("sync_each_batch: a file's is lost where accelerate drives nothing by it") {
  const auto lost = [](const char* trainer, const char* text) {
    const ReadSetting sync = {"parallel.sync_each_batch", text, "accelerator_config", {}};
    const auto found = BundledSettings({{"trainer.name", trainer, "engine", {}}, sync}, Spec()).lost(sync);
    return found.has_value() ? found->reason : "";
  };
  CHECK(lost("fsdp1", "true").empty());
  CHECK(lost("ddp", "true").empty());
  CHECK(lost("deepspeed", "true") == "accelerate drives FSDP and DDP by it alone");
  CHECK(lost("native", "true") == "the bundled trainer reduces gradients in ways of its own");
  CHECK(lost("native", "false").empty());
}
