// Tensor parallelism as Transformers has it (base_model_tp_plan, modeling_llama.py and configuration_llama.py of 5.0): no sequence
// parallelism, embedding and norms whole, logits whole on every rank.
#include <catch2/catch.hpp>

#include "planner/frameworks/memory.h"
#include "planner/time/step.h"
#include "support/presets.h"

using namespace distsetup;

namespace {

Setup split(const char* program, int tp) {
  Setup s;
  s.model = *find_model(presets(), "llama3_8b");
  s.gpu = find_gpu(presets(), "h100_sxm")->gpu;
  s.framework = Framework::kFsdp2;
  s.sharding = Sharding::kZero3;
  s.program = program;
  s.software.released = 202601;
  s.loss = LossHead::kEager;
  s.recompute = ActivationRecompute::kFull;
  s.sequence_length = 4096;
  s.gpus_per_node = 8, s.tp = tp, s.dp_shard = 8 / tp;
  s.sequence_parallel = tp > 1 && !s.is_transformers_fsdp2();
  return s;
}

int64_t term(const MemoryEstimate& estimate, std::string_view name) {
  for (const MemoryTerm& one : estimate.terms)
    if (one.buffer_class == name) return one.bytes_at_peak;
  return 0;
}

}  // namespace

TEST_CASE("Transformers' tensor parallelism: logits and block inputs are whole on every rank, torchtitan's are parts") {
  const MemoryEstimate four = simulate_memory(split("hf_eager", 4));
  CHECK(term(four, "logits") >= int64_t{12} * 128256 * 4096);
  const MemoryEstimate titan = simulate_memory(split("torchtitan_eager", 4));
  CHECK(term(titan, "logits") < term(four, "logits") / 2);
  // Embedding and norms are on each of the four: 128,256 x 4,096 in fp32 with gradient and moments, over two shards.
  const int64_t states = term(four, "parameter shard"), parts = term(titan, "parameter shard");
  CHECK(states - parts > int64_t{4} * 128256 * 4096 / 2 / 2);
}

TEST_CASE("a checkpoint has what tensor-parallel ranks hold alike once") {
  for (const char* program : {"hf_eager", "torchtitan_eager"}) {
    const auto whole = static_cast<double>(simulate_memory(split(program, 1)).checkpoint_bytes);
    CHECK(whole == Approx(12.0 * 8030261248).epsilon(1e-3));
    for (const int tp : {2, 4, 8}) CHECK(simulate_memory(split(program, tp)).checkpoint_bytes == Approx(whole).epsilon(1e-3));
  }
}

TEST_CASE("Transformers' tensor parallelism: each rank has the loss of all logits, which are gathered before") {
  const TimeEstimate one = estimate_time(split("hf_eager", 1)), four = estimate_time(split("hf_eager", 4));
  CHECK(four.loss_s > 0.5 * one.loss_s);
  CHECK(estimate_time(split("torchtitan_eager", 4)).loss_s < 0.5 * four.loss_s);
}
