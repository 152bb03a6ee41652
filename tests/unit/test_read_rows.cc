// What rows of `reads` say beyond a key and its field: null, kinds of values, other keys of the file; and parts of the steps.
#include <catch2/catch.hpp>

#include "codegen/read/read.h"

using namespace distsetup;

namespace {

struct ReadText {
  ReadText(std::string_view text, const std::string& table) {
    Result<std::vector<Reading>> read = read_config(embedded_templates(), text, "file.yaml", table);
    REQUIRE(read.ok());
    REQUIRE(read->size() == 1);
    reading = std::move(read->front());
    if (Result<ReadFields> merged = merge_readings({reading}); merged.ok()) {
      fields = std::move(*merged);
    } else {
      conflict = merged.diagnostics.front().message;
    }
  }
  std::string field(const std::string& name) const {
    const auto it = fields.find(name);
    return it == fields.end() ? "" : field_text(it->second.value);
  }
  const LostKey& lost(const std::string& key) const {
    static const LostKey kNone;
    for (const LostKey& one : reading.lost) {
      if (one.key == key) return one;
    }
    return kNone;
  }
  bool is_wrong(const std::string& key, std::string_view said) const {
    return lost(key).why == LostKey::Why::kValue && (lost(key).reason + "; " + lost(key).help).find(said) != std::string::npos;
  }

  Reading reading;
  ReadFields fields;
  std::string conflict;
};

ReadText provider(const std::string& lines) { return {lines, "llama-stack-provider"}; }
ReadText tuning(const std::string& lines) { return {lines, "fine-tuning"}; }

}  // namespace

TEST_CASE("rows: null is a value where the table says so and no value elsewhere") {
  const ReadText null = provider("fsdp_config: {sharding_strategy: FULL_SHARD, mixed_precision_policy: null}\n");
  CHECK(null.field("precision.compute") == "fp32");
  CHECK(null.reading.lost.empty());
  CHECK(provider("fsdp_config: {sharding_strategy: FULL_SHARD}\n").field("precision.compute").empty());
  const ReadText other = provider("fsdp_config: {sharding_strategy: FULL_SHARD, cpu_offload: null}\nmax_seq_length: null\n");
  CHECK(other.field("derived.offload").empty());
  CHECK(other.field("train.sequence_length").empty());
  CHECK(other.reading.lost.empty());
}

TEST_CASE("rows: a provider's config alone trains by preferences") {
  CHECK(provider("fsdp_config: {sharding_strategy: FULL_SHARD}\n").field("train.method") == "dpo");
}

TEST_CASE("rows: of two recompute keys the provider reads one and both as defaults are no mistake") {
  const ReadText defaults = provider("gradient_checkpointing: true\nactivation_checkpointing: selective\n");
  CHECK(defaults.conflict.empty());
  CHECK(defaults.field("recompute.policy") == "full");
  CHECK(defaults.lost("activation_checkpointing").reason.find("gradient_checkpointing") != std::string::npos);
  CHECK(provider("activation_checkpointing: selective\nmax_seq_length: 64\n").field("recompute.policy") == "selective");
  CHECK_FALSE(provider("gradient_checkpointing: true\nactivation_checkpointing: none\n").conflict.empty());
  CHECK_FALSE(provider("gradient_checkpointing: false\nactivation_checkpointing: full\n").conflict.empty());
}

