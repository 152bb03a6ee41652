// On random setups: three blocks tell the same as all of them, to the byte; states <= simulate <= replay <= reserved; terms sum to the
// peak.
#include <catch2/catch.hpp>

#include "planner/frameworks/fsdp.h"
#include "planner/frameworks/fsdp_walk.h"
#include "planner/frameworks/memory.h"
#include "planner/replay/program_file.h"
#include "support/property.h"

namespace distsetup {
namespace {

Setup random_setup(Draw& random) {
  const auto pick = [&](auto... values) {
    const std::array options{values...};
    return options[random() % options.size()];
  };
  Setup s;
  s.model.num_layers = static_cast<int64_t>(random() % 20) + 1;
  s.model.num_heads = pick(8, 16, 32);
  s.model.num_kv_heads = s.model.num_heads / pick(1, 2, 8);
  s.model.head_size = pick(64, 128);
  s.model.hidden = s.model.num_heads * s.model.head_size;
  s.model.feed_forward = s.model.hidden * 3 + 256 * static_cast<int64_t>(random() % 5);
  s.model.vocabulary = pick(32000, 50257, 128256);
  s.model.tied_embeddings = random() % 4 == 0;
  if (random() % 3 == 0) {  // dense layers first, or every other one
    s.model.num_experts = pick(8, 64), s.model.experts_per_token = pick(2, 6), s.model.expert_feed_forward = pick(512, 1408);
    s.model.shared_feed_forward = pick(0, 1024);
    const auto first = static_cast<int64_t>(random() % 4);
    const bool alternate = random() % 4 == 0;
    for (int64_t layer = 0; layer < s.model.num_layers; ++layer)
      s.model.expert_layer.push_back(alternate ? layer % 2 == 1 : layer >= first);
    if (random() % 2 == 0) {
      s.model.attention = Attention::kLatent;
      s.model.q_lora_rank = pick(0, 768), s.model.kv_lora_rank = 512;
      s.model.qk_nope_head_size = s.model.v_head_size = 128, s.model.qk_rope_head_size = 64;
    }
  }
  s.gpu.vendor = "nvidia";
  s.framework = pick(Framework::kFsdp2, Framework::kFsdp1, Framework::kFsdp2, Framework::kDdp);
  s.sharding = s.framework == Framework::kDdp ? Sharding::kDdp : pick(Sharding::kZero3, Sharding::kZero3, Sharding::kZero2);
  (s.framework == Framework::kDdp ? s.dp_replicate : s.dp_shard) = pick(1, 2, 8, 64);
  s.reshard_after_forward = random() % 4 != 0;
  s.reshard_root = random() % 4 == 0;
  s.sequence_length = 256 * (static_cast<int64_t>(random() % 16) + 1);
  s.micro_batch = static_cast<int64_t>(random() % 3) + 1;
  s.gradient_accumulation = pick(1, 1, 4);
  s.program = pick("torchtitan_eager", "torchtitan_compiled", "hf_eager", "hf_fused", "litgpt_compiled", "litgpt_eager");
  s.fused_norm = random() % 2 == 0;
  s.loss = pick(LossHead::kEager, LossHead::kHfShift, LossHead::kCompiled, LossHead::kFusedKernel, LossHead::kLiger,
                LossHead::kChunked, LossHead::kCutCrossEntropy);
  s.recompute =
      pick(ActivationRecompute::kNone, ActivationRecompute::kFull, ActivationRecompute::kOpSelective, ActivationRecompute::kEveryK);
  s.recompute_every_k = 3;
  s.reentrant_checkpoint = s.recompute == ActivationRecompute::kFull && random() % 2 == 0;
  s.parameter_dtype = pick(Dtype::kF32, Dtype::kBf16);
  s.state_dtype = s.gradient_dtype = s.parameter_dtype;
  s.reduce_dtype = pick(Dtype::kF32, Dtype::kBf16);
  s.optimizer = pick(OptimizerKind::kAdamW, OptimizerKind::kAdamW, OptimizerKind::kAdamW8bit, OptimizerKind::kSgd);
  s.optimizer_implementation =
      pick(OptimizerImplementation::kForeach, OptimizerImplementation::kFused, OptimizerImplementation::kInBackward);
  s.software.wrapping = pick(UnitWrapping::kRoot, UnitWrapping::kHeadApart, UnitWrapping::kAllApart);
  if (s.model.tied_embeddings) s.software.wrapping = UnitWrapping::kRoot;
  s.software.expandable_segments = random() % 2 == 0;
  s.software.reduce_scatter_pool = random() % 4 == 0;
  s.software.logits_kept = random() % 4 == 0;
  s.software.last_block_stays_gathered = random() % 2 == 0;
  if (random() % 3 == 0) {
    s.finetune = pick(Finetune::kLora, Finetune::kQlora);
    s.lora.rank = 16;
    s.lora.query = s.lora.value = true;
    s.lora.down = random() % 2 == 0;
    s.lora.dropout = random() % 2 == 0 ? 0.05 : 0;
    s.lora.dtype = pick(Dtype::kF32, Dtype::kBf16);
    s.autocast = random() % 2 == 0;
    s.parameter_dtype = Dtype::kBf16;
    s.frozen_dtype = s.finetune == Finetune::kQlora ? Dtype::kNf4Double : Dtype::kBf16;
  }
  if (random() % 8 == 0) s.offload.optimizer = OffloadPlace::kHost;
  if (random() % 8 == 0) s.offload.activations = OffloadPlace::kHost;
  if (s.model.num_experts > 0) {
    s.program = pick("torchtitan_eager", "torchtitan_compiled", "hf_eager");
    if (s.program != "hf_eager" && s.framework == Framework::kFsdp2) s.ep = std::min(pick(1, 2, 8), s.dp_shard);
  }
  return s;
}

std::string described(const Setup& s) {
  return "program " + s.program + ", layers " + std::to_string(s.model.num_layers) + ", framework " +
         std::to_string(static_cast<int>(s.framework)) + ", sharding " + std::to_string(static_cast<int>(s.sharding)) + ", shards " +
         std::to_string(s.dp_shard) + ", recompute " + std::to_string(static_cast<int>(s.recompute)) + ", reentrant " +
         std::to_string(s.reentrant_checkpoint) + ", loss " + replay::loss_name(s.loss) + ", finetune " +
         std::to_string(static_cast<int>(s.finetune)) + ", wrapping " + std::to_string(static_cast<int>(s.software.wrapping)) +
         ", ep " + std::to_string(s.ep) + ", accumulation " + std::to_string(s.gradient_accumulation) + ", optimizer " +
         std::to_string(static_cast<int>(s.optimizer)) + "/" + std::to_string(static_cast<int>(s.optimizer_implementation));
}

}  // namespace

TEST_CASE("fsdp memory: three blocks tell the same as all blocks to the byte") {
  check_property(2000, [] {
    Draw random;
    const Setup s = random_setup(random);
    RC_LOG() << described(s);
    const MemoryEstimate three = simulate_fsdp(s, Blocks::kThree), all = simulate_fsdp(s, Blocks::kAll);
    RC_ASSERT(three.allocated_bytes == all.allocated_bytes);
    RC_ASSERT((three.by_phase == all.by_phase));
    RC_ASSERT((three.terms == all.terms));
    int64_t sum = 0;
    for (const MemoryTerm& term : three.terms) sum += term.bytes_at_peak;
    RC_ASSERT(sum == three.allocated_bytes);
  });
}

TEST_CASE("fsdp memory: the bound is at most what is simulated") {
  for (const Framework framework : {Framework::kFsdp1, Framework::kFsdp2, Framework::kDdp}) {
    check_property(10000, [framework] {
      Draw random;
      Setup s = random_setup(random);
      const int ranks = s.dp_shard * s.dp_replicate;
      s.framework = framework;
      if (framework != Framework::kFsdp2) s.ep = 1;
      if (framework == Framework::kDdp) {
        s.sharding = Sharding::kDdp;
        s.dp_shard = 1;
        s.dp_replicate = ranks;
      } else {
        if (s.sharding == Sharding::kDdp) s.sharding = Sharding::kZero3;
        s.dp_shard = ranks;
        s.dp_replicate = random() % 3 == 0 ? 2 : 1;
        if (random() % 5 == 0 && s.model.num_layers >= 2 && framework == Framework::kFsdp2) s.pp = 2;
      }
      RC_LOG() << described(s);
      RC_ASSERT(bound_bytes(s) <= simulate_memory(s).allocated_bytes);
    });
  }
}

TEST_CASE("fsdp memory: bound is at most simulate and simulate at most replay") {
  check_property(400, [] {
    Draw random;
    const Setup s = random_setup(random);
    RC_LOG() << described(s);
    const int64_t bound = bound_bytes(s), simulated = simulate_memory(s).allocated_bytes;
    const MemoryEstimate replayed = replay_memory(s);
    RC_ASSERT(bound <= simulated);
    RC_ASSERT(simulated <= replayed.allocated_bytes);
    RC_ASSERT(replayed.allocated_bytes <= replayed.reserved_bytes);
    RC_ASSERT_FALSE(replayed.ran_out);
  });
}

TEST_CASE("fsdp memory: evaluation and saving need what training has room for") {
  const auto bytes = [](const MemoryEstimate& estimate, std::string_view name) {
    for (const PhaseMemory& phase : estimate.by_phase)
      if (phase.phase == name) return phase.allocated_bytes;
    return int64_t{-1};
  };
  check_property(1000, [&bytes] {
    Draw random;
    const Setup s = random_setup(random);
    RC_LOG() << described(s);
    const MemoryEstimate simulated = simulate_memory(s);
    const int64_t evaluate = bytes(simulated, "evaluate"), save = bytes(simulated, "save");
    RC_ASSERT(save >= bound_bytes(s));
    RC_ASSERT(evaluate > save);
    RC_ASSERT(evaluate <= simulated.allocated_bytes);
    Setup recomputed = s;  // what training saves is nothing to evaluation
    recomputed.recompute = ActivationRecompute::kFull;
    recomputed.reentrant_checkpoint = false;
    RC_ASSERT(bytes(simulate_memory(recomputed), "evaluate") == evaluate);
    if (random() % 10 != 0) return;
    const MemoryEstimate replayed = replay_memory(s);
    RC_ASSERT(bytes(replayed, "save") >= save);
    RC_ASSERT(bytes(replayed, "evaluate") >= evaluate);
  });
}

TEST_CASE("fsdp memory: more GPUs, shorter sequences and more recomputation never need more") {
  check_property(300, [] {
    Draw random;
    Setup s = random_setup(random);
    s.framework = Framework::kFsdp2;
    s.sharding = Sharding::kZero3;
    s.dp_replicate = 1;
    s.dp_shard = 2;
    RC_LOG() << described(s);
    const int64_t base = simulate_memory(s).allocated_bytes;
    Setup wider = s;
    wider.dp_shard = 8;
    // padding of rows to the number of shards can cost a row per matrix
    RC_ASSERT(static_cast<double>(simulate_memory(wider).allocated_bytes) <= 1.01 * static_cast<double>(base));
    Setup shorter = s;
    shorter.sequence_length = s.sequence_length / 2;
    if (s.loss != LossHead::kLiger) RC_ASSERT(simulate_memory(shorter).allocated_bytes <= base);
  });
}

TEST_CASE("fsdp memory: a GPU that is too small runs out") {
  Setup s;
  s.model.num_layers = 8;
  s.model.num_heads = s.model.num_kv_heads = 32;
  s.model.head_size = 128;
  s.model.hidden = 4096;
  s.model.feed_forward = 11008;
  s.model.vocabulary = 32000;
  s.gpu.vendor = "nvidia";
  s.dp_shard = 8;
  const MemoryEstimate ample = replay_memory(s);
  REQUIRE(!ample.ran_out);
  s.gpu.usable_memory_bytes = ample.allocated_bytes / 2;
  CHECK(replay_memory(s).ran_out);
}

}  // namespace distsetup
