// Parts of a file that is read: stages, named setups, models by name, defaults, one entry of a list; and what the user says over them.
#include <catch2/catch.hpp>

#include <algorithm>

#include "codegen/read/read.h"
#include "support/emitted.h"

using namespace distsetup;

namespace {

constexpr char kStages[] = R"(training_stages:
  stage1:
    model: {model_config_key: small}
    training: {batch_size: 8, sequence_length: 2048, learning_rate: 1e-6, gradient_checkpointing: true}
    distributed: {strategy: fsdp, num_nodes: 1, devices: 8, fsdp: {sharding_strategy: FULL_SHARD, cpu_offload: false}}
  stage2:
    training: {batch_size: 16}
    distributed: {strategy: ddp, num_nodes: 1, devices: 4}
distributed_examples:
  far: {num_nodes: 4, devices: 8, strategy: fsdp, fsdp: {cpu_offload: true, sharding_strategy: FULL_SHARD}}
model_configs:
  small: {decoder_config: {hidden_size: 64, num_hidden_layers: 3, num_attention_heads: 4, num_key_value_heads: 2, intermediate_size: 96, vocab_size: 500}}
  large: {decoder_config: {hidden_size: 128, num_hidden_layers: 6}}
global_config: {batch_size: 2, mixed_precision: bf16}
)";

Reading stages(const ReadChoices& choices) {
  const Result<std::vector<Reading>> read = read_config(embedded_templates(), kStages, "config.yaml", "", choices);
  INFO(messages(read.diagnostics));
  REQUIRE(read.ok());
  REQUIRE(read->size() == 1);
  return read->front();
}

std::string value(const Reading& reading, const std::string& field) {
  const auto it = reading.fields.find(field);
  return it == reading.fields.end() ? "" : field_text(it->second.value);
}

bool is_lost(const Reading& reading, const std::string& key) {
  return std::any_of(reading.lost.begin(), reading.lost.end(), [&key](const LostKey& one) { return one.key == key; });
}

}  // namespace

TEST_CASE("parts: the default stage with defaults of all stages below it") {
  const Reading read = stages({});
  CHECK(read.table == "training-stages/keys.yaml");
  CHECK(read.stage == "stage1");
  CHECK(read.setup.empty());
  CHECK(value(read, "micro_batch") == "8");           // over the default
  CHECK(value(read, "precision.compute") == "bf16");  // the default
  CHECK(value(read, "train.learning_rate") == "1e-06");
  CHECK(value(read, "hardware.nodes") == "1");
  CHECK(value(read, "model.num_layers") == "3");
  CHECK(value(read, "model.num_kv_heads") == "2");
  CHECK(is_lost(read, "training_stages.stage2"));
  CHECK(is_lost(read, "distributed_examples.far"));
  CHECK(is_lost(read, "model_configs.large"));
}

TEST_CASE("parts: another stage and a named setup over it") {
  const Reading second = stages({"stage2", "", {}});
  CHECK(value(second, "micro_batch") == "16");
  CHECK(value(second, "strategy.trainer") == "ddp");
  CHECK(value(second, "hardware.gpus_per_node") == "4");
  const Reading far = stages({"", "far", {}});
  CHECK(far.setup == "far");
  CHECK(value(far, "hardware.nodes") == "4");
  CHECK(value(far, "micro_batch") == "8");  // what the setup does not say stays the stage's
  CHECK(value(far, "derived.offload") == "both");
  CHECK(far.fields.find("hardware.nodes")->second.at.line == 10);
  CHECK(far.contradictions.empty());
}

TEST_CASE("parts: values of the user over a file by either path") {
  const Reading read = stages({"", "", {{"training.batch_size", "4"}, {"training_stages.stage1.training.sequence_length", "512"}}});
  CHECK(value(read, "micro_batch") == "4");
  CHECK(value(read, "train.sequence_length") == "512");
  CHECK(read.assigned.size() == 2);
  const Reading large = stages({"", "", {{"model.model_config_key", "large"}}});
  CHECK(value(large, "model.num_layers") == "6");
  CHECK(stages({"", "", {{"training.batchsize", "4"}}}).assigned.empty());
}

TEST_CASE("parts: a stage that is not there is an error with the nearest") {
  const Result<std::vector<Reading>> read = read_config(embedded_templates(), kStages, "config.yaml", "", {"stge2", "", {}});
  REQUIRE(!read.ok());
  CHECK(messages(read.diagnostics).find("no stage 'stge2'") != std::string::npos);
  CHECK(read.diagnostics.front().help.find("stage2") != std::string::npos);
}

