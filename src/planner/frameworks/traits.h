// How the trainers differ, as named traits: what each can do, which rules its mesh obeys, and what it does its own way in bytes and
// seconds. Code asks for the trait that it depends on, never for the trainer, so that another trainer is one more row of this table
// (and a memory model, frameworks.h). What depends on a release stands in Software and presets/software; what a release can run, in
// presets/trainers.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace distsetup {

struct Setup;
struct MemoryEstimate;
enum class Depth { kSimulate, kReplay };  // of a memory model: live bytes, or every allocation of two steps

// One GPU without any of them: kDdp with one rank. kLean: an engine of hand-written kernels (llm.c, LLM.Q).
enum class Framework { kDdp, kFsdp1, kFsdp2, kDeepspeed, kMegatron, kLean };

// What sharding or accumulation copies in every micro-batch, on the compute stream.
enum class BufferCopies {
  kNone,
  kGradientCast,    // gathered in place; gradients are cast to the type on the wire (FSDP1)
  kFlatBuffers,     // parameters out of the gathered buffer, gradients into the one that is reduced (FSDP2)
  kGradientBucket,  // gradients into a bucket, and under ZeRO-3 parameters back (DeepSpeed)
  kMainGradients    // an addition to the main gradients, until products did it themselves (Megatron)
};

// A month as yyyymm from which on something holds; kNever: not in any release.
inline constexpr int kNever = 999912;

struct FrameworkTraits {
  Framework framework = Framework::kDdp;
  std::string_view id;     // in presets and calibration
  std::string_view label;  // in messages
  MemoryEstimate (*memory)(const Setup& setup, Depth depth) = nullptr;

  // What it can run.
  bool tensor_parallel = true;
  bool pipelines = false;
  bool interleaved_pipelines = false;
  bool pipelines_split_gradients = true;  // a pipeline under ZeRO-2 and ZeRO-3
  bool expert_parallel = false;
  bool second_copies = false;  // hpZ
  bool recomputes_operations = true;
  bool recompute_modules = false;
  bool offloads_parameters = true;
  bool zero_stages_of_offload = false;       // offload is tied to ZeRO stages: the optimizer's from 1 on, parameters and NVMe under 3
  bool accumulation_fills_pipeline = false;  // interleaved stages want an accumulation that divides by pp
  bool block_programs = true;                // its layers are PyTorch's, listed op by op (presets/programs)
  bool lifetime_programs = false;            // or lists of a stage's layers (lifetimes.h)

  // How it shards.
  bool never_shards = false;
  bool zero2_shards_parameters = false;      // parameters are in shards under zero2 too, gathered once for forward and backward
  bool zero2_is_unresharded_zero3 = false;   // and are written as reshard_after_forward: false
  bool flat_parameters = false;              // a unit's parameters are one vector: Adafactor keeps all second moments of a shard
  bool flat_optimizer_states = false;        // the optimizer sees vectors at any stage
  bool experts_borrow_tensor_ranks = false;  // expert parallelism takes all context and tensor ranks before data-parallel ones
  bool expert_tensor_axis = false;     // experts have a tensor axis of their own; else tensor ranks split them, or with ep their rows
  bool pipelines_reduce_last = false;  // a pipeline's ranks reduce gradients after the last micro-batch, and keep what they gathered
  bool memory_reads_schedule = false;  // memory depends on cp_method, and on each further micro-batch
  bool autocast = false;               // forward runs under torch.autocast with adapters
  bool frozen_keep_dtype = false;      // adapters stand beside parameters as they are stored; else those are loaded in 16 bits

  // What it does its own way, in seconds.
  bool own_container = false;                 // runs in NVIDIA's container, whose libraries are newer than those of PyTorch's builds
  bool transformer_engine = false;            // its layers: cuDNN's attention on Hopper, fp8 casts in fused kernels, once a step
  int fused_kernels_since = kNever;           // hand-written kernels between the products
  int reduces_beside_weights_since = kNever;  // tensor parallelism's backward reduction runs beside the weight gradient
  bool joined_matrices = false;               // one matrix makes q, k, v, one gate and up
  bool sums_into_main_gradients = false;      // products add a weight gradient to an fp32 buffer
  bool functional_collectives = true;         // tensor parallelism by PyTorch's, which copy around a sequence and can carry fp8
  bool gathers_fp8_parameters = false;        // with tensorwise scales
  bool wraps_each_parameter = false;          // a DTensor each, which a foreach optimizer unwraps
  BufferCopies copies = BufferCopies::kNone;
  bool python = true;                    // runs its training loop; else nothing waits for an interpreter
  bool own_cpu_adam = false;             // for optimizer states in host memory
  bool sums_gradients_on_host = false;   // of micro-batches, where its optimizer is
  bool python_hooks = false;             // ZeRO's hooks run in Python for every module or gradient
  bool even_stages = false;              // stages of equally many layers where they divide; else both ends count as a layer
  bool stages_split_messages = false;    // without sequence parallelism a TP rank sends its part to the next stage
  bool receives_ahead = false;           // of interleaved stages
  bool gathers_beside_forward = false;   // parameters of a sharded optimizer
  double offloaded_layers = 1;           // share of them whose activations leave for the host
  bool streams_host_states = false;      // states in host memory pass through the GPU, which updates them; else the CPU does
  bool offloads_residual_alone = false;  // of a layer's activations, what offload of activations moves
  bool streams_host_parameters = false;  // parameters in host memory are read whole by every rank, beside the layers
  std::string_view overlap = "torch";    // calibration group of what its overlaps hide
  int record_stream_until = 0;           // month; until then tensor parallelism frees when the CPU notices (PyTorch before 2.4)
  bool measured_experts = false;         // runs with experts are in the accuracy tables
};

const FrameworkTraits& traits_of(Framework framework);
std::optional<Framework> find_framework(std::string_view id);

}  // namespace distsetup
