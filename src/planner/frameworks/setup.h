// A training run of any trainer, as numbers: what the predictors take. Plan describes what the bundled trainer runs; Setup also says
// which other stack runs, in which version, and what that stack does its own way. Nothing here is searched or looked up: the planner
// (or a row of the accuracy scoreboard) fills it in, validate() refuses what cannot be.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/geometry.h"
#include "model/hardware.h"
#include "plan/plan.h"
#include "planner/frameworks/traits.h"

namespace distsetup {

namespace replay {
struct BlockProgram;  // replay/program_file.h
}

enum class Fp8Recipe { kNone, kTensorwise, kRowwise, kDelayed, kMxfp8, kBlockwise, kNvfp4 };
enum class Finetune { kFull, kLora, kQlora };
enum class OptimizerKind { kAdamW, kAdamW8bit, kAdamW4bit, kAdafactor, kLion, kSgd, kSgdMomentum, kMuon };
// kForeach: one temporary of the size of the parameters; kFused: none; kInBackward: a layer's gradient is applied and freed at once.
enum class OptimizerImplementation { kForeach, kFused, kForLoop, kInBackward };
// kOpSelective: torchtitan's every second matmul; kAttentionOnly: Megatron's core attention; kEveryK: every k-th block in full.
enum class ActivationRecompute { kNone, kOpSelective, kAttentionOnly, kEveryK, kFull };
enum class PipelineOrder { kOneForwardOneBackward, kGpipe };
// FSDP1: backward gathers the unit below before its own gradients are computed, after that, or when that unit's turn comes.
enum class BackwardPrefetch { kPre, kPost, kNone };
// How rows reach the experts of other ranks. kAllToAll: rows are permuted, then NCCL sends a copy per expert; kDirect: kernels that
// send a row once per rank (or node) that has one of its experts and permute on the way (DeepEP, HybridEP).
enum class ExpertDispatch { kAllToAll, kDirect };
// What a head keeps between the logits and their gradient (bytes per logit live at the peak are the program's business).
enum class LossHead {
  kEager,
  kFloatInModel,
  kHfShift,
  kCompiled,
  kFusedKernel,
  kLiger,
  kChunked,
  kCutCrossEntropy,
  kLowPrecision,
  kVocabularyParallel,
  kChunkedHead,   // head and loss in chunks, each made and differentiated before the next (torchtitan since 2026-04)
  kChunkedLogits  // the head makes its logits chunk by chunk, backward frees them chunk by chunk (torchtune until 2025-05)
};
// How FSDP groups what is outside the blocks: all in the root unit; final norm and head apart; embedding, and norm with head, apart.
// kWhole: no block is a unit, the root has all parameters (no auto_wrap_policy, or one by size that no block reaches).
enum class UnitWrapping { kRoot, kHeadApart, kAllApart, kWhole };

// What changed between releases of a stack and is visible in bytes or seconds.
struct Software {
  std::string name;                        // "torchtitan 2024-12", for messages
  bool is_assumed = false;                 // nobody said that the code base is the trainer's own, and not another of the same kind
  int released = 0;                        // yyyymm; 0 = not known
  bool expandable_segments = false;        // PYTORCH_CUDA_ALLOC_CONF of the launcher
  bool reduce_scatter_pool = false;        // reduce-scatter inputs in a pool of their own (FSDP2 before mid-2024)
  bool logits_kept = false;                // the training loop holds the logits through backward
  bool last_block_stays_gathered = false;  // torchtitan before 2025-07
  bool limit_all_gathers = true;           // FSDP1
  bool gradients_freed_after_step = true;  // zero_grad(set_to_none) right after the step; false: before the next forward
  UnitWrapping wrapping = UnitWrapping::kRoot;
  bool attention_output_copied = false;   // q concatenated into [B, H, S, D]: the attention output is copied (litgpt until 2024-06)
  bool residual_in_fp32 = false;          // k-bit preparation made embedding, norms and head fp32: the residual stream follows
  bool unquantised_in_fp32 = false;       // and they stay so (peft's prepare_model_for_kbit_training with nothing behind it)
  bool adapters_in_compute_type = false;  // what goes into an adapter is not copied in fp32 first (Unsloth)
  bool gradient_as_bucket_view = false;   // DDP
  bool kv_heads_repeated = false;         // before flash attention too (Transformers' Mistral before 4.48)
  bool low_precision_logits_kept =
      false;                       // Transformers before 4.45: the head's output lives on beside its fp32 copy until the loss is done
  bool logits_shifted = false;     // Transformers before 4.49: the loss copies the logits without their last position
  bool fp8_weights_saved = false;  // torchao without force_recompute_fp8_weight_in_bwd: the cast weight waits for backward
  bool fp8_abs_saved = false;      // torchtitan 2024-11-26 to 2025-02-06: aten.abs is on the list of op-selective recompute
  bool attention_recomputed = false;   // torchtitan before 2025-12 where SDPA takes cuDNN's kernel: not on that list
  bool exchanges_recomputed = false;   // nor what expert ranks exchange, until the list of a model names all-to-alls
  bool fused_qkv = false;              // torchtitan since 2026-06: one matrix makes q, k and v
  bool compiled_loss_gathers = false;  // torchtitan of 2024 under tensor parallelism: a compiled loss takes whole logits
  bool online_softmax = false;         // PyTorch 2.8: a compiled loss needs no fp32 copy of the logits
  bool eager_kernels = false;          // a traced graph runs the kernels of the eager program, under SimpleFSDP the loss too
  bool keeps_every_matmul = false;     // op-selective recompute of graph_trainer
  // bitsandbytes before 0.43.2 keeps the input of every 4-bit matrix beside autograd's saved tensors, and the training loop holds the
  // loss, and with it the graph, until the next one is made: the inputs of two micro-batches live at once.
  bool graph_outlives_backward = false;
  // Micro-batches but the last reduce no gradients, which add up whole on every rank: FSDP1 under no_sync (Lightning Fabric), FSDP2
  // without gradient sync (NeMo Automodel's defer_fsdp_grad_sync; every pipeline, torch/distributed/pipelining/stage.py).
  bool accumulates_whole = false;
  bool lone_experts_apart = false;  // experts that no other rank shares are left out of FSDP (NeMo Automodel)
  bool stays_gathered = false;  // FSDP2: gathered parameters stay from one micro-batch to the next (NeMo Automodel's expert models)
  bool casts_once = false;      // graph_trainer: 16-bit shards stay from forward to backward
  bool traced = false;          // SimpleFSDP: gathers and reductions are operations of the traced graph, parameter by parameter
  // Of a traced graph: it runs PyTorch's own kernels, unless a compiler made them; Python steps through it, unless CUDA graphs replay
  // it; no pass buckets its transfers or moves them ahead of their use.
  bool interpreted = false, inductor_kernels = false, cuda_graphs = false, unbucketed = false;
  bool flex_attention = false;  // generated by the compiler as FlashAttention 2 is written, and not cuDNN's where SDPA would take that
  bool cast_kernels = false;    // hand-written fp8 casts in an eager program (torchao's float8nocompile)
  bool own_container = false;   // NVIDIA's container, whose libraries are newer than those of PyTorch's builds; Megatron always
  // Tensor parallelism: norms of q and k give all heads to every rank (torchtitan's Qwen3 until 2025-10); each of q, k, v, gate and up
  // gathers its own input (KempnerForge).
  bool normed_heads_gathered = false, gathers_each_input = false;
  bool tf32_products = false;      // products of fp32 on tensor cores: torch.set_float32_matmul_precision("high")
  bool gathers_as_stored = false;  // FSDP without a MixedPrecision policy: autocast casts what was gathered in its own type
  bool complex_rotary = false;     // rotary positions as complex numbers, for which Inductor generates no kernels (torchtitan's Llama)
  bool operator==(const Software&) const = default;
};

struct Lora {
  int64_t rank = 0;
  bool query = false, key = false, value = false, output = false, gate = false, up = false, down = false;
  Dtype dtype = Dtype::kF32;  // what adapters compute in; they are stored in the wider of this and the parameters' type
  double dropout = 0;
  bool operator==(const Lora&) const = default;
};

// Samples of different lengths, each micro-batch padded to its longest; those longer than sequence_length are left out, or cut. A
// log-normal distribution by its mean and standard deviation, in tokens; mean 0: every sample has sequence_length tokens.
struct SampleLengths {
  double mean = 0, deviation = 0;
  int64_t shortest = 1;
  bool longer_are_cut = false;
  bool padded_to_whole = false;  // to sequence_length, whatever the others of the micro-batch
  bool operator==(const SampleLengths&) const = default;
};

struct Setup {
  Geometry model;
  Gpu gpu;
  int nodes = 1, gpus_per_node = 1;
  double nic_bytes_per_s = 0;  // per node, one direction; 0 = one node, or not known
  std::string nic_kind;        // infiniband, roce, efa, tcpx, tcpxo, omni_path, ethernet
  int64_t host_memory_bytes = 0;
  double host_memory_bytes_per_s = 0;  // of a node; 0 = not known
  double nvme_bytes_per_s = 0;         // the same