TEST_CASE("parts: the entry of a list with the provider's type") {
  const std::string text = R"(version: "2"
providers:
  post_training:
    - {provider_type: "inline::trl", config: {max_seq_length: 2048}}
    - {provider_type: "remote::trl_fsdp", config: {max_seq_length: 4096, fsdp_config: {sharding_strategy: SHARD_GRAD_OP}, torch_run_config: {nnodes: 2, nproc_per_node: 4}}}
)";
  const Result<std::vector<Reading>> read = read_config(embedded_templates(), text, "run.yaml", "llama-stack-provider");
  REQUIRE(read.ok());
  CHECK(value(read->front(), "train.sequence_length") == "4096");
  CHECK(value(read->front(), "strategy.sharding") == "zero2");
  CHECK(value(read->front(), "hardware.nodes") == "2");
  CHECK(value(read->front(), "strategy.trainer") == "fsdp1");
  CHECK(is_lost(read->front(), "providers.post_training.0"));
  const Result<std::vector<Reading>> in_line = read_config(embedded_templates(), text, "run.yaml", "llama-stack-inline-provider");
  REQUIRE(in_line.ok());
  CHECK(value(in_line->front(), "train.sequence_length") == "2048");
  CHECK(value(in_line->front(), "strategy.trainer") == "ddp");
}

TEST_CASE("parts: an unknown key is told with the nearest of its section and a wrong value with the right ones") {
  const std::string text =
      "training: {micro_batch_sze: 2, mixed_precision: fp17}\ndistributed: {use_deepspeed: true, zero_stage: 2}\n";
  const Result<std::vector<Reading>> read = read_config(embedded_templates(), text, "config.yaml", "fine-tuning");
  REQUIRE(read.ok());
  bool is_unknown = false, is_wrong = false;
  for (const LostKey& lost : read->front().lost) {
    is_unknown = is_unknown || (lost.why == LostKey::Why::kUnknownKey && lost.key == "training.micro_batch_sze" &&
                                lost.help == "did you mean 'training.micro_batch_size'");
    is_wrong = is_wrong ||
               (lost.why == LostKey::Why::kValue && lost.key == "training.mixed_precision" &&
                lost.reason.find("bf16") == std::string::npos && lost.help.find("the key takes bf16, fp16, no") != std::string::npos);
  }
  CHECK(is_unknown);
  CHECK(is_wrong);
}

namespace {

// Of a stage with these lines of data; with a tokenizer.
std::string mixture_of(const std::string& data, const std::string& more = "") {
  const std::string text =
      "training_stages:\n  stage1:\n    model: {model_config_key: small, tokenizer_path: tok}\n"
      "    training: {batch_size: 8}\n    distributed: {strategy: ddp, num_nodes: 1, devices: 4}\n" +
      data + "model_configs:\n  small: {decoder_config: {hidden_size: 64, num_hidden_layers: 3}}\n" + more;
  const Result<std::vector<Reading>> read = read_config(embedded_templates(), text, "config.yaml", "", {});
  INFO(messages(read.diagnostics));
  REQUIRE(read.ok());
  return value(read->front(), "derived.sources");
}

}  // namespace

TEST_CASE("parts: data sets with their percentages become one list of sources") {
  const std::string sets =
      "pretraining_datasets:\n        \"org/web\": {percentage: 60.0, subset: \"10BT\"}\n"
      "        \"other/base-1.0\": {percentage: 40, subset: null}\n";
  const std::string expected = R"([{"path":"org/web","subset":"10BT","weight":60.0},{"path":"other/base-1.0","weight":40.0}])";
  CHECK(mixture_of("    data:\n      " + sets) == expected);
  CHECK(mixture_of("", "datasets:\n      " + sets) == expected);
  CHECK(mixture_of("",
                   "datasets:\n  pretraining_datasets:\n    o/s: {percentage: 30, subsets: [C, Cuda]}\n    o/t: {percentage: 70}\n") ==
        R"([{"path":"o/s","subset":"C","weight":15.0},{"path":"o/s","subset":"Cuda","weight":15.0},{"path":"o/t","weight":70.0}])");
  // One that is used whole has no percentage: then none counts.
  CHECK(mixture_of("", "datasets:\n  pretraining_datasets:\n    o/s: {use_all_available: true}\n    o/t: {percentage: 70}\n") ==
        R"([{"path":"o/s"},{"path":"o/t"}])");
  CHECK(mixture_of("    data:\n      data_path: rows.jsonl\n      " + sets) == "rows.jsonl");
}

TEST_CASE("parts: DeepSpeed's configuration as a section of a tool's own file, where there is one of them") {
  const std::string section =
      R"({"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 1.0, "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}})";
  const Result<std::vector<Reading>> one =
      read_config(embedded_templates(), R"({"model": {"name": "x"}, "data": "d", "ds_config": )" + section + "}", "a.json");
  REQUIRE(one.ok());
  REQUIRE(one->size() == 1);
  CHECK((*one)[0].fields.count("strategy.sharding") + (*one)[0].fields.count("derived.zero_stage") > 0);
  const auto is_told = [&one](std::string_view key) {
    return std::any_of((*one)[0].lost.begin(), (*one)[0].lost.end(), [key](const LostKey& lost) { return lost.key == key; });
  };
  CHECK(is_told("model"));
  CHECK(is_told("data"));
  CHECK_FALSE(read_config(embedded_templates(), R"({"actor": )" + section + R"(, "critic": )" + section + "}", "b.json").ok());
  CHECK_FALSE(
      read_config(embedded_templates(), R"({"model": "x", "mine": {"zero_optimization": true, "a": 1, "b": 2, "c": 3}})", "c.json")
          .ok());
}