TEST_CASE("rows: a key that no plan holds still takes no other value than its own") {
  const ReadText wrong = provider(
      "fsdp_config: {sharding_strategy: HYBRD_SHARD, limit_all_gathers: maybe}\ntorch_run_config: {nnodes: two}\n"
      "checkpoint_format: pickle\nlogging_steps: ten\ncuda_devices: [a]\ndpo_beta: low\n");
  CHECK(wrong.is_wrong("fsdp_config.sharding_strategy", "did you mean 'HYBRID_SHARD'"));
  CHECK(wrong.is_wrong("fsdp_config.limit_all_gathers", "expected true or false"));
  CHECK(wrong.is_wrong("torch_run_config.nnodes", "expected a whole number"));
  CHECK(wrong.is_wrong("checkpoint_format", "the key takes fsdp, huggingface"));
  CHECK(wrong.is_wrong("logging_steps", "expected a whole number"));
  CHECK(wrong.is_wrong("cuda_devices", "expected a list of whole numbers"));
  CHECK(wrong.is_wrong("dpo_beta", "expected a number"));
  const ReadText right = provider("checkpoint_format: fsdp\nlogging_steps: 10\ncuda_devices: [0, 1]\ndpo_beta: 0.1\n");
  CHECK(right.reading.lost.size() == 4);
  for (const LostKey& one : right.reading.lost) CHECK(one.why == LostKey::Why::kNotSupported);
}

TEST_CASE("rows: adapters are on a quantized model only when the file says so") {
  const std::string quantization = "  quantization: {bits: 4, bnb_4bit_quant_type: nf4, bnb_4bit_use_double_quant: true}\n";
  const ReadText lora = tuning("model: {load_in_4bit: false}\nfine_tuning:\n  method: lora\n" + quantization);
  CHECK(lora.field("train.finetune") == "lora");
  CHECK(lora.lost("fine_tuning.quantization.bits").reason.find("nothing is quantized") != std::string::npos);
  CHECK(tuning("fine_tuning:\n  method: lora\n" + quantization).field("train.finetune") == "lora");
  CHECK(tuning("model: {load_in_4bit: true}\nfine_tuning:\n  method: lora\n" + quantization).field("train.finetune") == "qlora");
  CHECK(tuning("fine_tuning:\n  method: qlora\n" + quantization).field("train.finetune") == "qlora");
}

TEST_CASE("rows: one engine or none") {
  const ReadText both = tuning("model: {base_model: m}\ndistributed: {use_deepspeed: true, use_fsdp: true}\n");
  REQUIRE(both.reading.complaints.size() == 1);
  CHECK(both.reading.complaints[0].diagnostic.message.find("one engine") != std::string::npos);
  CHECK(tuning("model: {base_model: m}\n").field("strategy.trainer") == "ddp");
  CHECK(tuning("model: {base_model: m}\ndistributed: {use_fsdp: true}\n").field("strategy.trainer") == "fsdp1");
}

TEST_CASE("rows: a warm-up that is a part of the steps") {
  const ReadText counted = tuning("training: {warmup_ratio: 0.03, max_steps: 1000, epochs: 3}\n");
  CHECK(counted.field("train.warmup_steps") == "30");
  CHECK(counted.field("derived.warmup_ratio").empty());
  CHECK(tuning("training: {warmup_ratio: 0.03, max_steps: 1001}\n").field("train.warmup_steps") == "31");  // rounded up
  CHECK(tuning("training: {warmup_ratio: 0.1, max_steps: 30}\n").field("train.warmup_steps") == "3");
  const ReadText open = tuning("training: {warmup_ratio: 0.03, epochs: 3}\n");
  const ReadSettings settings = settings_of(open.fields);
  const auto is_ratio = [](const ReadSetting& one) { return one.path == "train.warmup_ratio" && one.text == "0.03"; };
  CHECK(std::any_of(settings.settings.begin(), settings.settings.end(), is_ratio));
  CHECK(open.lost("training.warmup_ratio").key.empty());
}

TEST_CASE("rows: a file that a file names is told as one") {
  const ReadText named = tuning("distributed: {use_deepspeed: true, deepspeed_config: config/ds.json}\n");
  CHECK(named.lost("distributed.deepspeed_config").is_file);
  const ReadText idle = tuning("distributed: {use_fsdp: true, deepspeed_config: config/ds.json}\n");
  CHECK_FALSE(idle.lost("distributed.deepspeed_config").is_file);
}
