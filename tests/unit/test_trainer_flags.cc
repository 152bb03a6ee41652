// Flags of training scripts as settings: whose they are, what each becomes, which do not go together.
#include <catch2/catch.hpp>

#include "cli/commands/commands.h"
#include "cli/line/parse.h"
#include "cli/settings/trainer_flags.h"
#include "codegen/read/flag_list.h"
#include "codegen/read/merge.h"
#include "codegen/tables/fields.h"
#include "model/presets.h"
#include "support/emitted.h"

using namespace distsetup;

namespace {

struct TypedFlags {
  FlagList list;
  ReadFields fields;

  explicit TypedFlags(const std::vector<std::string>& words) {
    const Result<FlagList> read = read_flag_list(embedded_templates(), words);
    INFO(messages(read.diagnostics));
    REQUIRE(read.ok());
    list = *read;
    const Result<ReadFields> merged = merge_readings({list.reading});
    INFO(messages(merged.diagnostics));
    REQUIRE(merged.ok());
    fields = *merged;
  }

  std::string field(std::string_view name) const {
    const auto it = fields.find(name);
    return it == fields.end() ? "" : field_text(it->second.value);
  }
  std::string reason(std::string_view key) const {
    for (const LostKey& lost : list.reading.lost) {
      if (lost.key == key) return lost.reason;
    }
    return "";
  }
  std::string complaint() const {
    std::string out;
    for (const Complaint& one : list.reading.complaints)
      out += one.trainer + (one.trainer.empty() ? "" : ": ") + one.diagnostic.message + "\n";
    return out;
  }
};

Arguments plan_arguments(std::vector<std::string> behind_dashes) {
  Arguments arguments;
  arguments.command = find_command("plan");
  arguments.passed_on = std::move(behind_dashes);
  return arguments;
}

Session session_of(const std::vector<std::string>& behind_dashes) { return *open_session(plan_arguments(behind_dashes)); }

Result<Arguments> merged_line(const std::vector<std::string>& behind_dashes) {
  return with_trainer_flags(plan_arguments(behind_dashes), session_of(behind_dashes));
}

// The script's flags between what is stronger and a file.
Result<Spec> spec_of_line(const std::vector<std::string>& words, const Spec& stronger, const Spec& file) {
  const Session session = session_of(words);
  const auto says = [](const Spec& spec) { return [spec](const Spec&) { return Result<LayerSpec>(LayerSpec{spec, {}}); }; };
  return merge_layers({{"stronger", says(stronger)}, script_layer(session), {"file", says(file)}});
}

Result<Spec> spec_of(const std::vector<std::string>& words, const Spec& stronger = {}) { return spec_of_line(words, stronger, {}); }

}  // namespace

TEST_CASE("trainer flags: sizes from scratch with everything assumed that the script assumes") {
  const TypedFlags got({"--from-scratch", "--batch_size=2", "--data", "corpus", "--max-lr", "1e-3"});
  CHECK(got.list.table == "launch-scripts/keys.yaml");
  CHECK(got.list.rest == std::vector<std::string>{"--data", "corpus"});
  CHECK(got.field("model.name") == "scratch_7b_wide");
  CHECK(got.field("train.method") == "pretrain");
  CHECK(got.field("micro_batch") == "2");
  CHECK(got.field("gradient_accumulation") == "1");
  CHECK(got.field("train.sequence_length") == "2048");
  CHECK(got.field("train.steps") == "100000");
  CHECK(got.field("train.learning_rate") == "0.001");
  CHECK(got.field("train.min_learning_rate") == "3e-05");
  CHECK(got.field("train.warmup_steps") == "2000");
  CHECK(got.field("precision.compute") == "bf16");
  CHECK(got.field("checkpoint.every_steps") == "1000");
  CHECK(got.field("strategy.sharding") == "zero3");
  CHECK(got.list.reading.lost.empty());
  CHECK(got.complaint().empty());
}

TEST_CASE("trainer flags: every size of the table and any other model") {
  for (const auto& [size, name] : {std::pair{"350M", "scratch_350m_wide"},
                                   {"1B", "scratch_1b_wide"},
                                   {"3B", "scratch_3b_wide"},
                                   {"13B", "scratch_13b_wide"},
                                   {"30B", "scratch_30b_wide"},
                                   {"70B", "scratch_70b_wide"},
                                   {"some/folder", "some/folder"}}) {
    CHECK(TypedFlags({"--from-scratch", "--model-size", size}).field("model.name") == name);
  }
}

