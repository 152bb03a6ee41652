// The fifteen rules of the fine-tuning trainers, one test each, and ours. Each failing case is one change away from a case that
// passes.
#include <catch2/catch.hpp>

#include "base/diagnostic_codes.h"
#include "model/parallel_rules.h"
#include "model/presets.h"
#include "support/presets.h"

namespace distsetup {
namespace {

Geometry preset(const std::string& name) {
  const Result<Geometry> geometry = find_model(presets(), name);
  REQUIRE(geometry.ok());
  return *geometry;
}

ParallelSizes eight_gpus() {
  ParallelSizes sizes;
  sizes.world = 8;
  sizes.gpus_per_node = 8;
  sizes.cp = 2;
  sizes.tp = 2;
  sizes.sequence_length = 4096;
  return sizes;
}

// The one error there is; its code and message are compared.
void check_one(const Diagnostics& diagnostics, const char* expected_code, const std::string& expected_message) {
  INFO(format_diagnostics(diagnostics));
  REQUIRE(diagnostics.size() == 1);
  CHECK(diagnostics[0].code == expected_code);
  CHECK(diagnostics[0].message == expected_message);
}

void check_passes(const Geometry& geometry, const ParallelSizes& sizes) {
  const Diagnostics diagnostics = check_parallel(geometry, sizes);
  INFO(format_diagnostics(diagnostics));
  CHECK(diagnostics.empty());
}

}  // namespace

TEST_CASE("003-V1 world divisible by cp times tp") {
  const Geometry model = preset("llama3_8b");
  ParallelSizes sizes = eight_gpus();
  check_passes(model, sizes);  // 8 = 2 × 2 × 2
  sizes.cp = 3;
  sizes.tp = 1;
  sizes.sequence_length = 0;
  check_one(check_parallel(model, sizes), code::kMeshInvalid, "8 GPUs are not divisible by cp 3 × tp 1 = 3");
  sizes.world = 6;
  sizes.cp = 1;
  sizes.tp = 4;
  const Diagnostics six = check_parallel(model, sizes);
  check_one(six, code::kMeshInvalid, "6 GPUs are not divisible by cp 1 × tp 4 = 4");
  CHECK(six[0].help == "use 4 or 8 GPUs, or other cp, tp");
  sizes = eight_gpus();
  sizes.dp = 4;
  check_one(check_parallel(model, sizes), code::kMeshInvalid, "dp 4 × cp 2 × tp 2 = 16, expected 8 GPUs");
}

TEST_CASE("003-V2 at least one data-parallel rank") {
  const Geometry model = preset("llama3_8b");
  ParallelSizes sizes = eight_gpus();
  sizes.tp = 8;
  check_one(check_parallel(model, sizes), code::kMeshInvalid,
            "8 GPUs leave no data-parallel rank: cp 2 × tp 8 needs at least 16, so dp would be 0");
  sizes.world = 16;
  check_passes(model, sizes);
}

TEST_CASE("003-V3 accumulation of at least one") {
  const Geometry model = preset("llama3_8b");
  ParallelSizes sizes = eight_gpus();
  sizes.cp = sizes.tp = 1;
  sizes.micro_batch = 2;
  sizes.global_batch = 15;
  check_one(check_parallel(model, sizes), code::kBatchIndivisible,
            "global batch 15 is below micro-batch 2 × dp 8 = 16: accumulation would be 0");
  sizes.global_batch = 16;
  check_passes(model, sizes);
}

TEST_CASE("003-V4 attention heads divisible by tp") {
  const Geometry qwen = preset("qwen2.5_0.5b");  // 14 heads, 2 kv heads
  ParallelSizes sizes = eight_gpus();
  check_passes(qwen, sizes);
  Geometry fourteen = qwen;
  fourteen.num_kv_heads = 14;
  fourteen.vocabulary = 151936;
  sizes.tp = 4;
  const Diagnostics diagnostics = check_parallel(fourteen, sizes);
  REQUIRE(diagnostics.size() == 2);  // heads, and as many kv heads
  CHECK(diagnostics[0].message == "14 attention heads are not divisible by tp 4");
  CHECK(diagnostics[0].help == "tp can be 1, 2, 7, 14");
}

TEST_CASE("003-V5 kv heads divisible by tp") {
  Geometry model = preset("llama3_8b");  // 32 heads, 8 kv heads
  ParallelSizes sizes = eight_gpus();
  sizes.world = 16;
  sizes.cp = 1;
  sizes.tp = 16;
  sizes.tp_across_nodes = true;
  check_one(check_parallel(model, sizes), code::kIndivisible, "8 kv heads are not divisible by tp 16");
  sizes.tp = 8;
  check_passes(model, sizes);
}

TEST_CASE("003-V6 ring attention needs packing") {
  const Geometry model = preset("llama3_8b");
  ParallelSizes sizes = eight_gpus();
  sizes.packing = false;
  check_one(check_parallel(model, sizes), code::kConflict, "cp 2 with ring attention needs packed sequences, and packing is off");
  sizes.cp = 1;
  check_passes(model, sizes);
}

TEST_CASE("003-V7 multiturn needs a chat template") {
  TextTemplates templates;
  templates.multiturn = true;
  check_one(check_templates(templates), code::kConflict, "multiturn needs a chat template, and chat_template is off");
  templates.chat_template = true;
  CHECK(check_templates(templates).empty());
}

TEST_CASE("003-V8 input template has a placeholder") {
  TextTemplates templates;
  templates.input_template = "User: ";
  check_one(check_templates(templates), code::kConflict, "input_template 'User: ' has 0 placeholders, expected one {}");
  templates.input_template = "User: {}\nAssistant: ";
  CHECK(check_templates(templates).empty());
}

TEST_CASE("003-V9 a literal backslash-n is warned about") {
  TextTemplates templates;
  templates.input_template = "User: {}\\nAssistant: ";
  const Diagnostics diagnostics = check_templates(templates);
  check_one(diagnostics, code::kAmbiguousSpelling, "input_template has a backslash and an n at character 9, not a line break");
  CHECK(diagnostics[0].severity == Severity::kWarning);
}

TEST_CASE("003-V10 4-bit weights need bf16") {
  const Geometry model = preset("llama3_8b");
  ParallelSizes sizes = eight_gpus();
  sizes.four_bit = true;
  check_passes(model, sizes);
  sizes.compute_dtype = "fp16";
  check_one(check_parallel(model, sizes), code::kConflict, "4-bit weights need bf16 compute, found 'fp16'");
}

TEST_CASE("003-V11 deepspeed tensor parallelism needs 0.16.4 and bf16") {
  const Geometry model = preset("llama3_8b");
  ParallelSizes sizes = eight_gpus();
  sizes.engine = "deepspeed";
  for (const char* version : {"0.16.4", "0.17.0", "1.0", ""}) {
    sizes.engine_version = version;
    check_passes(model, sizes);
  }
  sizes.engine_version = "0.16.3";
  check_one(check_parallel(model, sizes), code::kConflict, "tp 2 with deepspeed needs version 0.16.4 or newer, found '0.16.3'");
  sizes.engine_version = "0.16.4";
  sizes.compute_dtype = "fp16";
  check_one(check_parallel(model, sizes), code::kConflict, "tp 2 with deepspeed needs bf16 compute, found 'fp16'");
  sizes.engine = "fsdp2";
  check_passes(model, sizes);
}

TEST_CASE("003-V12 unknown dtype") {
  const Geometry model = preset("llama3_8b");
  ParallelSizes sizes = eight_gpus();
  sizes.compute_dtype = "bf61";
  const Diagnostics diagnostics = check_parallel(model, sizes);
  check_one(diagnostics, code::kUnknownValue, "compute is 'bf61', expected one of bf16, fp16, fp32");
}

TEST_CASE("003-V13 global batch is micro-batch times dp times accumulation exactly") {
  const Geometry model = preset("llama3_8b");
  ParallelSizes sizes = eight_gpus();
  sizes.cp = sizes.tp = 1;
  sizes.micro_batch = 3;
  sizes.global_batch = 100;
  const Diagnostics diagnostics = check_parallel(model, sizes);
  check_one(diagnostics, code::kBatchIndivisible,
            "global batch 100 is not divisible by micro-batch 3 × dp 8 = 24: accumulation 4 would train 96 sequences");
  CHECK(diagnostics[0].help == "use a global batch of 96 or 120");
  sizes.micro_batch = 2;
  sizes.global_batch = 128;
  sizes.accumulation = 8;
  check_passes(model, sizes);
  sizes.accumulation = 4;
  check_one(check_parallel(model, sizes), code::kBatchIndivisible,
            "micro-batch 2 × dp 8 × accumulation 4 = 64, expected the global batch 128");
  sizes.tp = 2;  // halves dp: 16 steps
  sizes.accumulation = 16;
  check_passes(model, sizes);
}

TEST_CASE("003-V14 loss parallel needs tp above one") {
  const Geometry model = preset("llama3_8b");
  ParallelSizes sizes = eight_gpus();
  sizes.loss_parallel = true;
  check_passes(model, sizes);
  sizes.tp = 1;
  check_one(check_parallel(model, sizes), code::kConflict, "loss_parallel splits the vocabulary over tp, and tp is 1");
}

TEST_CASE("003-V15 sequence parallel needs tp above one and packing") {
  const Geometry model = preset("llama3_8b");
  ParallelSizes sizes = eight_gpus();
  sizes.cp = 1;
  sizes.sequence_parallel = true;
  check_passes(model, sizes);
  sizes.packing = false;
  check_one(check_parallel(model, sizes), code::kConflict, "sequence_parallel over tp 2 needs packed sequences, and packing is off");
  sizes.packing = true;
  sizes.tp = 1;
  check_one(check_parallel(model, sizes), code::kConflict, "sequence_parallel splits activations over tp, and tp is 1");
}

TEST_CASE("parallel: offload and sleep exclude each other") {
  ParallelSizes sizes = eight_gpus();
  sizes.offload = true;
  check_passes(preset("llama3_8b"), sizes);
  sizes.sleep = true;
  check_one(check_parallel(preset("llama3_8b"), sizes), code::kConflict,
            "offload and sleep both move optimizer states to the host, expected at most one");
}

TEST_CASE("parallel: ring head stride divides the kv heads of a rank") {
  const Geometry model = preset("llama3_8b");
  ParallelSizes sizes = eight_gpus();
  sizes.ring_head_stride = 2;
  check_passes(model, sizes);
  sizes.ring_head_stride = 3;
  check_one(check_parallel(model, sizes), code::kIndivisible, "ring_head_stride 3 does not divide 4 kv heads of a rank");
}

TEST_CASE("parallel: all_to_all splits heads over cp") {
  const Geometry model = preset("llama3_8b");
  ParallelSizes sizes = eight_gpus();
  sizes.cp_method = "all_to_all";
  check_passes(model, sizes);
  sizes.cp = 8;
  sizes.world = 16;
  check_one(check_parallel(model, sizes), code::kIndivisible,
            "16 heads and 4 kv heads of a rank are not divisible by cp 8, as all_to_all needs");
  sizes.cp_method = "rink";
  check_one(check_parallel(model, sizes), code::kUnknownValue, "cp_method is 'rink', expected one of ring, all_to_all");
}

TEST_CASE("parallel: vocabulary divisible by tp unless padded") {
  Geometry model = preset("gpt2_xl");  // vocabulary 50257, 25 heads
  model.num_heads = model.num_kv_heads = 20;
  ParallelSizes sizes = eight_gpus();
  const Diagnostics diagnostics = check_parallel(model, sizes);
  check_one(diagnostics, code::kIndivisible, "vocabulary 50,257 is not divisible by tp 2");
  CHECK(diagnostics[0].help == "pad the vocabulary to 50,258");
  sizes.vocabulary_padded = true;
  check_passes(model, sizes);
}

TEST_CASE("parallel: sequence divisible by cp times tp") {
  const Geometry model = preset("llama3_8b");
  ParallelSizes sizes = eight_gpus();
  sizes.sequence_length = 4094;
  const Diagnostics diagnostics = check_parallel(model, sizes);
  check_one(diagnostics, code::kIndivisible, "sequence length 4094 is not divisible by cp 2 × tp 2 = 4");
  CHECK(diagnostics[0].help == "use a sequence length of 4096");
}

TEST_CASE("parallel: tp stays inside a node unless asked for") {
  const Geometry model = preset("llama2_7b");
  ParallelSizes sizes = eight_gpus();
  sizes.world = 32;
  sizes.gpus_per_node = 8;
  sizes.cp = 1;
  sizes.tp = 16;
  check_one(check_parallel(model, sizes), code::kMeshInvalid,
            "tp 16 is more than 8 GPUs per node: every layer would wait for the network");
  sizes.tp_across_nodes = true;
  check_passes(model, sizes);
}

TEST_CASE("parallel: pipeline stages and experts") {
  ParallelSizes sizes = eight_gpus();
  sizes.world = 64;
  sizes.cp = sizes.tp = 1;
  sizes.pp = 64;
  check_one(check_parallel(preset("llama3_8b"), sizes), code::kMeshInvalid, "pp 64 is more than 32 layers");
  sizes.pp = 1;
  sizes.ep = 3;
  check_one(check_parallel(preset("mixtral_8x7b"), sizes), code::kIndivisible, "8 experts are not divisible by ep 3");
  check_one(check_parallel(preset("llama3_8b"), sizes), code::kIndivisible, "0 experts are not divisible by ep 3");
  sizes.ep = 8;
  check_passes(preset("mixtral_8x7b"), sizes);
  sizes.world = 12;
  check_one(check_parallel(preset("mixtral_8x7b"), sizes), code::kMeshInvalid, "dp 12 × cp 1 = 12 is not divisible by ep 8");
}

TEST_CASE("parallel: sizes below one are refused with their value") {
  ParallelSizes sizes = eight_gpus();
  sizes.tp = 0;
  check_one(check_parallel(preset("llama3_8b"), sizes), code::kOutOfRange, "tp is 0, expected 1 to 1,000,000,000");
  sizes.tp = 2;
  sizes.global_batch = -4;
  check_one(check_parallel(preset("llama3_8b"), sizes), code::kOutOfRange, "global_batch is -4, expected 0 to 1,000,000,000");
}

TEST_CASE("parallel: which tp the known models allow") {
  const struct {
    const char* name;
    std::vector<int64_t> allowed;
  } rows[] = {{"llama3_8b", {1, 2, 4, 8}},  {"mistral_7b", {1, 2, 4, 8}}, {"llama2_7b", {1, 2, 4, 8}},
              {"llama2_13b", {1, 2, 4, 8}}, {"llama2_70b", {1, 2, 4, 8}}, {"llama3_70b", {1, 2, 4, 8}},
              {"qwen2.5_0.5b", {1, 2}},     {"gemma3_1b", {1}},           {"falcon_7b", {1}}};
  for (const auto& row : rows) {
    INFO(row.name);
    std::vector<int64_t> allowed;
    for (const int64_t tp : {1, 2, 4, 8}) {
      ParallelSizes sizes = eight_gpus();
      sizes.cp = 1;
      sizes.tp = tp;
      if (check_parallel(preset(row.name), sizes).empty()) allowed.push_back(tp);
    }
    CHECK(allowed == row.allowed);
  }
}

}  // namespace distsetup
