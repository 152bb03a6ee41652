// What a user says and does not say: the trainer that is taken, defaults by method, counts as people write them, machines that exist.
#include <catch2/catch.hpp>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/quantity.h"
#include "cli/deliver/targets.h"
#include "plan/plan_json.h"
#include "planner/report/preview.h"
#include "planner/resolve/method_defaults.h"
#include "planner/search/fixes.h"
#include "planner/search/make_plan.h"
#include "support/problems.h"

using namespace distsetup;

namespace {

std::string first_error(const Diagnostics& said) {
  for (const Diagnostic& d : said)
    if (d.severity == Severity::kError) return d.message + " | " + d.help;
  return "";
}

bool assumes(const Problem& problem, std::string_view text) {
  return std::any_of(problem.base.assumptions.begin(), problem.base.assumptions.end(),
                     [&](const std::string& one) { return one.find(text) != std::string::npos; });
}

}  // namespace

TEST_CASE("user terms: where no trainer is named the first that can run the model is taken, and said") {
  const Result<Problem> dense = resolved({{"model", "8B"}, {"nodes", "1"}});
  REQUIRE(dense.ok());
  CHECK(dense->trainer.name == kNative);
  CHECK(assumes(*dense, "the bundled trainer"));
  for (const char* model : {"mpt_7b", "gemma2_9b"}) {
    const Result<Problem> other = resolved({{"model", model}, {"nodes", "2"}});
    INFO(model << " " << format_diagnostics(other.diagnostics));
    REQUIRE(other.ok());
    CHECK(other->trainer.name == "fsdp2");
    CHECK(other->stands_in.starts_with("the first trainer that can: "));
    CHECK(assumes(*other, "the first trainer that can: the native trainer cannot run"));
    CHECK(other->trainer.label == "FSDP2 (Hugging Face Trainer)");  // torchtitan has neither
  }
  const Flags grok = {{"model", "grok_1"}, {"nodes", "16"}};
  const Result<Problem> next = resolved(grok, {{"FSDP2 (Hugging Face Trainer)"}});
  REQUIRE(next.ok());
  CHECK(next->trainer.name == "megatron");
  CHECK(assumes(*next, "since it does not fit with FSDP2 (Hugging Face Trainer): the native trainer cannot run"));
  const Result<Problem> roomier = resolved(grok, {{"FSDP2 (Hugging Face Trainer)", true}});
  REQUIRE(roomier.ok());
  CHECK(roomier->trainer.name == "megatron");
  CHECK(assumes(*roomier, "since it is tight with FSDP2 (Hugging Face Trainer): the native trainer cannot run"));
  const Result<Problem> third = resolved(grok, {{"FSDP2 (Hugging Face Trainer)"}, {"Megatron-Core", true}});
  REQUIRE(third.ok());
  CHECK(third->stands_in.starts_with("since it does not fit with FSDP2 (Hugging Face Trainer) and is tight with Megatron-Core: "));
  const std::vector<PassedOver> all = {
      {"FSDP2 (Hugging Face Trainer)"}, {"Megatron-Core"}, {"DeepSpeed (Hugging Face Trainer)"}, {"FSDP1 (Hugging Face Trainer)"}};
  const Result<Problem> none = resolved(grok, all);
  CHECK(first_error(none.diagnostics).starts_with("the native trainer cannot run"));
  const Result<Problem> in_fp8 = resolved({{"model", "8B"}, {"nodes", "1"}, {"precision", "fp8"}});
  REQUIRE(in_fp8.ok());
  CHECK(in_fp8->trainer.label == "FSDP2 (torchtitan)");
  CHECK(resolved({{"model", "deepseek_v2_lite"}, {"nodes", "2"}})->trainer.name == kNative);
  CHECK(resolved({{"model", "mixtral_8x7b"}, {"nodes", "2"}})->trainer.name == kNative);
  CHECK(resolved({{"model", "qwen3_30b_a3b"}, {"nodes", "2"}, {"ep", "8"}})->trainer.name == kNative);
  CHECK(resolved({{"model", "8B"}, {"nodes", "2"}, {"tp", "2"}})->trainer.name == kNative);
  CHECK(resolved({{"model", "8B"}, {"nodes", "2"}, {"cp", "2"}})->trainer.name == kNative);
  CHECK(resolved({{"model", "8B"}, {"nodes", "2"}, {"ring-attn-size", "2"}})->cp == 2);  // the ring of OpenRLHF
  CHECK(resolved({{"model", "olmo2_7b"}, {"nodes", "2"}})->trainer.name == kNative);
  CHECK(resolved({{"model", "olmo2_7b"}, {"nodes", "2"}, {"tp", "2"}})->trainer.name == "megatron");  // its norms go over all heads
  CHECK(first_error(resolved({{"model", "olmo2_7b"}, {"tp", "2"}, {"trainer", "native"}}).diagnostics).find("all heads") !=
        std::string::npos);
  CHECK(resolved({{"model", "8B"}, {"nodes", "1"}, {"sharding", "zero2"}, {"precision", "fp16"}})->trainer.name == kNative);
  CHECK(resolved({{"model", "8B"}, {"nodes", "1"}, {"sharding", "zero2"}, {"precision", "fp8"}})->trainer.name == "fsdp2");
  // Asked for by name it is refused, and so is what is wrong for every trainer.
  CHECK_FALSE(resolved({{"model", "nemotron3_nano"}, {"trainer", "native"}}).ok());
  CHECK_FALSE(resolved({{"model", "nemotron3_nano"}, {"launch-target", "native"}}).ok());
  CHECK(first_error(resolved({{"model", "no_such_model"}}).diagnostics).find("unknown model") != std::string::npos);
}