TEST_CASE("trainer flags: switches have a negative form") {
  CHECK(TypedFlags({"--from-scratch", "--no-mixed-precision"}).field("precision.compute") == "fp32");
  CHECK(TypedFlags({"--from-scratch", "--mixed_precision", "false"}).field("precision.compute") == "fp32");
  CHECK(TypedFlags({"--from-scratch", "--mixed-precision"}).field("precision.compute") == "bf16");
  CHECK(TypedFlags({"--from-scratch", "--use-flash-attn"}).list.reading.lost.empty());
  CHECK(contains(TypedFlags({"--from-scratch", "--no-use-flash-attn"}).reason("use-flash-attn"), "never holds the scores"));
}

TEST_CASE("trainer flags: epochs of micro-batches end a run where they are given") {
  CHECK(TypedFlags({"--from-scratch", "--max-steps", "300"}).field("train.steps") == "300");
  CHECK(TypedFlags({"--from-scratch", "--num-epochs", "3"}).field("train.steps") == "3000");
  CHECK(TypedFlags({"--from-scratch", "--steps-per-epoch", "50", "--grad-accum-steps", "4"}).field("train.steps") == "12");
  CHECK(TypedFlags({"--from-scratch", "--num-epochs", "3", "--max-steps", "200"}).field("train.steps") == "200");
  CHECK(TypedFlags({"--from-scratch", "--num-epochs", "2", "--warmup-steps", "5"}).field("train.warmup_steps") == "5");
  // A warm-up of 2000 that nobody asked for would not end.
  CHECK(TypedFlags({"--from-scratch", "--max-steps", "300"}).field("train.warmup_steps").empty());
}

TEST_CASE("trainer flags: what the script assumes gives way to what a run says") {
  Spec stronger;
  REQUIRE(set(stronger, "train.steps", "40", {"command line"}).empty());
  REQUIRE(set(stronger, "train.learning_rate", "1e-5", {"command line"}).empty());
  const Result<Spec> spec = spec_of({"--from-scratch", "--model-size", "1B"}, stronger);
  REQUIRE(spec.ok());
  CHECK(spec->integer("train.steps") == 40);
  CHECK_FALSE(spec->integer("train.warmup_steps").has_value());
  CHECK_FALSE(spec->number("train.min_learning_rate").has_value());
  CHECK(spec->integer("train.sequence_length") == 2048);
}

TEST_CASE("trainer flags: they are over the files and below all else") {
  Spec file, stronger;
  REQUIRE(set(file, "parallel.micro_batch", "16", {"run.yaml"}).empty());
  REQUIRE(set(file, "train.sequence_length", "512", {"run.yaml"}).empty());
  REQUIRE(set(stronger, "train.steps", "40", {"DISTSETUP_STEPS"}).empty());
  const Result<Spec> spec = spec_of_line({"--from-scratch", "--batch-size", "2", "--max-steps", "7"}, stronger, file);
  REQUIRE(spec.ok());
  CHECK(spec->integer("parallel.micro_batch") == 2);            // typed, over the file
  CHECK(spec->integer("train.sequence_length") == 512);         // the file, over what the script assumes
  CHECK(spec->integer("train.steps") == 40);                    // over what is typed
  CHECK(spec->integer("parallel.gradient_accumulation") == 1);  // assumed
}

TEST_CASE("trainer flags: a script shards over all ranks and has no other axis") {
  const TypedFlags scratch({"--from-scratch"});
  for (const char* axis : {"mesh.dp_replicate", "mesh.pp", "mesh.cp", "mesh.tp"}) CHECK(scratch.field(axis) == "1");
  const TypedFlags fsdp({"--backend", "fsdp2", "--ring_attn_size", "2", "--packing_samples"});
  CHECK(fsdp.field("mesh.cp") == "2");
  for (const char* axis : {"mesh.dp_replicate", "mesh.pp", "mesh.tp"}) CHECK(fsdp.field(axis) == "1");
  CHECK(fsdp.field("strategy.reshard_after_forward") == "true");
  CHECK(TypedFlags({"--backend", "deepspeed", "--ds_tensor_parallel_size", "4"}).field("mesh.tp") == "4");
  CHECK(TypedFlags({"--backend", "deepspeed", "--zero_stage", "3", "--zpg", "8"}).field("strategy.hpz") == "8");
  CHECK(contains(TypedFlags({"--backend", "fsdp2", "--zpg", "8"}).reason("zpg"), "deepspeed only"));
  // ... unless the run says otherwise: then the mesh is that of its sharding.
  for (const char* sharding : {"ddp", "hybrid_shard"}) {
    Spec stronger;
    REQUIRE(set(stronger, "parallel.sharding", sharding, {"command line"}).empty());
    const Result<Spec> spec = spec_of({"--from-scratch"}, stronger);
    REQUIRE(spec.ok());
    CHECK(spec->find("parallel.dp_replicate") == nullptr);
  }
}

