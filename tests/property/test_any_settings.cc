// Settings drawn at random, as a user may put them together: each is refused by name or becomes a plan that holds what it says.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <catch2/catch.hpp>
#include <random>

#include "plan/plan.h"
#include "planner/native/simulate.h"
#include "planner/resolve/resolve.h"
#include "planner/search/make_plan.h"
#include "support/presets.h"
#include "support/seed.h"

using namespace distsetup;

namespace {

using Flags = std::vector<std::pair<std::string, std::string>>;

struct Setting {
  const char* flag;
  std::vector<const char*> values;
};

// Each is there in one of four draws.
const std::vector<Setting>& settings() {
  static const std::vector<Setting> all = {
      {"sharding", {"ddp", "zero1", "zero2", "zero3", "hybrid_shard"}},
      {"tp", {"1", "2", "4"}},
      {"pp", {"1", "2", "3"}},
      {"virtual-stages", {"1", "2"}},
      {"cp", {"1", "2", "4"}},
      {"cp-method", {"ring", "ulysses", "allgather"}},
      {"ep", {"1", "2", "4"}},
      {"recompute", {"none", "selective", "keep_attention", "full", "every_k:2"}},
      {"micro-batch", {"1", "2", "8"}},
      {"gradient-accumulation", {"1", "4"}},
      {"global-batch", {"16", "256"}},
      {"optimizer", {"adamw_8bit", "adafactor", "lion", "muon", "sgd"}},
      {"method", {"sft", "dpo"}},
      {"reference", {"none", "shared", "sharded"}},
      {"finetune", {"lora", "qlora"}},
      {"trainable", {".*mlp.*", ".*norm.*"}},
      {"loss-head", {"eager", "chunked"}},
      {"attention", {"eager", "flash2", "flash3"}},
      {"offload-optimizer", {"host", "nvme"}},
      {"offload-parameters", {"host"}},
      {"precision", {"fp32", "fp16", "fp8"}},
      {"checkpoint-async", {"true"}},
      {"reshard-after-forward", {"false"}},
      {"trainer", {"native", "native", "native", "fsdp2", "deepspeed", "megatron", "ddp"}},
      {"sequence-length", {"512", "1000", "32768"}},
      {"gpu-memory", {"6GiB", "24GiB"}},
      {"deterministic", {"true"}},
  };
  return all;
}

Flags draw_flags(std::mt19937_64& random) {
  const auto one_of = [&](const std::vector<const char*>& list) { return list[random() % list.size()]; };
  Flags flags = {{"model", one_of({"tiny", "quickstart", "tiny_tied", "gpt2", "llama3.2_1b", "mixtral_8x7b", "deepseek_v2_lite",
                                   "gemma2_2b", "qwen3_30b_a3b", "llama3_8b"})},
                 {"gpu", one_of({"cpu", "h100_sxm", "rtx_4090"})},
                 {"nodes", one_of({"1", "2"})},
                 {"gpus", one_of({"1", "2", "4", "8"})}};
  for (const Setting& s : settings())
    if (random() % 6 == 0) flags.emplace_back(s.flag, one_of(s.values));
  return flags;
}

std::string text_of(const Flags& flags) {
  std::vector<std::string> words;
  for (const auto& [flag, text] : flags) words.push_back(fmt::format("--{} {}", flag, text));
  return fmt::format("distsetup plan {}", fmt::join(words, " "));
}

}  // namespace

TEST_CASE("settings drawn at random are refused by name, or become a plan that holds what it says", "[all]") {
  INFO("DISTSETUP_SEED=" << test_seed() << " repeats it");
  std::mt19937_64 random(test_seed());
  int num_refused = 0, num_fit = 0, num_too_large = 0;
  const auto has_met_all = [&] { return num_refused > 10 && num_fit > 10 && num_too_large > 2; };
  for (int round = 0; round < num_rounds(100) || (!has_met_all() && round < 3000); ++round) {
    const Flags flags = draw_flags(random);
    INFO(text_of(flags));
    Spec spec;
    Diagnostics said;
    for (const auto& [flag, text] : flags)
      for (Diagnostic& d : set_flag(spec, flag, std::string_view(text), {"command line", 0, 0})) said.push_back(std::move(d));
    REQUIRE(said.empty());
    const Result<Problem> problem = resolve(spec, presets(), {});
    const Result<Plan> plan = problem.ok() ? make_plan(*problem) : Result<Plan>(problem.diagnostics);
    if (!plan.value.has_value()) {
      ++num_refused;
      CHECK(has_error(plan.diagnostics));
      continue;
    }
    (plan->verdict == Verdict::kDoesNotFit ? num_too_large : num_fit) += 1;
    CHECK(plan->memory.device_bytes > 0);
    CHECK(plan->time.step_s > 0);
    if (!is_native(*plan)) continue;
    CHECK_FALSE(has_error(validate(*plan)));
    Plan again = *plan;
    finish(again);
    CHECK(again.memory.device_bytes == plan->memory.device_bytes);
    CHECK(again.memory.run_bytes == plan->memory.run_bytes);
    CHECK(again.time.step_s == plan->time.step_s);
  }
  CHECK(has_met_all());
}
