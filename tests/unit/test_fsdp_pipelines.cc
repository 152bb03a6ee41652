// FSDP2 in a pipeline or without gradient sync, experts left out of FSDP, parts of a block recomputed by themselves, losses in pieces.
#include <catch2/catch.hpp>

#include "model/count.h"
#include "model/presets.h"
#include "planner/frameworks/memory.h"
#include "planner/time/step.h"
#include "support/presets.h"

namespace distsetup {
namespace {

Setup titan(const char* model) {
  Setup s;
  s.model = *find_model(presets(), model);
  s.gpu = find_gpu(presets(), "h100_sxm")->gpu;
  s.gpu.usable_memory_bytes = int64_t{1} << 42;
  s.dp_shard = 8;
  s.sequence_length = 512;
  s.recompute = ActivationRecompute::kFull;
  return s;
}

double allocated(const Setup& s) { return static_cast<double>(simulate_memory(s).allocated_bytes); }

}  // namespace

TEST_CASE("FSDP2 pipelines: stages keep fp32 gradients and what they gathered until the last micro-batch is through") {
  Setup s = titan("llama3_8b");
  s.pp = 4;
  s.gradient_accumulation = 8;
  s.reshard_after_forward = false;
  const double blocks = static_cast<double>(count_parameters(s.model).total - 2 * s.model.vocabulary * s.model.hidden) / s.pp;
  const double states = 16 * blocks / s.dp_shard, kept = (2 + 4) * blocks;
  CHECK(allocated(s) > states + 0.95 * kept);
  CHECK(static_cast<double>(replay_memory(s).allocated_bytes) == Approx(allocated(s)).epsilon(0.02));
}

TEST_CASE("FSDP2 pipelines: interleaved stages have more micro-batches in flight, never more than there are") {
  Setup s = titan("llama3_8b");
  s.pp = 4;
  s.gradient_accumulation = 32;
  s.reshard_after_forward = false;
  s.micro_batch = 8;
  const double plain = allocated(s);
  s.virtual_stages = 2;
  CHECK(allocated(s) > plain);
  s.gradient_accumulation = 4;  // all of them, as without virtual stages
  const double all = allocated(s);
  s.virtual_stages = 1;
  CHECK(all == Approx(allocated(s)).epsilon(0.05));
}

TEST_CASE("FSDP2 pipelines: what every micro-batch of a step receives has a buffer of its own, for the whole run") {
  Setup s = titan("llama3_8b");
  s.pp = 4;
  s.gradient_accumulation = 8;
  s.reshard_after_forward = false;
  const double received = 2.0 * 512 * static_cast<double>(s.model.hidden), few = allocated(s);
  s.gradient_accumulation = 64;
  CHECK(allocated(s) - few == Approx(56 * received));  // the first and the last rank receive in one direction
  CHECK(static_cast<double>(replay_memory(s).allocated_bytes) == Approx(allocated(s)).epsilon(0.02));
  s.scheduled_micro_batches = 8;
  CHECK(allocated(s) == few);
  s.scheduled_micro_batches = 0;
  s.tp = 2;  // a stage hands on its share of the sequence
  const double many = allocated(s);
  s.gradient_accumulation = 8;
  CHECK(many - allocated(s) == Approx(56 * received / 2));
  s.tp = s.pp = 1;
  const double alone = allocated(s);
  s.gradient_accumulation = 64;
  CHECK(allocated(s) == alone);
}

TEST_CASE("FSDP2 without gradient sync: gradients add up in the type of the wire, and travel once a step") {
  Setup s = titan("llama3_8b");
  s.gradient_accumulation = 4;
  const double reduced = allocated(s), seconds = estimate_time(s).step_s;
  s.software.accumulates_whole = true;
  CHECK(allocated(s) - reduced > 3 * static_cast<double>(count_parameters(s.model).total));
  CHECK(static_cast<double>(replay_memory(s).allocated_bytes) == Approx(allocated(s)).epsilon(0.02));
  CHECK(estimate_time(s).step_s < seconds);
}

TEST_CASE("experts that no other rank shares are used where they are, where FSDP leaves them out") {
  Setup s = titan("qwen3_30b_a3b");
  s.ep = 8;
  s.reshard_after_forward = false;
  s.software.stays_gathered = s.software.accumulates_whole = true;
  s.gradient_accumulation = 4;
  s.parameter_dtype = s.gradient_dtype = s.state_dtype = Dtype::kBf16;
  const double gathered = allocated(s);
  s.software.lone_experts_apart = true;
  const double experts = 3.0 * s.model.hidden * s.model.expert_feed_forward * s.model.num_experts / s.ep * s.model.num_layers;
  CHECK(gathered - allocated(s) > 3 * experts);  // no second copy in 16 bits, gradients in 16 bits instead of 32
}

TEST_CASE("recomputed parts of a block keep what each of them reads") {
  Setup s = titan("llama3_8b");
  s.sequence_length = 8192;
  const double whole = allocated(s);
  s.recompute_parts = 4;
  const double inputs = 3.0 * 2 * static_cast<double>(s.tokens() * s.model.hidden * s.model.num_layers);
  CHECK(allocated(s) - whole == Approx(inputs).epsilon(0.1));
}

TEST_CASE("logits in chunks: a compiled loss keeps them as they are, another their softmax in fp32") {
  Setup s = titan("llama3.2_3b");
  s.framework = Framework::kDdp;
  s.sharding = Sharding::kDdp;
  s.dp_shard = 1;
  s.micro_batch = 20;
  s.parameter_dtype = s.gradient_dtype = s.state_dtype = Dtype::kBf16;
  s.loss = LossHead::kChunked;
  const double as_one = allocated(s);
  s.loss = LossHead::kChunkedLogits;
  const double eager = allocated(s), logits = static_cast<double>(s.tokens() * s.model.vocabulary);
  CHECK(as_one - eager > 0.5 * logits);
  s.compiled = true;
  CHECK(eager - allocated(s) > 1.5 * logits);
}

TEST_CASE("split logits: the loss of tensor parallelism holds a fourth fp32 copy in Python, not in a traced graph") {
  Setup s = titan("llama3_8b");
  s.tp = 8;
  s.dp_shard = 1;
  s.sequence_length = 65536;
  s.loss = LossHead::kEager;
  const double python = allocated(s);
  s.software.interpreted = true;
  const double copy = 4.0 * static_cast<double>(s.tokens() * s.model.vocabulary) / s.tp;
  CHECK(python - allocated(s) == Approx(copy).epsilon(0.05));
}

}  // namespace distsetup