TEST_CASE("trainer flags: every argument of the branch with FSDP2 is taken or refused by name") {
  const TemplateSet templates = embedded_templates();
  const std::string* names = find_file(templates, "_lint/names/openrlhf-fsdp2.yaml");
  REQUIRE(names != nullptr);
  size_t num_names = 0;
  for (size_t at = names->find("--"); at != std::string::npos; at = names->find("--", at + 2)) {
    const std::string entry = names->substr(at, names->find_first_of(" \n", at) - at);
    const size_t colon = entry.find(':');
    REQUIRE(colon != std::string::npos);
    const std::string flag = entry.substr(0, colon), takes = entry.substr(colon + 1);
    if (flag == "--help") continue;
    ++num_names;
    std::vector<std::string> words = {"--micro_train_batch_size", "2", flag};
    const size_t bar = takes.find('|');
    if (bar != std::string::npos) words.push_back(takes.substr(0, bar));
    if (takes == "int") words.emplace_back("2");
    if (takes.compare(0, 6, "number") == 0) words.emplace_back("0.5");
    if (takes.back() == '*') words.emplace_back("0.5");
    if (takes.compare(0, 4, "text") == 0) words.emplace_back(flag == "--grad_accum_dtype" ? "fp32" : "User: {}");
    INFO(entry);
    const TypedFlags got(words);
    CHECK(got.list.table == "openrlhf-flags/keys.yaml");
    CHECK(got.list.rest.empty());
    for (const LostKey& lost : got.list.reading.lost) CHECK(lost.why == LostKey::Why::kNotSupported);
  }
  CHECK(num_names > 65);
}

TEST_CASE("trainer flags: names of the later branch mean FSDP2 without saying so") {
  const TypedFlags got({"--model_name_or_path", "llama3_8b", "--fsdp2_cp_size", "2", "--packing_samples", "--ckpt_save_path", "out",
                        "--max_checkpoints_to_keep", "5", "--fsdp2_cpu_offload"});
  CHECK(got.field("strategy.trainer") == "fsdp2");
  CHECK(got.field("strategy.sharding") == "zero3");
  CHECK(got.field("mesh.cp") == "2");
  CHECK(got.field("mesh.tp") == "1");
  CHECK(got.field("model.hub_id") == "llama3_8b");
  CHECK(got.field("checkpoint.directory") == "out");
  CHECK(got.field("checkpoint.keep") == "5");
  CHECK(got.field("offload.parameters") == "host");
  CHECK(TypedFlags({"--fsdp2_tp_size", "4"}).field("mesh.tp") == "4");
  CHECK(contains(TypedFlags({"--model_name_or_path", "x", "--zero_stage", "1"}).reason("zero_stage"), "deepspeed only"));
}

TEST_CASE("trainer flags: the end of the cosine that nobody typed lies below its peak") {
  CHECK(TypedFlags({"--from-scratch", "--max-lr", "2e-5"}).field("train.min_learning_rate").empty());
  CHECK(TypedFlags({"--from-scratch", "--max-lr", "2e-4"}).field("train.min_learning_rate") == "3e-05");
  CHECK(TypedFlags({"--from-scratch", "--max-lr", "2e-5", "--min-lr", "3e-5"}).field("train.min_learning_rate") == "3e-05");
}

TEST_CASE("trainer flags: --mode basic is a small model on random tokens") {
  const TypedFlags got({"--mode", "basic", "--hidden_size", "64"});
  CHECK(got.field("derived.synthetic") == "1200");
  CHECK(got.field("derived.held_out") == "6");
  CHECK(got.field("derived.data_epochs") == "3");
  CHECK(got.field("model.hidden") == "64");
  CHECK(got.field("model.vocabulary") == "1000");
  CHECK(got.field("train.sequence_length") == "128");
  CHECK(TypedFlags({"--mode", "basic", "--max_length", "32"}).field("train.sequence_length") == "32");
  const TypedFlags other({"--mode", "production", "--hidden_size", "64"});
  CHECK(other.field("model.hidden").empty());
  CHECK(contains(other.reason("hidden_size"), "the size of a model without a config.yaml"));
}