  Framework framework = Framework::kFsdp2;
  Sharding sharding = Sharding::kZero3;
  bool reshard_after_forward = true;
  bool reshard_root = false;                                                          // FSDP2 "always"
  int dp_replicate = 1, dp_shard = 1, cp = 1, tp = 1, pp = 1, ep = 1, expert_tp = 1;  // dp_shard without cp; ep inside dp_shard x cp
  int virtual_stages = 1;                                                             // of a pipeline rank
  int hpz = 1;  // DeepSpeed's zero_hpz_partition_size: ranks that share a second 16-bit copy, which backward gathers from; 1: none
  PipelineOrder pipeline_order = PipelineOrder::kOneForwardOneBackward;  // interleaved with virtual_stages > 1
  bool sequence_parallel = true;                                         // with tp > 1
  CpMethod cp_method = CpMethod::kRing;
  bool overlap_tp = false;  // async TP, user buffers

  int64_t sequence_length = 4096;
  int64_t micro_batch = 1;  // sequences per data-parallel rank per forward
  int64_t gradient_accumulation = 1;
  bool sync_each_batch = false;  // accelerate's: each micro-batch reduces its gradients
  BackwardPrefetch backward_prefetch = BackwardPrefetch::kPre;
  // Megatron's: gradients are reduced beside the last backward, and updated parameters gathered beside the next forward.
  bool overlap_grad_reduce = true, overlap_param_gather = true;
  int64_t scheduled_micro_batches = 0;  // in one run of a pipeline's schedule, where a step takes several; 0: all of the step
  SampleLengths sample_lengths;         // replay: reserved bytes depend on the order of lengths
  bool padding_counted = true;          // in tokens per second; else samples alone (torchtune, NeMo Automodel)
  double mean_sequence_fraction = 1;    // of padded or packed data: mean document length over sequence_length, for attention FLOPs