TEST_CASE("user terms: targets of Hugging Face are predicted with its layers, torchtitan's with torchtitan's") {
  const auto program = [](const char* target, const Flags& more = {}) {
    Flags flags = {{"model", "8B"}, {"nodes", "1"}, {"trainer", "fsdp2"}, {"launch-target", target}};
    flags.insert(flags.end(), more.begin(), more.end());
    const Result<Problem> problem = resolved(flags);
    INFO(target << format_diagnostics(problem.diagnostics));
    REQUIRE(problem.ok());
    CHECK(problem->trainer.name == "fsdp2");
    return problem->setup.program;
  };
  for (const char* target : {"transformers", "trl", "axolotl", "llamafactory", "accelerate-fsdp2", "fsdp"})
    CHECK(program(target) == "hf_eager");
  CHECK(program("torchtitan") == "torchtitan_eager");
  CHECK(program("accelerate-fsdp2", {{"tp", "2"}}) == "hf_eager");  // parallelism_config_tp_size
  CHECK(program("accelerate-fsdp2", {{"pp", "2"}}) == "torchtitan_eager");
  CHECK(program("accelerate-fsdp2", {{"tp", "2"}, {"finetune", "lora"}}) == "torchtitan_eager");  // PEFT's adapters are not split here
}

TEST_CASE("user terms: the optimizer's defaults follow the method, each row with a source") {
  struct Row {
    const char *method, *finetune;
    double learning_rate, weight_decay, beta2;
  };
  for (const Row& row :
       {Row{"pretrain", "full", 3e-4, 0.1, 0.95}, Row{"pretrain", "lora", 2e-4, 0, 0.999}, Row{"sft", "full", 2e-5, 0, 0.999},
        Row{"sft", "qlora", 2e-4, 0, 0.999}, Row{"dpo", "full", 1e-6, 0, 0.999}, Row{"dpo", "lora", 1e-5, 0, 0.999}}) {
    INFO(row.method << " " << row.finetune);
    const Result<MethodDefaults> usual = method_defaults(presets(), row.method, row.finetune);
    REQUIRE(usual.ok());
    CHECK_FALSE(usual->source.empty());
    const Result<Problem> problem =
        resolved({{"model", "8B"}, {"nodes", "1"}, {"trainer", "fsdp1"}, {"method", row.method}, {"finetune", row.finetune}});
    REQUIRE(problem.ok());
    CHECK(problem->base.train.learning_rate == row.learning_rate);
    CHECK(problem->base.train.weight_decay == row.weight_decay);
    CHECK(problem->base.train.beta2 == row.beta2);
    CHECK(problem->base.train.beta1 == 0.9);
  }
  const Result<Problem> given = resolved({{"model", "8B"}, {"nodes", "1"}, {"trainer", "fsdp1"}, {"method", "dpo"}, {"lr", "5e-7"}});
  CHECK(given->base.train.learning_rate == 5e-7);
  CHECK_FALSE(assumes(*given, "learning rate by"));
}

