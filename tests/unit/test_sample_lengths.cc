// What a run of samples of different lengths reserves, and what fp8 matrices keep. The numbers are measured ones of
// tests/accuracy/measured.csv (SWIFT-006 to 010; THU-009 to 012, 018 and 019).
#include <catch2/catch.hpp>
#include <cmath>

#include "model/presets.h"
#include "planner/frameworks/memory.h"
#include "support/presets.h"

using namespace distsetup;

namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;

Setup on_gpu(const std::string& model, const std::string& gpu) {
  Setup s;
  s.model = *find_model(presets(), model);
  s.gpu = find_gpu(presets(), gpu)->gpu;
  return s;
}

Setup lora_of_one_gpu() {
  Setup s = on_gpu("qwen_7b", "a100_sxm_80");
  s.framework = Framework::kDdp;
  s.sharding = Sharding::kDdp;
  s.program = "hf_eager";
  s.loss = LossHead::kHfShift;
  s.recompute = ActivationRecompute::kFull;
  s.reentrant_checkpoint = s.autocast = true;
  s.parameter_dtype = s.gradient_dtype = s.state_dtype = Dtype::kBf16;
  s.finetune = Finetune::kLora;
  s.lora.rank = 8;
  s.lora.query = s.lora.key = s.lora.value = true;
  s.sequence_length = 2048;
  s.gradient_accumulation = 16;
  return s;
}

Setup fp8_of_eight_gpus() {
  Setup s = on_gpu("llama2_7b", "h100_sxm");
  s.program = "litgpt_compiled";
  s.compiled = true;
  s.dp_shard = 8;
  s.reshard_after_forward = false;
  s.loss = LossHead::kLowPrecision;
  s.parameter_dtype = s.gradient_dtype = s.state_dtype = s.reduce_dtype = Dtype::kBf16;
  s.fp8 = Fp8Recipe::kTensorwise;
  return s;
}

}  // namespace

TEST_CASE("samples of different lengths reserve more than the longest one alone and the same every time") {
  Setup s = lora_of_one_gpu();
  const MemoryEstimate fixed = replay_memory(s);
  s.sample_lengths = {3234.4, 2547.5, 91};
  const MemoryEstimate varying = replay_memory(s), again = replay_memory(s);
  CHECK(varying.reserved_bytes > fixed.reserved_bytes + 2 * kGib);
  CHECK(varying.allocated_bytes <= fixed.allocated_bytes);
  CHECK(varying.reserved_bytes == again.reserved_bytes);
  CHECK(varying.device_bytes - varying.reserved_bytes == fixed.device_bytes - fixed.reserved_bytes);
}

TEST_CASE("samples that are all cut to one length are a run of that length") {
  Setup s = lora_of_one_gpu();
  const MemoryEstimate fixed = replay_memory(s);
  s.sample_lengths = {100000, 10, 2048, true};
  CHECK(replay_memory(s).reserved_bytes == fixed.reserved_bytes);
}

TEST_CASE("a view of one sample's logits is not copied") {
  Setup s = lora_of_one_gpu();
  s.model = on_gpu("llama2_7b", "a100_sxm_80").model;
  const auto loss = [&](int64_t samples, int64_t length) {
    s.micro_batch = samples;
    s.sequence_length = length;
    return replay_memory(s).allocated_bytes;
  };
  // The forward of two samples holds the fp32 logits and their shifted copy beside the log-softmax.
  CHECK(loss(2, 4096) >= loss(1, 8192));
}

TEST_CASE("fp8 matrices are gathered in one byte and saved for backward unless cast again") {
  Setup s = fp8_of_eight_gpus();
  const auto allocated = [&](bool gathered_in_fp8, bool saved) {
    s.fp8_all_gather = gathered_in_fp8;
    s.software.fp8_weights_saved = saved;
    return replay_memory(s).allocated_bytes / kGib;
  };
  const double matrices =
      static_cast<double>(s.model.num_layers * (4 * s.model.hidden * s.model.hidden + 3 * s.model.hidden * s.model.feed_forward)) /
      kGib;
  CHECK(allocated(false, true) - allocated(true, true) == Approx(matrices).epsilon(0.03));
  CHECK(allocated(true, true) - allocated(true, false) == Approx(matrices).epsilon(0.03));
}
