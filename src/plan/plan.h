// Plan: the answer, complete. Whoever reads it looks nothing up and decides nothing. plan.json is its text form, byte for byte what
// `distsetup plan --json` prints; to_json(from_json(text)) == text.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "base/json_fwd.h"
#include "model/dtype.h"
#include "model/geometry.h"
#include "plan/mesh.h"
#include "plan/offload_plan.h"

namespace distsetup {

inline constexpr int kPlanSchemaVersion = 1;
inline constexpr std::string_view kNative = "native";  // the bundled trainer, its program, and the target written for it
inline constexpr std::string_view kDpo = "dpo";
inline constexpr std::string_view kIgnore = "ignore", kNote = "note", kStop = "stop", kSkip = "skip";  // GuardPlan
inline constexpr std::string_view kAdafactor = "adafactor", kMuon = "muon";                            // optimizers
inline constexpr std::string_view kOriginalRate = "original", kMatchAdamW = "match_rms_adamw";         // MuonPlan::adjust_lr
inline constexpr std::string_view kRandomInit = "random", kWeightsInit = "weights";                    // what parameters start from

enum class Verdict { kFits, kTight, kDoesNotFit };
enum class Sharding { kDdp, kZero1, kZero2, kZero3 };
enum class Recompute { kNone, kSelective, kKeepAttention, kFull, kEveryK };
// How the learning rate goes on after the warm-up (runtime/optim/learning_rate.h).
enum class LearningRateSchedule { kCosine, kLinear, kConstant, kWsd, kInverseSqrt, kStep };
// Which number says how good a checkpoint is; the smaller the better.
enum class CheckpointMetric { kHeldOutLoss, kLoss };
enum class Accelerator { kCuda, kCpu };
// Which shapes of output tiles a GPU's matrix products choose from: of one multiprocessor, of two together, or without tensor cores.
enum class GemmTiles { kOneSm, kTwoSm, kNoTensorCores };

// What the bundled trainer's operations reach on a GPU at the plan's compute type: from measured runs and the data sheet (the
// planner's calibration and presets), settled when the plan is made, so that its seconds follow from the plan alone. Formulas:
// planner/time. All 0 on CPU, where an operation takes the longer of its FLOPs and its bytes at fixed shares of the peaks, and in
// plans of others.
struct RatesPlan {
  int64_t num_sm = 0;
  GemmTiles gemm_tiles = GemmTiles::kOneSm;
  double gemm_flops_per_s = 0;       // of large products
  double gemm_burst = 0;             // more of it for short ones: (1 + burst / (1 + FLOPs / 2e11))
  double gemm_k_half = 0;            // prologue and epilogue of a tile, as if k were longer by this
  double gemm_misaligned_share = 0;  // of the rate, where rows are no multiples of 16 bytes
  double gemm_bytes_per_s = 0;       // operands and results of products
  double kernel_s = 0;               // one operation takes at least
  double attention_forward_flops_per_s = 0, attention_backward_flops_per_s = 0;  // causal FLOPs, the half that is needed
  double attention_half_positions = 0;                                           // rate of a sequence S: S / (S + half_positions)
  double attention_small_head = 0;                                               // share of the rate at head size 64 and less
  double elementwise_bytes_per_s = 0;                                            // norms, rotary, SwiGLU, embedding
  double loss_bytes_per_logit = 0;
  double optimizer_bytes_per_s = 0;  // of passes over flat buffers: AdamW, casts, sums
  double contention = 0;             // compute slows by this while a transfer runs beside it
  double straggler = 0;              // a step takes (1 + straggler · log2(GPUs)) times as long
  bool operator==(const RatesPlan&) const = default;
};

struct HardwarePlan {
  std::string gpu, gpu_name;  // preset id; as printed: "H100 80 GB SXM"
  Accelerator accelerator = Accelerator::kCuda;
  int nodes = 1, gpus_per_node = 1;
  int64_t memory_bytes = 0;       // what the driver reports as total
  int64_t context_bytes = 0;      // CUDA context, libraries
  int64_t host_memory_bytes = 0;  // per node; 0 = not known
  double peak_flops_per_s = 0;    // at the compute dtype, dense
  double gemm_efficiency = 0;     // sustained share of the peak in large GEMMs, as the preset says; CPU plans are timed with it
  double attention_efficiency = 0;
  RatesPlan rates;
  double memory_bytes_per_s = 0;
  double link_bytes_per_s = 0;     // per GPU, one direction, inside a node
  double network_bytes_per_s = 0;  // per GPU, one direction, between nodes
  double link_latency_s = 0, network_latency_s = 0;
  std::string nic_kind;               // between nodes: infiniband, roce, efa, ...; empty = not known
  double nic_bytes_per_s = 0;         // of a node, nominal, one direction
  double price_usd_per_gpu_hour = 0;  // 0 = not known
  std::string price_source;           // "AWS p5.48xlarge on demand, 2026-11-21"
  bool operator==(const HardwarePlan&) const = default;
};

inline constexpr int kMostInFlight = 8;  // gathers ahead of a unit, reductions behind it
inline constexpr std::string_view kWrapsBlocks = "transformer_based_wrap", kWrapsNothing = "no_wrap";  // accelerate's words
inline constexpr std::string_view kPrefetchPre = "pre", kPrefetchPost = "post", kNoPrefetch = "none";

struct StrategyPlan {
  std::string trainer{kNative};
  std::string program{kNative};  // presets/programs/<id>.yaml: whose operations the blocks run
  std::string loss_head = "eager";
  bool compile = false;
  Sharding sharding = Sharding::kZero3;
  bool reshard_after_forward = true;
  int prefetch = 1;                     // gathers in flight ahead of the unit that computes
  int reductions_in_flight = 1;         // of gradients, beside the backward of units below
  bool hierarchical_reduction = false;  // gradients are reduced within each node first, then across nodes (node_reduction.h)
  int virtual_stages = 1;               // of one pipeline rank
  int hpz = 1;                          // ranks that share a second 16-bit copy of the parameters (ZeRO++); 1: there is none
  bool sequence_parallel = false;       // with tp: norms and residuals are split over the sequence
  std::string cp_method = "ring";
  bool sync_each_batch = false;                 // accelerate's: each micro-batch reduces its gradients, not the last of a step alone
  std::string auto_wrap_policy{kWrapsBlocks};   // what is a unit of FSDP's; kWrapsNothing: the whole model is one
  std::string backward_prefetch{kPrefetchPre};  // FSDP1: when backward gathers the unit below
  bool overlap_grad_reduce = true, overlap_param_gather = true;  // Megatron's: beside the last backward, beside the next forward
  bool operator==(const StrategyPlan&) const = default;
};

struct RecomputePlan {
  Recompute policy = Recompute::kNone;
  int every_k = 0;                   // kEveryK: one block in k is recomputed in full
  std::vector<std::string> dropped;  // tensor names of a block that backward computes again
  bool operator==(const RecomputePlan&) const = default;
};

// With fp16: what the loss, and so every gradient, is multiplied by (runtime/optim/loss_scale.h). The defaults are DeepSpeed's.
struct LossScalePlan {
  int64_t fixed = 0;  // 0: it is found while training
  int64_t initial_power = 16;
  int64_t window = 1000;   // steps without overflow until it doubles
  int64_t hysteresis = 2;  // overflows until it is halved
  int64_t minimum = 1;
  bool operator==(const LossScalePlan&) const = default;
};

struct PrecisionPlan {
  Dtype compute = Dtype::kBf16;
  LossScalePlan loss_scale;
  Dtype reduce = Dtype::kF32;  // sums of gradients are always formed in fp32; the wire carries `compute`
  Dtype master = Dtype::kF32;
  Dtype optimizer_state = Dtype::kF32;
  bool operator==(const PrecisionPlan&) const = default;
};

// How preference pairs are learned from (method dpo). Arithmetic: runtime/kernels/preference.h.
struct PreferencePlan {
  std::string loss = "sigmoid";      // sigmoid | hinge | ipo
  double beta = 0.1;                 // how closely the model is held to the reference
  double label_smoothing = 0;        // with sigmoid: share of the pairs whose order is taken to be wrong
  std::string reference = "cached";  // shared | cached | sharded | none
  bool operator==(const PreferencePlan&) const = default;
};

// What becomes of a step whose loss or gradient norm is not finite, or whose loss is a spike: more than `spike_factor` times the
// median of those before. Decided before the optimizer, the same on every rank (runtime/monitor/step_guard.h).
struct GuardPlan {
  std::string on_nan{kStop};      // stop | skip
  std::string on_spike{kIgnore};  // ignore | note | stop | skip
  double spike_factor = 2;        // read unless spikes are ignored
  int64_t max_skips = 10;         // so many in a row end the run; read where a step can be skipped
  bool watches_spikes() const { return on_spike != kIgnore; }
  bool skips() const { return on_nan == kSkip || on_spike == kSkip; }
  bool operator==(const GuardPlan&) const = default;
};

// What torch.optim.Adafactor is told beside the rate and the decay (arXiv 1804.04235). Its first epsilon is TrainPlan::epsilon.
struct AdafactorPlan {
  double beta2_decay = -0.8;  // step t keeps 1 - t^beta2_decay of the means of squares
  double epsilon2 = 1e-3;     // what the root mean square of a parameter is taken to be at least
  double clip_threshold = 1;  // largest root mean square of an update
  bool operator==(const AdafactorPlan&) const = default;
};
// What torch.optim.Muon is told, and the rate of the AdamW that has what is no matrix of a block. Its momentum is TrainPlan::momentum.
struct MuonPlan {
  bool nesterov = true;
  int64_t newton_schulz_steps = 5;
  std::string adjust_lr{kMatchAdamW};  // original | match_rms_adamw: what the rate of a matrix is multiplied by
  double adam_learning_rate = 0;       // peak; the schedule is the same
  bool operator==(const MuonPlan&) const = default;
};

struct TrainPlan {
  std::string method = "pretrain";  // pretrain | sft | dpo
  std::string finetune = "full";    // full | lora | qlora
  std::string init{kRandomInit};    // random | weights: those of Plan::weights
  int64_t lora_rank = 0;
  // Of the bundled trainer ends of modules' names ("q_proj"), or kAllLinear (tuning.h); of others "query", "value", ...
  std::vector<std::string> lora_targets;
  double lora_alpha = 0;               // with lora_rank the scale of adapters: adapter_scale()
  double lora_dropout = 0;             // the part of what adapters read that is dropped at random
  bool rslora = false;                 // they are scaled by the root of the rank
  std::vector<std::string> trainable;  // patterns of the parameters that are trained; empty: all of them, or adapters
  int64_t sequence_length = 4096;
  PreferencePlan preference;
  int64_t global_batch = 256;  // sequences per optimizer step; of the bundled trainer's dpo: pairs, as micro_batch
  int64_t steps = 1000;
  std::string optimizer = "adamw";
  LearningRateSchedule lr_schedule = LearningRateSchedule::kCosine;
  double learning_rate = 3e-4, min_learning_rate = 3e-5;
  int64_t warmup_steps = 100;
  int64_t lr_decay_steps = 0;  // wsd: the last steps, in which the rate falls; step: those between two falls
  double lr_decay_factor = 0;  // step: what each fall multiplies the rate by
  double weight_decay = 0.1, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
  double momentum = 0;  // sgd and muon; sgd with 0 has no state
  AdafactorPlan adafactor;
  MuonPlan muon;
  double grad_clip = 1.0;  // 0 = no clipping
  GuardPlan guard;
  int64_t evaluate_every = 0;  // steps between two evaluations of held-out data; 0: a tenth of the steps
  int64_t patience = 0;        // a run ends after so many evaluations without a smaller held-out loss; 0: it never does
  int64_t seed = 0;
  bool deterministic = false, cuda_graphs = false;  // on GPUs: the same bits in every run; micro-batches replayed (recorded_step.h)
  bool operator==(const TrainPlan&) const = default;
};

// Steps of a warm-up that is a part of the run, rounded up as Transformers and OpenRLHF do.
int64_t warmup_steps_of(double ratio, int64_t steps);

struct DataFile {
  std::string path;  // relative to plan.data.root
  int64_t bytes = 0;
  std::string sha256;
  bool held_out = false;
  bool operator==(const DataFile&) const = default;
};

inline constexpr std::string_view kByteTokens = "bytes", kPreparedTokens = "prepared";
struct DataPlan {
  // kByteTokens: files of text, token = byte value, vocabulary 256. kPreparedTokens: the files of a prepared data set
  // (src/data/prepared_set.h), in one folder.
  std::string tokenizer{kByteTokens};
  std::string root;             // relative paths are relative to plan.json's directory
  std::vector<DataFile> files;  // empty: the plan cannot be trained, only previewed and emitted
  bool packing = false;         // a row holds several samples, which do not see each other; else each has its own
  bool shuffle = true;          // each epoch in an order of its own; else in that of the set
  bool operator==(const DataPlan&) const = default;
};

// What the parameters start from: published weights.
struct WeightsFile {
  std::string path;  // relative to the folder
  int64_t bytes = 0;
  std::string header_sha256;  // of the safetensors header and the length before it
  bool operator==(const WeightsFile&) const = default;
};
struct WeightsPlan {
  std::string directory;  // a relative one is relative to plan.json's directory
  std::vector<WeightsFile> files;
  bool operator==(const WeightsPlan&) const = default;
};

struct CheckpointPlan {
  std::string directory = "checkpoints";
  int64_t every_steps = 0;  // 0 = at the end only
  int64_t keep = 3;         // the newest so many stay
  int64_t keep_every = 0;   // and those of every so many steps; 0: none for that reason
  int64_t keep_best = 0;    // and so many with the smallest metric
  CheckpointMetric metric = CheckpointMetric::kHeldOutLoss;
  bool async = false;  // training goes on while a copy of the state is written
  bool operator==(const CheckpointPlan&) const = default;
};

struct LaunchPlan {
  std::string target{kNative};
  std::string via;  // what starts the target's files, such as slurm; "" = they are started by hand, or are the job
  std::string site;
  int64_t time_limit_s = 0;  // 0 = not given
  int64_t init_timeout_s = 300;
  int64_t collective_timeout_s = 600;
  bool operator==(const LaunchPlan&) const = default;
};

// One line of the preview. The terms' bytes_at_peak sum to peak_allocated_bytes exactly.
struct MemoryTerm {
  std::string buffer_class;  // "parameter shard", "gathered parameter", ..., "arena packing"
  int64_t bytes_at_peak = 0;
  int64_t bytes_max = 0;  // largest over the step
  std::string phase;      // where bytes_max is reached
  bool operator==(const MemoryTerm&) const = default;
};
struct PhaseMemory {
  std::string phase;  // load | forward | loss | backward | optimizer | evaluate | save
  int64_t allocated_bytes = 0;
  bool operator==(const PhaseMemory&) const = default;
};
struct PeakBuffer {
  std::string name;
  int64_t bytes = 0;
  bool operator==(const PeakBuffer&) const = default;
};
struct MemoryPlan {
  int64_t peak_allocated_bytes = 0;  // run buffers + arena + workspace of library ops
  int64_t peak_reserved_bytes = 0;
  // What the run needs of its device: what the allocator cannot give back, context, communicators. And what it takes where there is
  // room: cached blocks too.
  int64_t device_bytes = 0, unconstrained_device_bytes = 0;
  int64_t capacity_bytes = 0;
  double fit_probability = 0;  // that capacity_bytes are enough, by the interval of device_bytes
  int64_t arena_bytes = 0, live_bytes = 0, workspace_bytes = 0, run_bytes = 0;
  std::string peak_instruction;          // "Backward 41/down_dw micro-batch 0"
  std::vector<PeakBuffer> peak_buffers;  // the three largest live there
  std::vector<MemoryTerm> terms;
  std::vector<PhaseMemory> by_phase;
  struct RankClass {
    std::string name;  // "all ranks"
    int64_t device_bytes = 0;
    int64_t host_bytes = 0;  // HostPlan's, of each stage where there are several
    bool operator==(const RankClass&) const = default;
  };
  std::vector<RankClass> by_rank_class;
  int64_t host_bytes_per_node = 0;
  int64_t disk_bytes_per_node = 0;  // of a local disk, beside checkpoints
  int64_t checkpoint_bytes = 0;     // one checkpoint, all ranks
  // 90 % intervals by residuals of measured runs: of device_bytes (equal: exact) and of unconstrained_device_bytes (0: the same).
  int64_t device_low_bytes = 0, device_high_bytes = 0, unconstrained_low_bytes = 0, unconstrained_high_bytes = 0;
  bool operator==(const MemoryPlan&) const = default;
};

struct InstructionTime {
  std::string op;      // instruction op: "Forward", "AllGather", ...
  double seconds = 0;  // per step, on its own stream, overlapped or not
  bool operator==(const InstructionTime&) const = default;
};
struct TimePlan {
  double step_s = 0, tokens_per_s = 0, tokens_per_s_per_gpu = 0;
  double mfu = 0;                          // model FLOPs with causal attention at half, over peak_flops_per_s
  double hfu = 0;                          // the same with what is computed again
  double step_low_s = 0, step_high_s = 0;  // 90 % interval
  double gpu_hours = 0, cost_usd = 0;      // of all steps; cost 0 = no price known
  double checkpoint_every_s = 0;           // Young's interval for this many GPUs; 0 = one node or no save time known
  std::vector<InstructionTime> by_instruction;
  bool operator==(const TimePlan&) const = default;
};

struct Alternative {
  std::string summary;  // "zero2 · micro-batch 2 · recompute full"
  Verdict verdict = Verdict::kDoesNotFit;
  int64_t device_bytes = 0;
  double fit_probability = 0;
  double step_s = 0;
  std::string why_not;  // the clause that decided
  bool operator==(const Alternative&) const = default;
};

struct Plan {
  Verdict verdict = Verdict::kDoesNotFit;
  Geometry model;
  HardwarePlan hardware;
  Mesh mesh;
  StrategyPlan strategy;
  int64_t micro_batch = 1;
  int64_t gradient_accumulation = 1;
  RecomputePlan recompute;
  OffloadPlan offload;
  HostPlan host;  // read where offload says so
  PrecisionPlan precision;
  TrainPlan train;
  WeightsPlan weights;  // with train.init weights; else empty
  WeightsPlan adapter;  // the folder of adapters (PEFT's) that adapters start from; else empty
  DataPlan data;
  CheckpointPlan checkpoint;
  LaunchPlan launch;
  MemoryPlan memory;
  TimePlan time;
  std::vector<Alternative> alternatives;
  std::vector<std::string> reasons;
  std::vector<std::string> assumptions;
  Diagnostics diagnostics;      // warnings and notes
  std::string inputs_digest;    // of the spec and every preset it used
  std::string schedule_digest;  // of the compiled lists of all rank classes
  bool operator==(const Plan&) const = default;