TEST_CASE("user terms: adapters are trained on answers, in batches of fine-tuning") {
  const auto tokens_of = [](const Flags& more) {
    Flags flags = {{"model", "8B"}, {"nodes", "1"}};
    flags.insert(flags.end(), more.begin(), more.end());
    const Result<Problem> problem = resolved(flags);
    INFO(format_diagnostics(problem.diagnostics));
    REQUIRE(problem.ok());
    return std::pair{problem->base.train.method, problem->global_batch_tokens};
  };
  using Row = std::pair<std::string, int64_t>;
  CHECK(tokens_of({}) == Row{"pretrain", 1 << 20});
  CHECK(tokens_of({{"finetune", "lora"}, {"samples", "50k"}, {"epochs", "3"}}) == Row{"sft", 16 * 4096});
  CHECK(tokens_of({{"finetune", "qlora"}, {"trainer", "fsdp1"}}) == Row{"sft", 16 * 4096});
  CHECK(tokens_of({{"method", "sft"}, {"sequence-length", "1024"}}) == Row{"sft", 128 * 1024});
  CHECK(tokens_of({{"method", "dpo"}}) == Row{"dpo", 128 * 2 * 4096});
  CHECK(tokens_of({{"method", "pretrain"}, {"finetune", "lora"}}) == Row{"pretrain", 16 * 4096});
  CHECK(tokens_of({{"finetune", "lora"}, {"global-batch-tokens", "1M"}}) == Row{"sft", 1'000'000});
}