TEST_CASE("trainer flags: stage, setup and model of a config.yaml are for that file") {
  const TypedFlags got({"--mode", "production", "--stage", "stage2", "--fsdp-config", "multi_node_fsdp", "--model_config",
                        "model_config_1.7B", "--devices", "8", "--precision", "16-mixed"});
  CHECK(got.list.table == "training-stages-flags/keys.yaml");
  CHECK(got.list.reading.chosen.stage == "stage2");
  CHECK(got.list.reading.chosen.setup == "multi_node_fsdp");
  CHECK(got.list.reading.chosen.assignments ==
        std::vector<std::pair<std::string, std::string>>{{"model.model_config_key", "model_config_1.7B"}});
  CHECK(got.field("hardware.gpus_per_node") == "8");
  CHECK(got.field("precision.compute") == "fp16");
  CHECK(contains(got.reason("mode"), "where data come from"));
  const Result<Arguments> with = merged_line({"--mode", "production", "--stage", "stage2", "--model_config", "m"});
  REQUIRE(with.ok());
  CHECK(with->text("stage") == "stage2");
  CHECK(with->text("set") == "model.model_config_key=m");
  CHECK_FALSE(merged_line({"--backend", "fsdp2", "..."}).ok());
}

TEST_CASE("trainer flags: a vocabulary of one's own on a size of the table") {
  const Result<Spec> spec = spec_of({"--from-scratch", "--model-size", "1B", "--vocab-size", "50257"});
  REQUIRE(spec.ok());
  REQUIRE(spec->model.has_value());
  const Result<Geometry> model = model_over_base(*load_presets(), *spec->model);
  REQUIRE(model.ok());
  CHECK(model->vocabulary == 50257);
  CHECK(model->hidden == 2048);
  CHECK(model->name == "scratch_1b_wide");
}

TEST_CASE("trainer flags: a published model is named for its weights") {
  const TypedFlags got({"--hf-model", "meta-llama/Llama-2-7b-hf"});
  CHECK(got.field("model.name") == "meta-llama/Llama-2-7b-hf");
  CHECK(contains(got.complaint(), "native: training starts from the weights of 'meta-llama/Llama-2-7b-hf'"));
  Spec native;
  REQUIRE(set(native, "trainer.name", "native", {"command line"}).empty());
  const Result<Spec> spec = spec_of({"--hf-model", "meta-llama/Llama-2-7b-hf"}, native);
  REQUIRE(spec.ok());
  CHECK(spec->text("train.init") == "weights");
  REQUIRE(set(native, "train.init", "random", {"command line"}).empty());
  const Result<Spec> random = spec_of({"--hf-model", "meta-llama/Llama-2-7b-hf"}, native);
  REQUIRE(random.ok());
  CHECK(random->text("train.init") == "random");
  const Result<Spec> others = spec_of({"--hf-model", "meta-llama/Llama-2-7b-hf"});
  REQUIRE(others.ok());
  CHECK_FALSE(others->text("train.init").has_value());
}

TEST_CASE("trainer flags: an engine by name and its own flags") {
  const TypedFlags zero({"--backend", "deepspeed", "--zero_stage", "3", "--pretrain", "llama3_8b", "--adam_offload", "--adam_betas",
                         "0.8", "0.9", "--lr_warmup_ratio", "0.1", "--steps", "50"});
  CHECK(zero.list.table == "openrlhf-flags/keys.yaml");
  CHECK(zero.field("strategy.trainer") == "deepspeed");
  CHECK(zero.field("strategy.sharding") == "zero3");
  CHECK(zero.field("offload.optimizer") == "host");
  CHECK(zero.field("offload.parameters") != "host");
  CHECK(zero.field("train.beta1") == "0.8");
  CHECK(zero.field("train.beta2") == "0.9");
  CHECK(zero.field("train.warmup_steps") == "5");
  CHECK(zero.field("train.global_batch") == "128");
  CHECK(zero.field("micro_batch") == "8");
  CHECK(zero.field("train.method") == "sft");
  CHECK(zero.field("train.seed") == "42");
  CHECK(zero.list.reading.lost.empty());
  const TypedFlags fsdp({"--backend", "fsdp2", "--fsdp_tensor_parallel_size", "2", "--ring_attn_size", "2", "--packing_samples",
                         "--zero_stage", "3", "--max_samples", "1000", "--max_epochs", "3", "--train_batch_size", "64"});
  CHECK(fsdp.field("strategy.trainer") == "fsdp2");
  CHECK(fsdp.field("strategy.sharding") == "zero3");
  CHECK(fsdp.field("mesh.tp") == "2");
  CHECK(fsdp.field("mesh.cp") == "2");
  CHECK(fsdp.field("strategy.sequence_parallel") == "false");
  CHECK(fsdp.field("train.steps") == "46");
  CHECK(contains(fsdp.reason("zero_stage"), "--backend deepspeed only"));
  CHECK(TypedFlags({"--backend", "fsdp2", "--lr_warmup_ratio", "0.1"}).field("derived.warmup_ratio") == "0.1");
}

