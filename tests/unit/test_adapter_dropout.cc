// Dropout of adapters: what it keeps in memory, who trains with it, and what a plan may say of it.
#include <catch2/catch.hpp>

#include "base/diagnostic_codes.h"
#include "cli/settings/bundled_settings.h"
#include "model/presets.h"
#include "plan/plan.h"
#include "planner/frameworks/memory.h"
#include "support/problems.h"

using namespace distsetup;

namespace {

constexpr int64_t kTokens = 2048;

Setup adapters_of(bool with_autocast, double dropout) {
  Setup s;
  s.model = *find_model(presets(), "8B");
  s.framework = Framework::kDdp;
  s.sharding = Sharding::kDdp;
  s.program = "hf_eager";
  s.finetune = Finetune::kLora;
  s.frozen_dtype = s.parameter_dtype = Dtype::kBf16;
  s.gradient_dtype = s.state_dtype = Dtype::kF32;
  s.autocast = with_autocast;
  s.lora.dtype = with_autocast ? Dtype::kF32 : Dtype::kBf16;
  s.lora.rank = 16;
  s.lora.query = s.lora.key = s.lora.value = true;
  s.lora.dropout = dropout;
  s.recompute = ActivationRecompute::kNone;
  s.sequence_length = kTokens;
  s.micro_batch = 1;
  return s;
}

// In what layers read of their tokens: a number of two bytes.
double kept_by_dropout(bool with_autocast) {
  const Setup with = adapters_of(with_autocast, 0.05), without = adapters_of(with_autocast, 0);
  const auto rise = static_cast<double>(replay_memory(with).allocated_bytes - replay_memory(without).allocated_bytes);
  return rise / static_cast<double>(2 * kTokens * with.model.hidden * with.model.num_layers);
}

const Diagnostic* about(const Diagnostics& said, std::string_view text) {
  const auto found =
      std::find_if(said.begin(), said.end(), [text](const Diagnostic& one) { return one.message.find(text) != std::string::npos; });
  return found == said.end() ? nullptr : &*found;
}

}  // namespace

// Of q, k and v, which read the same. In the compute type all three share their input; with dropout each keeps one of its own and a
// byte a number to say what was dropped. Under autocast each has a copy anyway.
TEST_CASE("adapter dropout: what is dropped is kept beside what is left") {
  CHECK(kept_by_dropout(false) == Approx(3 * 1.5 - 1).epsilon(0.05));
  CHECK(kept_by_dropout(true) == Approx(3 * 0.5).epsilon(0.05));
}

TEST_CASE("adapter dropout: a plan of another trainer has it, and its memory is counted") {
  const Flags lora = {{"model", "8B"}, {"nodes", "1"}, {"trainer", "ddp"}, {"finetune", "lora"}};
  Flags some = lora;
  some.emplace_back("lora-dropout", "0.1");
  const Result<Problem> problem = resolved(some);
  REQUIRE(problem.ok());
  CHECK(problem->base.train.lora_dropout == 0.1);
  CHECK(problem->setup.lora.dropout == 0.1);
  CHECK(resolved(lora)->base.train.lora_dropout == 0);
  CHECK(resolved(lora)->setup.lora.dropout == 0);
}