  std::string program = "torchtitan_eager";                 // presets/programs/<id>.yaml
  std::shared_ptr<const replay::BlockProgram> own_program;  // of --presets DIR; nullptr: the built-in one of that id
  bool fused_norm = false, fused_rope = false, fused_swiglu = false, compiled = false;
  int64_t mlp_tile = 0;  // tokens that go through an MLP at once, forward and again in backward (DeepSpeed's TiledMLP); 0: all
  LossHead loss = LossHead::kEager;
  int loss_chunks = 8;
  double loss_bytes_per_logit = 0;  // time: bytes a logit that a loop's own loss moves beside its products; 0: those of `loss`
  bool torch_delta_rule = false;    // Gated DeltaNet by PyTorch's operations, as Transformers has it without flash-linear-attention
  bool flash_attention = true;
  int flash_package = 0;  // 2 to 4: FlashAttention of that generation is installed and asked for; 0: what the stack takes by itself
  ActivationRecompute recompute = ActivationRecompute::kNone;
  int recompute_every_k = 0;
  int recompute_layers = 0;                    // kFull: only the first n layers of each (virtual) stage; 0 = all
  std::vector<std::string> recompute_modules;  // Megatron's --recompute-modules, beside `recompute`
  double expert_imbalance = 1;  // rows the busiest expert rank gets over the mean; 1 = forced balance or a capacity of 1
  ExpertDispatch expert_dispatch = ExpertDispatch::kAllToAll;
  bool overlap_experts = false;    // another micro-batch computes while rows travel (Megatron's overlap_moe_expert_parallel_comm)
  bool ungrouped_experts = false;  // one product per expert in turn (Megatron without --moe-grouped-gemm)
  int mtp_layers = 0;              // multi-token prediction: each a block, a projection of 2 h and the head once more
  bool grouped_experts = false;    // by kernels that a tool brings, where the program's release runs them in turn (ScatterMoE)
  bool adapters_in_turn = false;   // adapters of experts: one expert's rows after the other, and the frozen products with them
  bool dropout = false;            // of attention's probabilities and after both halves of a block
  double graphed = 0;              // share of a layer's kernels that CUDA graphs launch
  int memory_stage = -1;           // whose bytes are asked for: of this pipeline rank; -1: of the fullest
  int recompute_parts = 1;         // of a block, each recomputed by itself from its own input (NeMo Automodel: norms, attention, MLP)
  bool reentrant_checkpoint = false;