TEST_CASE("trainer flags: what does not go together is told with its values") {
  const auto complains = [](std::vector<std::string> words, std::string_view part) {
    words.insert(words.begin(), {"--backend", "fsdp2"});
    const std::string said = TypedFlags(words).complaint();
    INFO(said);
    return contains(said, part);
  };
  CHECK(complains({"--ring_attn_size", "2"}, "'--ring_attn_size 2' without --packing_samples"));
  CHECK_FALSE(complains({"--ring_attn_size", "1"}, "packing"));
  CHECK_FALSE(complains({"--ring_attn_size", "2", "--packing_samples"}, "packing"));
  CHECK(complains({"--ring_attn_size", "2", "--packing_samples", "--attn_implementation", "eager"}, "needs flash attention"));
  CHECK(complains({"--multiturn"}, "without --apply_chat_template"));
  CHECK_FALSE(complains({"--multiturn", "--apply_chat_template"}, "template"));
  CHECK(complains({"--input_template", "no place"}, "has no place for the input"));
  CHECK_FALSE(complains({"--input_template", "User: {}"}, "place"));
  CHECK(complains({"--input_template", "User: {}\\n"}, "no end of line"));
  CHECK(complains({"--load_in_4bit", "--param_dtype", "fp16"}, "'--load_in_4bit' needs --param_dtype bf16, found fp16"));
  CHECK_FALSE(complains({"--load_in_4bit"}, "bf16"));
  CHECK(complains({"--fsdp2_tp_loss_parallel"}, "splits the loss"));
  CHECK_FALSE(complains({"--fsdp2_tp_loss_parallel", "--fsdp2_tp_size", "2"}, "splits the loss"));
  CHECK(complains({"--fsdp2_tp_sequence_parallel", "--fsdp2_tp_size", "2"}, "packed rows"));
  CHECK(complains({"--sequence_parallel"}, "has no effect"));
  CHECK_FALSE(complains({"--sequence_parallel", "--fsdp_tensor_parallel_size", "2"}, "no effect"));
}

TEST_CASE("trainer flags: those of a run are none of a script's") {
  const TypedFlags got({"run.yaml", "--steps", "5", "--gpu", "cpu"});
  CHECK(got.list.table.empty());
  CHECK(got.list.rest == std::vector<std::string>{"run.yaml", "--steps", "5", "--gpu", "cpu"});
  const Result<Arguments> merged = merged_line({"run.yaml", "--steps", "5"});
  REQUIRE(merged.ok());
  CHECK(merged->positionals == std::vector<std::string>{"run.yaml"});
  REQUIRE(merged->run_flags.size() == 1);
  CHECK(merged->run_flags[0].spelling == "steps");
}

TEST_CASE("trainer flags: unknown ones and values that are none are errors") {
  const Result<Arguments> merged = merged_line({"--from-scratch", "--bach-size", "4"});
  REQUIRE_FALSE(merged.ok());
  CHECK(contains(merged.diagnostics[0].message, "unknown flag '--bach-size'"));
  CHECK(merged.diagnostics[0].help == "did you mean '--batch-size'");
  // What becomes of the plan is said in front of the dashes.
  CHECK_FALSE(merged_line({"--from-scratch", "--output", "x"}).ok());
  const Result<Spec> value = spec_of({"--from-scratch", "--mixed-precision", "maybe"});
  REQUIRE_FALSE(value.ok());
  CHECK(contains(messages(value.diagnostics), "'--mixed-precision' is 'maybe', expected one of true, false, bf16, fp16, no"));
  const Result<Spec> number = spec_of({"--from-scratch", "--batch-size", "many"});
  REQUIRE_FALSE(number.ok());
  CHECK(contains(messages(number.diagnostics), "'--batch-size' is 'many', expected a whole number"));
}

TEST_CASE("trainer flags: a model said twice is an error before anything else") {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--from-scratch", "--hf-model", "x"},
                                                {"--hf-model", "x", "--model-size", "1B"},
                                                {"--hf-model", "x", "--vocab-size", "32000"}}) {
    const Result<Spec> spec = spec_of(words);
    REQUIRE_FALSE(spec.ok());
    CHECK(spec.diagnostics.size() == 1);
    CHECK(contains(spec.diagnostics[0].message, "'--hf-model x'"));
  }
}
