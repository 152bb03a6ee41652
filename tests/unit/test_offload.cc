// What DeepSpeed and FSDP hold and move where memory is short: block inputs, logits, Liger's kernels, tiles of the MLP, Ulysses'
// exchanges, fp32 sums of bf16 gradients, parameters and optimizer in host memory.
#include <catch2/catch.hpp>

#include "model/count.h"
#include "planner/frameworks/deepspeed.h"
#include "planner/frameworks/memory.h"
#include "planner/frameworks/validate.h"
#include "planner/frameworks/zero_host.h"
#include "planner/time/step.h"
#include "support/problems.h"

using namespace distsetup;

namespace {

constexpr int64_t kGib = int64_t{1} << 30;

Setup eight_gpus() {
  Setup s;
  s.model = *find_model(presets(), "llama3_8b");
  s.gpu = find_gpu(presets(), "h200_sxm")->gpu;
  s.framework = Framework::kDeepspeed;
  s.program = "hf_eager";
  s.gpus_per_node = 8, s.dp_shard = 8;
  s.sequence_length = 16384;
  s.parameter_dtype = s.gradient_dtype = s.reduce_dtype = Dtype::kBf16;
  s.master_copy = true;
  s.recompute = ActivationRecompute::kFull;
  s.reentrant_checkpoint = true;
  return s;
}

int64_t term(const MemoryEstimate& estimate, std::string_view name) {
  for (const MemoryTerm& one : estimate.terms)
    if (one.buffer_class == name) return one.bytes_at_peak;
  return 0;
}

int64_t allocated(const Setup& s) { return simulate_memory(s).allocated_bytes; }

}  // namespace

TEST_CASE("DeepSpeed at the loss: block inputs count, and logits cost the 12 bytes that they cost under FSDP") {
  const Setup s = eight_gpus();
  const MemoryEstimate estimate = simulate_memory(s);
  REQUIRE(estimate.peak_phase == std::string_view("loss"));
  const int64_t inputs = 2 * s.model.hidden * s.tokens() * s.model.num_layers;
  CHECK(inputs == 4 * kGib);
  CHECK(term(estimate, "activation") >= inputs);
  CHECK(term(estimate, "logits") == 12 * s.model.vocabulary * s.tokens());
  int64_t sum = 0;
  for (const MemoryTerm& one : estimate.terms) sum += one.bytes_at_peak;
  CHECK(sum == estimate.allocated_bytes);
  Setup fsdp = s;
  fsdp.framework = Framework::kFsdp1;
  CHECK(term(simulate_memory(fsdp), "logits") == term(estimate, "logits"));
}

TEST_CASE("long sequences: Liger's MLP, tiles of the MLP and offloaded block inputs each take less") {
  Setup s = eight_gpus();
  s.sequence_length = 131072;
  s.loss = LossHead::kLiger;
  s.fused_norm = s.fused_rope = true;
  const int64_t plain = allocated(s), width = s.model.feed_forward * s.tokens() * 2;
  s.fused_swiglu = true;  // neither the activated gate nor gradients beside what was saved
  const int64_t fused = allocated(s);
  CHECK(plain - fused >= 2 * width);
  s.fused_swiglu = false;
  s.mlp_tile = s.model.hidden;
  const int64_t tiled = allocated(s);
  CHECK(fused - tiled >= width);
  s.offload.activations = OffloadPlace::kHost;
  const int64_t inputs = 2 * s.model.hidden * s.tokens() * s.model.num_layers;
  const MemoryEstimate moved = simulate_memory(s);
  CHECK(moved.allocated_bytes < tiled - inputs * 3 / 4);
  CHECK(moved.host_bytes_per_node >= 8 * inputs * 3 / 4);
}

TEST_CASE("Ulysses: a rank holds its share of the tokens, and beside them what it exchanges") {
  Setup whole = eight_gpus();
  whole.loss = LossHead::kLiger;
  whole.sequence_length = 32768;
  Setup split = whole;
  split.sequence_length = 8 * 32768;
  split.dp_shard = 1, split.cp = 8, split.cp_method = CpMethod::kUlysses;
  REQUIRE(whole.tokens() == split.tokens());
  const int64_t queries = 2 * whole.tokens() * whole.model.hidden;
  const auto attention_alone = [&](Setup s) {
    s.mlp_tile = 4096;
    return allocated(s);
  };
  CHECK(attention_alone(split) - attention_alone(whole) >= queries);
  CHECK(allocated(split) - allocated(whole) < 6 * queries);
}