// Torchtitan's adapters have none: who asks for it means PEFT's, unless another setting is torchtitan's alone.
TEST_CASE("adapter dropout: FSDP2 with it is the Hugging Face Trainer's") {
  const auto label = [](const Flags& more) {
    Flags flags = {{"model", "8B"}, {"nodes", "1"}, {"finetune", "lora"}, {"trainer", "fsdp2"}};
    flags.insert(flags.end(), more.begin(), more.end());
    const Result<Problem> problem = resolved(flags);
    return problem.ok() ? problem->trainer.label : problem.diagnostics.front().message;
  };
  CHECK(label({}) == "FSDP2 (torchtitan)");
  CHECK(label({{"lora-dropout", "0"}}) == "FSDP2 (torchtitan)");
  CHECK(label({{"lora-dropout", "0.1"}}) == "FSDP2 (Hugging Face Trainer)");
  CHECK(label({{"lora-dropout", "0.1"}, {"tp", "2"}}) == "FSDP2 (torchtitan)");
  CHECK(label({{"lora-dropout", "0.1"}, {"code-base", "torchtitan"}}) ==
        "adapter.dropout is 0.1, expected 0: torchtitan's adapters have none");
  const Result<Problem> open = resolved({{"model", "8B"}, {"nodes", "1"}, {"finetune", "lora"}, {"lora-dropout", "0.1"}});
  REQUIRE(open.ok());  // not the bundled trainer
  CHECK(open->trainer.label == "FSDP2 (Hugging Face Trainer)");
}

TEST_CASE("adapter dropout: the bundled trainer has none and says what does") {
  const auto said = [](const char* dropout) {
    return resolved({{"model", "8B"}, {"trainer", "native"}, {"finetune", "lora"}, {"lora-dropout", dropout}}).diagnostics;
  };
  const Diagnostics some = said("0.1");
  REQUIRE(about(some, "adapter.dropout is 0.1, expected 0") != nullptr);
  CHECK(about(some, "adapter.dropout")->code == code::kUnsupportedFeature);
  CHECK(about(some, "adapter.dropout")->help.find("--lora-dropout 0, or") == 0);
  CHECK(about(said("0"), "adapter.dropout") == nullptr);
}

TEST_CASE("adapter dropout: without adapters it is a conflict") {
  for (const char* trainer : {"native", "fsdp2"}) {
    const Diagnostics said = resolved({{"model", "8B"}, {"trainer", trainer}, {"lora-dropout", "0.1"}}).diagnostics;
    INFO(trainer);
    REQUIRE(about(said, "adapter.dropout without adapters") != nullptr);
    CHECK(about(said, "adapter.dropout")->code == code::kConflict);
  }
}

TEST_CASE("adapter dropout: a part from 0 to less than 1") {
  Spec spec;
  for (const char* text : {"1", "1.5", "-0.1", "some"}) CHECK(has_error(set_flag(spec, "lora-dropout", text, {"command line", 0, 0})));
  CHECK(set_flag(spec, "lora-dropout", "0.5", {"command line", 0, 0}).empty());

  Plan plan = resolved({{"model", "8B"}, {"nodes", "1"}, {"trainer", "ddp"}, {"finetune", "lora"}})->base;
  plan.train.lora_dropout = 0.5;
  CHECK(about(validate(plan), "dropout") == nullptr);
  plan.train.lora_dropout = 1;
  CHECK(about(validate(plan), "dropout of adapters is 1, expected 0 to less than 1") != nullptr);
  plan.train.lora_dropout = 0.5;
  plan.train.finetune = "full";
  CHECK(about(validate(plan), "finetune is full: there are none") != nullptr);
  plan.train.finetune = "lora";
  plan.strategy.trainer = kNative;
  CHECK(about(validate(plan), "without dropout, the plan says 0.5") != nullptr);
}

// What another tool's file says is not asked for here: it is told as what is lost, and no error.
TEST_CASE("adapter dropout: a file that is read for the bundled trainer loses it") {
  const ReadSetting dropout = {"adapter.dropout", "0.05", "lora_dropout", {}};
  const auto lost = [&dropout](const char* trainer, const std::string& text) {
    ReadSetting one = dropout;
    one.text = text;
    return BundledSettings({{"trainer.name", trainer, "engine", {}}, one}, Spec()).lost(one);
  };
  REQUIRE(lost("native", "0.05").has_value());
  CHECK(lost("native", "0.05")->reason == "the bundled trainer drops nothing of what adapters read");
  CHECK_FALSE(lost("native", "0").has_value());
  CHECK_FALSE(lost("ddp", "0.05").has_value());
}