TEST_CASE("user terms: counts are read as people write them") {
  CHECK(*parse_count("4M") == 4'000'000);
  CHECK(*parse_count("15T") == 15'000'000'000'000);
  CHECK(*parse_count("1.5b") == 1'500'000'000);
  CHECK(*parse_count("4Mi") == 4 << 20);
  CHECK(*parse_count("128k") == 128'000);
  for (const char* no : {"4", "M", "4MB", "4X", "", "-4M", "4Mx"}) CHECK_FALSE(is_short_count(no));
  CHECK_FALSE(parse_count("99999999999T").ok());
  CHECK(resolved({{"model", "8B"}, {"nodes", "1"}, {"global-batch-tokens", "4M"}})->global_batch_tokens == 4'000'000);
  const auto length = [](const char* text) {
    return resolved({{"model", "llama3.1_8b"}, {"nodes", "1"}, {"sequence-length", text}})->base.train.sequence_length;
  };
  CHECK(length("8k") == 8192);  // a context's K is 1,024
  CHECK(length("128K") == 131072);
  CHECK(length("8Ki") == 8192);
  CHECK(length("8000") == 8000);
  Spec spec;
  CHECK(has_error(set_flag(spec, "gpus", "4k", {"command line", 0, 0})));  // GPUs are no such count
}

TEST_CASE("user terms: the length of a run in tokens, samples or epochs") {
  const auto steps = [](const Flags& more) {
    Flags flags = {{"model", "llama3.2_1b"}, {"nodes", "1"}, {"global-batch", "256"}};
    flags.insert(flags.end(), more.begin(), more.end());
    const Result<Problem> problem = resolved(flags);
    INFO(format_diagnostics(problem.diagnostics));
    REQUIRE(problem.ok());
    const Result<Plan> plan = make_plan(*problem);
    REQUIRE(plan.ok());
    return std::pair{plan->train.steps, plan->train.warmup_steps};
  };
  CHECK(steps({{"total-tokens", "1B"}}) == std::pair<int64_t, int64_t>{954, 95});
  CHECK(steps({{"samples", "100k"}}).first == 391);
  CHECK(steps({{"samples", "100k"}, {"epochs", "3"}}).first == 1172);
  CHECK(steps({{"total-tokens", "1B"}, {"warmup-steps", "7"}}).second == 7);
  CHECK(first_error(resolved({{"model", "8B"}, {"epochs", "3"}}).diagnostics).find("--samples 50000") != std::string::npos);
  CHECK(first_error(resolved({{"model", "8B"}, {"steps", "3"}, {"samples", "9"}}).diagnostics).find("given twice") !=
        std::string::npos);
}

TEST_CASE("user terms: more GPUs in a node than any machine has is a number of all GPUs") {
  CHECK(
      first_error(resolved({{"model", "8B"}, {"gpu", "H100"}, {"gpus", "64"}}).diagnostics) ==
      "64 GPUs in one node: H100 SXM 80 GB machines have 8 | did you mean --nodes 8 --gpus 8; a machine of your own: --machine FILE");
  CHECK(resolved({{"model", "8B"}, {"gpu", "v100_sxm_32"}, {"gpus", "16"}, {"precision", "fp32"}}).ok());
  CHECK(resolved({{"model", "8B"}, {"gpu", "rtx_4090"}, {"gpus", "10"}}).ok());
  CHECK_FALSE(resolved({{"model", "8B"}, {"gpu", "rtx_4090"}, {"gpus", "32"}}).ok());
  CHECK(resolved({{"model", "tiny"}, {"gpu", "cpu"}, {"gpus", "64"}}).ok());
}

TEST_CASE("user terms: a machine of the command line brings its own GPUs against the GPU of a file") {
  Spec file, line;
  REQUIRE(set(file, "hardware.gpu", "h100_sxm", {"run.yaml", 1, 1}).empty());
  REQUIRE(set(line, "hardware.machine", "dgx_a100", {"command line", 0, 0}).empty());
  CHECK(merge(file, line).find("hardware.gpu") == nullptr);
  CHECK(merge(line, file).find("hardware.gpu") != nullptr);  // said together with it, or over it, it counts
}

TEST_CASE("user terms: hours to a failure count without a time for saving, which is then assumed") {
  const Result<Problem> problem = resolved({{"model", "8B"}, {"nodes", "1"}, {"gpu-hours-per-failure", "1000"}});
  CHECK(problem->save_time_s > 0);
  CHECK(assumes(*problem, "a save stops training for"));
  CHECK(resolved({{"model", "8B"}, {"nodes", "1"}})->save_time_s == 0);
}

TEST_CASE("user terms: a run that is started again saves as often as its plan says, else about every half hour") {
  Plan plan;
  plan.train.steps = 100'000;
  plan.time.step_s = 10;
  CHECK(steps_between_checkpoints(plan) == 180);
  plan.time.checkpoint_every_s = 7200;
  CHECK(steps_between_checkpoints(plan) == 720);
}

TEST_CASE("user terms: published names lead to the model of the same sizes") {
  for (const auto& [name, id] : {std::pair{"meta-llama/Llama-3.1-8B-Instruct", "llama3.1_8b"},
                                 {"Llama-3-70B-Instruct", "llama3_70b"},
                                 {"meta-llama/Llama-3.3-70B-Instruct", "llama3.1_70b"},
                                 {"google/gemma-3-1b-it", "gemma3_1b"},
                                 {"Llama-2-7b-chat-hf", "llama2_7b"},
                                 {"TinyLlama/TinyLlama-1.1B-Chat-v1.0", "tinyllama_1.1b"},
                                 {"deepseek-ai/DeepSeek-R1", "deepseek_v3"},
                                 {"EleutherAI/pythia-1.4b-deduped", "pythia_1.4b"},
                                 {"mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral_8x7b"},
                                 {"Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3_30b_a3b"},
                                 {"microsoft/Phi-3-mini-128k-instruct", "phi3_mini"},
                                 {"unsloth/llama-3-8b-bnb-4bit", "llama3_8b"}}) {
    const Result<Geometry> model = find_model(presets(), name);
    INFO(name << format_diagnostics(model.diagnostics));
    REQUIRE(model.ok());
    CHECK(model->name == id);
  }
  for (const char* unknown : {"acme-7b", "Llama-9-Instruct", "instruct", "it", "names", ""})
    CHECK_FALSE(find_model(presets(), unknown).ok());
  // Every name of the index leads to a file.
  const Result<Value> index = read_preset(*find_preset(presets(), "models", "names"));
  for (const auto& [name, id] : index->find("names")->entries) {
    INFO(name);
    CHECK(find_preset(presets(), "models", id.text) != nullptr);
    CHECK(find_model(presets(), name)->name == id.text);
  }
}

TEST_CASE("user terms: plan.json says how many parameters a model has and uses") {
  const Result<Problem> problem = resolved({{"model", "mixtral_8x7b"}, {"nodes", "2"}});
  const Result<Plan> plan = make_plan(*problem);
  REQUIRE(plan.ok());
  const Json json = to_json(*plan);
  CHECK(json["model"]["parameters"] == 46'702'792'704);
  CHECK(json["model"]["active_parameters"] == 12'879'925'248);
  const Result<Plan> again = plan_from_json(dump_json(json), "plan.json");
  REQUIRE(again.ok());
  CHECK(dump_json(to_json(*again)) == dump_json(json));
  CHECK(format_preview(*plan).starts_with("mixtral_8x7b · 46,702,792,704 parameters, 12,879,925,248 active\n"));
  const std::string brief = format_preview(*plan, {.brief = true});
  CHECK(std::count(brief.begin(), brief.end(), '\n') == 5);
  CHECK(brief.find(verdict_line(*plan)) != std::string::npos);
  CHECK(brief.find("\npretrain · 1,000 steps in 2 h ") != std::string::npos);
}

TEST_CASE("user terms: what would fit begins with what the user has") {
  const Result<Problem> problem =
      resolved({{"model", "8B"}, {"nodes", "1"}, {"micro-batch", "16"}, {"recompute", "none"}, {"tp", "1"}});
  const Result<Plan> plan = make_plan(*problem);
  REQUIRE(plan->verdict == Verdict::kDoesNotFit);
  const std::vector<Fix> fixes = find_fixes(*problem, *plan);
  REQUIRE(fixes.size() > 2);
  CHECK(fixes.front().needs == Fix::Needs::kNothing);
  CHECK(std::is_sorted(fixes.begin(), fixes.end(), [](const Fix& a, const Fix& b) { return a.needs < b.needs; }));
}

TEST_CASE("user terms: what would fit names more nodes and, where one has enough memory, another GPU") {
  // More memory than any GPU of the table of those that are usual.
  const Result<Problem> problem =
      resolved({{"model", "70B"}, {"nodes", "1"}, {"gpus", "6xH200"}, {"trainer", "fsdp2"}, {"tp", "1"}, {"pp", "1"}, {"cp", "1"}});
  REQUIRE(problem.ok());
  REQUIRE_FALSE(problem->larger_hardware.empty());
  const int64_t memory = problem->base.hardware.memory_bytes;
  CHECK(std::any_of(problem->larger_hardware.begin(), problem->larger_hardware.end(), [](const auto& o) { return o.gpu == "b300"; }));
  CHECK(std::all_of(problem->larger_hardware.begin(), problem->larger_hardware.end(),
                    [&](const auto& o) { return o.memory_bytes > memory; }));
  const Result<Plan> plan = make_plan(*problem);
  REQUIRE(plan->verdict == Verdict::kDoesNotFit);
  const std::vector<Fix> fixes = find_fixes(*problem, *plan);
  const auto index_of = [&](std::string_view flag) {
    return std::find_if(fixes.begin(), fixes.end(), [&](const Fix& fix) { return fix.flags.starts_with(flag); }) - fixes.begin();
  };
  INFO([&] {
    std::string all;
    for (const Fix& fix : fixes) all += fix.flags + "\n";
    return all;
  }());
  CHECK(index_of("--nodes") < index_of("--gpu "));
  CHECK(index_of("--gpu ") < static_cast<std::ptrdiff_t>(fixes.size()));
}

TEST_CASE("user terms: methods and settings that nobody here trains with are refused by name") {
  for (const auto& [flag, text] : Flags{{"method", "kto"}, {"method", "grpo"}, {"adapter", "dora"}}) {
    Spec spec;
    const Diagnostics said = set_flag(spec, flag, text, {"command line", 0, 0});
    INFO(flag << " " << text);
    REQUIRE(said.size() == 1);
    CHECK(said[0].code == code::kUnsupportedFeature);
    CHECK(said[0].message.find(text) != std::string::npos);
  }
  Spec spec;
  CHECK(set_flag(spec, "method", "dpo", {"command line", 0, 0}).empty());  // near misses
}