  Dtype compute = Dtype::kBf16;
  Fp8Recipe fp8 = Fp8Recipe::kNone;
  bool fp8_all_gather = false;          // FSDP2 gathers the blocks' matrices in fp8 (torchao)
  Dtype parameter_dtype = Dtype::kF32;  // of the (sharded) parameters
  Dtype gradient_dtype = Dtype::kF32;   // of the (sharded) gradients between backward and step
  Dtype reduce_dtype = Dtype::kF32;     // on the wire
  Dtype state_dtype = Dtype::kF32;      // of the moments
  bool master_copy = false;             // fp32 master beside 16-bit parameters (DeepSpeed, Megatron)
  double master_bytes = 4;  // of it: 2 where only what bf16 leaves out is kept (Transformer Engine, store_param_remainders)
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  OptimizerImplementation optimizer_implementation = OptimizerImplementation::kFused;
  bool paged_optimizer = false;
  Finetune finetune = Finetune::kFull;
  Lora lora;
  bool quantized_experts =
      false;  // qlora: stacks of experts too, which bitsandbytes leaves as they are (axolotl's quantize_moe_experts)
  Dtype frozen_dtype = Dtype::kBf16;  // of the base weights with lora and qlora
  bool autocast = false;              // torch.autocast around forward: fp32 adapters compute in 16 bit
  OffloadPlan offload;
  double offloaded_states = 1;    // of the optimizer's states, where they are offloaded at all
  bool host_gradients = false;    // gradients add up in host memory, a layer at a time (LLM.Q)
  bool frozen_reference = false;  // DPO: a second, frozen copy of the model

  int64_t reduce_bucket_elements = 0, prefetch_bucket_elements = 0, max_live_parameters = 0;  // DeepSpeed; 0 = its defaults
  Software software;

  const FrameworkTraits& traits() const { return traits_of(framework); }
  int world() const { return dp_replicate * dp_shard * cp * tp * pp; }
  // Of a 4-bit model that peft alone prepared: what is not 4-bit, and with it what is computed.
  bool stays_in_fp32() const { return finetune == Finetune::kQlora && software.unquantised_in_fp32 && !autocast; }
  bool runs_transformers() const { return program.starts_with("hf_"); }  // a class of Transformers
  // FSDP2 as Transformers' Trainer and TRL drive it.
  bool is_transformers_fsdp2() const { return framework == Framework::kFsdp2 && runs_transformers(); }
  // torch.compile of a whole script (presets/programs/unknown_compiled.yaml): its head is in the graph, too.
  bool is_one_graph() const { return compiled && program == "unknown_compiled"; }
  bool accumulates_whole() const {
    return (software.accumulates_whole && !sync_each_batch) || (pp > 1 && traits().pipelines_reduce_last);
  }
  bool stays_gathered() const {  // from one micro-batch to the next
    return !reshard_after_forward && (software.stays_gathered || (pp > 1 && traits().pipelines_reduce_last));
  }
  int64_t tokens() const { return micro_batch * sequence_length / cp; }  // T: of a micro-batch on one rank
  double tokens_per_step() const {
    return static_cast<double>(micro_batch * gradient_accumulation) * dp_replicate * dp_shard * static_cast<double>(sequence_length);
  }
  bool operator==(const Setup&) const = default;
};

}  // namespace distsetup