  // Compiled once, in plan.cc: many files copy and destroy plans.
  Plan();
  Plan(const Plan&);
  Plan(Plan&&) noexcept;
  Plan& operator=(const Plan&);
  Plan& operator=(Plan&&) noexcept;
  ~Plan();
};

inline bool starts_from_weights(const Plan& plan) { return plan.train.init == kWeightsInit; }
inline bool is_native(const Plan& plan) { return plan.strategy.trainer == kNative; }
inline bool offloads_natively(const Plan& plan) { return is_native(plan) && plan.offload != OffloadPlan{}; }
inline bool learns_preferences(const TrainPlan& train) { return train.method == kDpo; }
// Sequences of a sample, which a batch counts: every trainer runs both of a pair in one forward (concatenated_forward of TRL).
inline int64_t sequences_per_sample(const Plan& plan) { return learns_preferences(plan.train) ? 2 : 1; }
// Of one optimizer step, with padding.
inline int64_t tokens_per_step(const Plan& plan) {
  return plan.train.global_batch * sequences_per_sample(plan) * plan.train.sequence_length;
}

// One spelling each, used in JSON, listings and messages.
std::string_view name(Verdict v);
std::string_view name(Sharding v);
std::string_view name(Recompute v);
std::string_view name(Dtype v);
std::string_view name(OffloadPlace v);
std::string_view name(LearningRateSchedule v);
std::string_view name(CheckpointMetric v);
std::string_view name(Accelerator v);

// Divisibility rules that hold for every legal Plan, and of a native one the trainer's capabilities; errors carry the numbers.
Diagnostics validate(const Plan& plan);

// Why the bundled trainer cannot run this plan although it can be planned and emitted: a method it does not train, scaled RoPE, a
// window shorter than the sequence. Empty = it can. Data are checked where they are read.
Diagnostics check_trainable(const Plan& plan);

}  // namespace distsetup
