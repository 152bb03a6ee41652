// Weights that a tool loads in bf16 and trains so, unless an engine makes masters; and the scale of adapters.
#include <catch2/catch.hpp>

#include "codegen/read/read.h"
#include "support/file_says.h"

using namespace distsetup;

namespace {

const std::string kAxolotl = "base_model: meta-llama/Llama-3.1-8B\nmicro_batch_size: 1\nsequence_len: 2048\n";
const std::string kTrl = "model_name_or_path: a/b\npacking: true\nmax_length: 2048\nbf16: true\n";

// precision.master of several files together; "": nothing says it.
std::string masters_of(const std::vector<std::pair<std::string, std::string>>& files) {
  return read_together(files).text("precision.master");
}

}  // namespace

TEST_CASE("loaded types: full fine-tuning in bf16 has no masters without an engine", "[read]") {
  CHECK(masters_of({{"a.yaml", kAxolotl + "bf16: true\n"}}) == "bf16");
  CHECK(masters_of({{"a.yaml", kAxolotl + "bf16: auto\n"}}) == "bf16");
  CHECK(masters_of({{"a.yaml", kAxolotl}}) == "bf16");  // "auto" where nothing is said
  CHECK(masters_of({{"a.yaml", kAxolotl + "bfloat16: true\n"}}) == "bf16");
  CHECK(masters_of({{"a.yaml", kAxolotl + "fp16: true\n"}}).empty());
  CHECK(masters_of({{"a.yaml", kAxolotl + "float32: true\n"}}).empty());
  CHECK(
      masters_of({{"a.yaml", kAxolotl + "bf16: true\nadapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\n"}}).empty());
  CHECK(masters_of({{"a.yaml", kAxolotl + "bf16: true\ndeepspeed: deepspeed_configs/zero2.json\n"}}).empty());
  CHECK(masters_of({{"a.yaml", kAxolotl + "bf16: true\nfsdp_config:\n  fsdp_version: 2\n  reshard_after_forward: true\n"}}).empty());
  for (const char* key : {"dtype", "torch_dtype"}) {
    CHECK(masters_of({{"a.yaml", kTrl + key + ": bfloat16\n"}}) == "bf16");
    CHECK(masters_of({{"a.yaml", kTrl + key + ": bfloat16\nuse_peft: true\nlora_r: 8\n"}}).empty());
    CHECK(masters_of({{"a.yaml", kTrl + key + ": float32\n"}}).empty());
  }
}

TEST_CASE("loaded types: an engine that another file names makes masters", "[read]") {
  const std::pair<std::string, std::string> trl = {"a.yaml", kTrl + "dtype: bfloat16\n"};
  const std::string launch = "compute_environment: LOCAL_MACHINE\nnum_machines: 1\nnum_processes: 8\nmixed_precision: bf16\n";
  CHECK(masters_of({trl, {"b.yaml", launch + "distributed_type: MULTI_GPU\n"}}) == "bf16");
  CHECK(
      masters_of(
          {trl, {"b.yaml", launch + "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n"}})
          .empty());
  CHECK(masters_of({trl, {"b.json", R"({"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}})"}}).empty());
  CHECK(masters_of({trl, {"c.sh", "accelerate launch --config_file $WHICH.yaml sft.py\n"}}).empty());
}

TEST_CASE("adapters: the root of the rank as a scale is a setting of every tool", "[read]") {
  const auto scale = [](const std::string& text) { return told_of("a.yaml", text).text("train.rslora"); };
  const std::string axolotl = kAxolotl + "adapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\n";
  CHECK(scale(axolotl + "peft_use_rslora: true\n") == "true");
  CHECK(scale(axolotl + "peft_use_rslora: false\n").empty());
  CHECK(scale(kAxolotl + "peft_use_rslora: true\n").empty());  // nothing to scale
  CHECK(scale(kTrl + "use_peft: true\nlora_r: 8\nuse_rslora: true\n") == "true");
  CHECK(scale("stage: sft\nfinetuning_type: lora\ntemplate: llama3\nuse_rslora: true\n") == "true");
  CHECK(scale("stage: sft\nfinetuning_type: full\ntemplate: llama3\nuse_rslora: true\n").empty());
  CHECK(told_of("a.sh", "swift sft --model a/b --lora_rank 8 --use_rslora true\n").text("train.rslora") == "true");
}