TEST_CASE("DeepSpeed's BF16_Optimizer: whole fp32 gradients beside autograd's, and a gather of everything before 2023") {
  Setup s = eight_gpus();
  s.sharding = Sharding::kZero1;
  s.sequence_length = 512;
  const int64_t all = count_parameters(s.model).total;
  const auto load = [](const Setup& setup) { return simulate_memory(setup).by_phase.back().allocated_bytes; };  // save: what stays
  const int64_t in_bf16 = load(s);
  s.gradient_dtype = Dtype::kF32;
  CHECK(load(s) == Approx(in_bf16 + 4 * all).epsilon(1e-6));
  const auto step = [](const Setup& setup) {
    for (const PhaseMemory& phase : simulate_memory(setup).by_phase)
      if (phase.phase == std::string_view("optimizer")) return phase.allocated_bytes;
    return int64_t{0};
  };
  const int64_t now = step(s);
  s.software.released = 202202;
  CHECK(step(s) - now == 2 * std::min<int64_t>(all, 5'000'000'000));
}

TEST_CASE("parameters in host memory: the unit that runs and the root stand on the device, on one GPU too") {
  Setup s = eight_gpus();
  s.framework = Framework::kFsdp1;
  s.gpus_per_node = 1, s.dp_shard = 1;
  s.sequence_length = 512;
  s.offload.parameters = s.offload.optimizer = OffloadPlace::kHost;
  const int64_t root = 2 * 2 * s.model.vocabulary * s.model.hidden;
  CHECK(term(simulate_memory(s), "gathered parameter") >= root);
  s.framework = Framework::kDeepspeed;
  CHECK(term(simulate_memory(s), "gathered parameter") > root / 4);
  s.framework = Framework::kFsdp1;
  s.sharding = Sharding::kDdp;
  s.gpus_per_node = s.dp_replicate = 2;
  REQUIRE(validate(s).size() == 1);
  CHECK(validate(s).front().message.find("offloads what it splits") != std::string::npos);
}

TEST_CASE("step time: Adam on the host takes as long as its memory does, PyTorch's own before it was fused longer") {
  Setup s = eight_gpus();
  s.offload.optimizer = OffloadPlace::kHost;
  const double exposed = estimate_time(s).offload_exposed_s;
  CHECK(exposed > 1.5);  // 8B parameters on one node: 2.1 s and its transfers
  CHECK(exposed < 3);
  Setup desktop = s;
  desktop.host_memory_bytes_per_s = 80e9;
  CHECK(estimate_time(desktop).offload_exposed_s > 3 * exposed);
  Setup fsdp = s;
  fsdp.framework = Framework::kFsdp1;
  fsdp.optimizer_implementation = OptimizerImplementation::kForeach;
  CHECK(estimate_time(fsdp).offload_exposed_s > 4 * exposed);
}

TEST_CASE("step time: an installed FlashAttention is taken on the GPUs that it is made for") {
  Setup s = eight_gpus();
  CHECK(attention_kernel(s) == AttentionKernel::kFlash2);
  s.flash_package = 3;
  CHECK(attention_kernel(s) == AttentionKernel::kFlash3);
  const double third = estimate_time(s).attention_s;
  s.flash_package = 0;
  CHECK(third < estimate_time(s).attention_s);
  s.gpu = find_gpu(presets(), "b200")->gpu;
  s.flash_package = 4;
  CHECK(attention_kernel(s) == AttentionKernel::kFlash4);
  s.flash_package = 3;
  CHECK(attention_kernel(s) == AttentionKernel::kCudnn);
}

// deepspeed/runtime/zero/stage3.py of 0.19.8: sub-groups of 1e9 elements, of which the first int((1 - ratio) * number) stay.
TEST_CASE("DeepSpeed's twin-flow: sub-groups that stay have their states on the device and are updated there") {
  Setup s = eight_gpus();
  s.sharding = Sharding::kZero3;
  s.dp_shard = s.gpus_per_node = 2;  // 4.0e9 elements a rank: 5 sub-groups, and the one of norms
  s.offload.optimizer = OffloadPlace::kHost;
  const double share = static_cast<double>(count_parameters(s.model).total) / 2;
  const auto kept = [&](double ratio) {
    s.offload.optimizer_ratio = ratio;
    return optimizer_elements_on_device(s, share);
  };
  CHECK(kept(1) == 0);
  CHECK(kept(0.9) == 0);  // int(0.1 * 6)
  CHECK(kept(0.8) == 1e9);
  CHECK(kept(0.5) == 3e9);
  CHECK(kept(0) == share);
  // What stays leaves the host: 12 bytes of states, and on the device an fp32 gradient beside them.
  s.offload.optimizer_ratio = 1;
  const MemoryEstimate all_moved = simulate_memory(s);
  s.offload.optimizer_ratio = 0.5;
  const MemoryEstimate half = simulate_memory(s);
  CHECK(term(all_moved, "optimizer state") == 0);
  CHECK(term(half, "optimizer state") == 12'000'000'000 * 3);
  CHECK(term(half, "gradient") - term(all_moved, "gradient") >= 4'000'000'000 * 3);
  CHECK(half.host_bytes_per_node < 0.4 * static_cast<double>(all_moved.host_bytes_per_node));
  s.offload.optimizer_ratio = 0;
  CHECK(simulate_memory(s).host_bytes_per_node == 0);
  // Adam on the host is the slow one.
  s.recompute = ActivationRecompute::kFull;
  const auto step_s = [&](double ratio) {
    s.offload.optimizer_ratio = ratio;
    return estimate_time(s).step_s;
  };
  CHECK(step_s(0.5) < step_s(1));
  CHECK(step_s(0) < step_s(0.5));
  s.sharding = Sharding::kZero2;
  CHECK(has_error(validate(s)));
  s.offload.optimizer_ratio = 1;
  CHECK_FALSE(has_error(validate(s)));
}

TEST_CASE("DeepSpeed's twin-flow: what cannot be split is refused, plan.json says the share where there is one") {
  const Flags asked = {{"model", "1B"}, {"nodes", "1"}, {"sharding", "zero3"}, {"offload-optimizer", "host"}};
  const auto with = [&](const std::string& trainer, Flags more) {
    more.insert(more.end(), asked.begin(), asked.end());
    more.emplace_back("trainer", trainer);
    return resolved(more);
  };
  const Result<Problem> split = with("deepspeed", {{"offload-optimizer-ratio", "0.4"}});
  REQUIRE(split.ok());
  CHECK(split->base.offload.optimizer_ratio == 0.4);
  CHECK_FALSE(with("deepspeed", {{"offload-optimizer-ratio", "0.4"}, {"optimizer", "lion"}}).ok());
  CHECK_FALSE(with("fsdp1", {{"offload-optimizer-ratio", "0.4"}}).ok());
}

// deepspeed/runtime/zero/stage3.py of 0.19.6: the master is not pinned, its gradient is, a sub-group of 1e9 elements at a time.
TEST_CASE("DeepSpeed's stage 3 on the host: what is pinned is a power of two, what is not takes what it holds") {
  Setup s = eight_gpus();
  s.sharding = Sharding::kZero3;
  s.offload.optimizer = OffloadPlace::kHost;
  const double elements = 9.088e9, gib = 1024.0 * 1024 * 1024;  // 72.7B parameters on eight ranks
  const auto host_gib = [&](bool pinned) {
    s.offload.pin_memory = pinned;
    return host_optimizer_bytes(s, 4 * elements, 8 * elements) / gib;
  };
  CHECK(host_gib(false) == Approx(18 * elements / gib));
  // master 33.9, nine whole sub-groups of 4 GiB and a rest of 0.5, the 16-bit copy 32, moments 67.7
  CHECK(host_gib(true) == Approx(4 * elements / gib + 9 * 4 + 0.5 + 32 + 8 * elements / gib));
  s.sharding = Sharding::kZero2;
  CHECK(host_gib(true) == Approx(64 + 64 + 32 + 8 * elements / gib));
}

// deepspeed/runtime/zero/stage3.py, partition_grads and _constant_buffered_norm2 (v0.9.2 and edaa722, 2026-08).
TEST_CASE("DeepSpeed's stage 3: a gradient that leaves for the host passes through its 16-bit sum and a piece of fp64") {
  Setup s = eight_gpus();
  s.sharding = Sharding::kZero3;
  s.parameter_dtype = Dtype::kBf16;
  s.recompute = ActivationRecompute::kFull;
  s.micro_batch = 1;
  s.sequence_length = 512;
  CHECK(leaving_gradient_bytes(s, 8e8) == 0);  // stays
  s.offload.optimizer = OffloadPlace::kHost;
  CHECK(leaving_gradient_bytes(s, 8e8) == (2 + 8) * 1e8);
  s.dp_shard = s.gpus_per_node = 1;
  CHECK(leaving_gradient_bytes(s, 8e8) == 2 * 8e8 + 8 * 2.5e8);  // 250 million at a time
  s.sharding = Sharding::kZero2;
  CHECK(leaving_gradient_bytes(s, 8e8) == 0);
  // Fewer ranks, larger parts: of the head, 128,256 by 4,096.
  s.sharding = Sharding::kZero3;
  s.offload.parameters = OffloadPlace::kHost;
  const auto at_ranks = [&](int ranks) {
    s.dp_shard = s.gpus_per_node = ranks;
    return replay_memory(s);
  };
  const MemoryEstimate one = at_ranks(1), eight = at_ranks(8);
  const double part = 128256.0 * 4096;
  CHECK(static_cast<double>(one.allocated_bytes - eight.allocated_bytes) > 0.5 * (1 - 1.0 / 8) * 10 * std::min(part, 2.5e8));
  CHECK(one.reserved_bytes >= one.allocated_bytes);
}

// DeepSpeed's pull requests 5301 (pageable copies: 4 to 6 times slower) and 8207 (stage 3 waited for its gradients' copies).
TEST_CASE("copies of pageable memory take longer and nothing hides them, further micro-batches copy sums of gradients") {
  Setup s = eight_gpus();
  s.sharding = Sharding::kZero3;
  s.dp_shard = s.gpus_per_node = 2;
  s.recompute = ActivationRecompute::kFull;
  s.offload.optimizer = s.offload.parameters = OffloadPlace::kHost;
  const auto offload_s = [&](bool pinned, int64_t micro_batches) {
    s.offload.pin_memory = pinned;
    s.gradient_accumulation = micro_batches;
    return estimate_time(s).offload_exposed_s;
  };
  s.software.released = 202607;
  const double pinned = offload_s(true, 1), pageable = offload_s(false, 1), further_s = offload_s(true, 5) - pinned;
  CHECK(pageable > pinned + 2.0 * 2 * static_cast<double>(count_parameters(s.model).total) / 2 / 25e9);
  CHECK(further_s > 0);
  CHECK(offload_s(false, 5) - pageable > 4 * further_s);
  s.software.released = 202608;
  CHECK(offload_s(true, 5) - offload_s(true, 1) < further_s);
  // A coherent link reads pageable memory where it is.
  s.gpu = find_gpu(presets(), "gh200_96")->gpu;
  s.offload.parameters = OffloadPlace::kNone;
  CHECK(offload_s(false, 1) == offload_s(true, 1));
}

TEST_CASE("memory that is not pinned is DeepSpeed's to plan, the bundled trainer pins its own") {
  const Flags asked = {
      {"model", "1B"}, {"nodes", "1"}, {"sharding", "zero3"}, {"offload-optimizer", "host"}, {"offload-pin-memory", "false"}};
  const auto with = [&](const std::string& trainer) {
    Flags flags = asked;
    flags.emplace_back("trainer", trainer);
    return resolved(flags);
  };
  const Result<Problem> pageable = with("deepspeed");
  REQUIRE(pageable.ok());
  CHECK_FALSE(pageable->base.offload.pin_memory);
  CHECK_FALSE(with("native").ok());
  CHECK_FALSE(with("megatron").ok());
}
