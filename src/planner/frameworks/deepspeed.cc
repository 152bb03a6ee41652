// What a rank of DeepSpeed holds, stage by stage of ZeRO (deepspeed/runtime/zero, read at edaa722, 2026-08; section numbers of the
// ZeRO paper, arXiv 1910.02054):
//   0, 1, 2  16-bit parameters in one flat buffer on every rank; master and moments of the rank's share (all of them in stage 0)
//   gradients  0, 1: a tensor per parameter until the step; 2: the share alone, and a running sum when micro-batches accumulate
//   3        parameters, gradients and states of the share; gathered parameters within a budget of live elements; small ones stay
//   bf16 with stage 1 and gradients that add up in fp32 (runtime/bf16_optimizer.py): autograd's 16-bit gradients stay until the next
//   step zeroes them, and whole fp32 ones lie beside them from the start
//   whole buckets  two reduce buckets in backward (stage 3: one, for the whole run), gather bucket at the end of the step step
//   gradients of the share in fp32 beside the states
// Offload moves master and moments (and the fp32 gradient) to pinned host memory, or parameters too; NVMe keeps only swap buffers
// there. hpZ (ZeRO++, arXiv 2306.10209) keeps a second 16-bit copy of the parameters, shared by fewer ranks, from which backward
// gathers; MiCS (arXiv 2205.00119) shared all states in smaller groups until 0.19.8: dp_shard with dp_replicate. Layers, heads and
// pipelines come from lifetimes (stages.h), so that 3D parallelism with Megatron's layers is the same arithmetic. Leaves out: sparse
// gradients, ZenFlow, ZeRO++ quantised buffers, MoE of DeepSpeed itself, tiling.
#include "planner/frameworks/deepspeed.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "planner/frameworks/libraries.h"
#include "planner/frameworks/stage_replay.h"
#include "planner/frameworks/stages.h"
#include "planner/frameworks/state_bytes.h"
#include "planner/frameworks/zero_host.h"

namespace distsetup {
namespace {

// Defaults of deepspeed/runtime/zero/config.py, in elements.
constexpr double kGatherBucket = 5e9, kPrefetchBucket = 5e7, kMaxLive = 1e9, kSubGroup = kZeroSubGroup;

struct ZeroElements {
  double all = 0;      // of the rank's pipeline stage, on this tensor-parallel rank
  double trained = 0;  // all, or the adapters
  double quantized = 0;
  double layer = 0, largest = 0, small = 0;
  double share = 1;  // ranks that share the states
};

// Over the layers of a stage, dense ones and those with experts.
double over_layers(const TracedLayers& traced, const StageLayers& stage, int64_t TracedBlock::*elements) {
  return static_cast<double>((stage.num_layers - stage.num_expert_layers) * (traced.blocks[0].*elements) +
                             stage.num_expert_layers * (traced.blocks[1].*elements));
}

double hf_adapter_elements(const Setup& s, const StageParts& parts, const StageLayers& stage) {
  if (parts.traced) return over_layers(*parts.traced, stage, &TracedBlock::adapter_elements);
  const Geometry& g = s.model;
  const Lora& l = s.lora;
  const int64_t q = g.num_heads * g.head_size, kv = g.num_kv_heads * g.head_size, h = g.hidden, f = g.feed_forward;
  const auto one = [&](bool on, int64_t in, int64_t out) { return on ? l.rank * (in + out) : 0; };
  const int64_t of_layer = one(l.query, h, q) + one(l.key, h, kv) + one(l.value, h, kv) + one(l.output, q, h) +
                           one(l.gate && g.gated_mlp, h, f) + one(l.up, h, f) + one(l.down, f, h);
  return static_cast<double>(stage.num_layers * of_layer);
}

ZeroElements zero_elements(const Setup& s, const StageParts& parts, const LayerSymbols& symbols, const StageLayers& stage) {
  const StageElements elements = stage_elements(s, parts, symbols, stage);
  ZeroElements out;
  out.all = static_cast<double>(elements.dense + elements.expert);
  out.trained = s.finetune == Finetune::kFull ? out.all : hf_adapter_elements(s, parts, stage);
  const double head = static_cast<double>(head_elements(parts, symbols));
  const double outside =
      (stage.has_embedding ? head : 0) + (stage.has_head && !(s.model.tied_embeddings && stage.has_embedding) ? head : 0);
  out.layer = (out.all - outside) / static_cast<double>(std::max<int64_t>(1, stage.num_layers));
  out.largest = std::max(stage.has_head || stage.has_embedding ? head : 0, out.layer / 2);
  if (s.finetune == Finetune::kQlora && parts.traced)  // bitsandbytes replaces linear layers of the blocks
    out.quantized = over_layers(*parts.traced, stage, &TracedBlock::linear_elements);
  if (parts.traced && s.model.num_experts > 0) {  // layers differ, and a stack of experts is one parameter
    out.layer = 0;
    for (const TracedBlock& block : parts.traced->blocks) {
      double elements_of_block = 0;
      for (const int64_t elements_of_weight : block.weights) {
        elements_of_block += static_cast<double>(elements_of_weight);
        out.largest = std::max(out.largest, static_cast<double>(elements_of_weight));
      }
      out.layer = std::max(out.layer, elements_of_block);
    }
  }
  out.small = static_cast<double>(stage.num_layers * s.model.norms_per_layer * s.model.hidden);
  out.share = static_cast<double>(s.dp_shard) * s.cp;
  return out;
}

double or_default(int64_t given, double otherwise) { return given > 0 ? static_cast<double>(given) : otherwise; }

// Bytes of one rank, by what they are; `backward` lives while gradients are made, `step` while the optimizer runs.
struct ZeroBytes {
  double parameter = 0, second_copy = 0, optimizer = 0;  // second_copy: from the first forward on
  double gradient_before = 0, gradient = 0;              // in the forward of a later micro-batch; at the end of backward
  double main_gradient = 0;                              // whole, in fp32, for the whole run
  double live_loss = 0, live_layer = 0;                  // gathered parameters at the end of forward; while a layer runs
  double bucket = 0, bucket_always = 0;                  // in backward; for the whole run
  double step_gradient = 0;                              // gradients that are still there in the step
  double step_flat = 0, step_fp32 = 0, step_update = 0;  // made of them one after the other: in 16 bits, flat; in fp32; of the update
  double step_norm = 0;                                  // before that, a gradient in double precision, for its norm
  double step_gather = 0;                                // what updated parameters are gathered into
  double leaving_head = 0, leaving_layer = 0;            // beside a gradient of the head, of a layer, on its way to the host
  double load = 0, host = 0, checkpoint = 0;
  double step_temporary() const { return std::max({step_norm, step_flat + step_fp32, step_fp32 + step_update}); }
};

// runtime/engine.py, _do_optimizer_sanity_check.
bool runs_bf16_optimizer(const Setup& s) {
  return s.sharding == Sharding::kZero1 && s.parameter_dtype == Dtype::kBf16 && s.gradient_dtype == Dtype::kF32 &&
         s.offload.optimizer == OffloadPlace::kNone;
}

void add_optimizer(const Setup& s, const ZeroElements& n, const StateBytes& states, ZeroBytes& out) {
  const double share = s.sharding == Sharding::kDdp ? 1 : n.share;
  // Sub-groups that stay: master, moments and a gradient of their own in fp32 from the start (zero/stage3.py,
  // _create_fp32_partitions, initialize_optimizer_states); torch's AdamW makes one temporary of a sub-group after the other.
  const double kept = optimizer_elements_on_device(s, n.trained / share), moved = 1 - kept / std::max(1.0, n.trained / share);
  if (kept > 0) {
    out.optimizer = kept * states.optimizer;
    out.main_gradient = 4 * kept;
    out.step_update = 4 * std::min(kept, kSubGroup);
  }
  const double state_bytes_here = n.trained * states.optimizer / share;
  const double paged = n.trained * (stored_state_bytes(s).optimizer - states.optimizer) / share;
  // Without an fp32 master the optimizer takes gradients as they are, in one flat copy.
  const double fp32_gradient = (s.master_copy                  ? 4
                                : s.sharding == Sharding::kDdp ? 0
                                                               : bytes_of(s.parameter_dtype)) *
                               n.trained / share;
  const double ranks = s.gpus_per_node;
  if (s.offload.optimizer == OffloadPlace::kNone) {
    out.optimizer = state_bytes_here;
    out.host += ranks * paged;
    // Stage 3 goes sub-group by sub-group (zero/stage3.py, _prepare_sub_group), stages 1 and 2 convert the whole share; stage 0 has
    // fp32 copies of all gradients and then a flat one (runtime/fp16/fused_optimizer.py).
    const double largest = s.sharding == Sharding::kZero3 ? kSubGroup : n.trained;
    out.step_fp32 = runs_bf16_optimizer(s)           ? 0
                    : s.sharding == Sharding::kZero3 ? std::min(fp32_gradient, 4 * largest)
                    : s.sharding == Sharding::kDdp   ? 2 * fp32_gradient
                                                     : fp32_gradient;
    // flatten_dense_tensors(..).to(fp32), in both files
    if (s.sharding != Sharding::kDdp && s.master_copy) out.step_flat = out.step_fp32 / 2;
    // One gradient after the other, of the share (get_grad_norm_direct).
    if (s.sharding != Sharding::kDdp && s.finetune == Finetune::kFull && !runs_bf16_optimizer(s))
      out.step_norm = 8 * (s.sharding == Sharding::kZero3 ? n.largest / share : std::min(n.largest, n.trained / share));
    // An fp32 update, and one more of it while it is scaled (transformers/optimization.py, Adafactor.step).
    if (s.optimizer == OptimizerKind::kAdafactor) out.step_update += 2 * std::min(4 * n.trained / share, 4 * largest);
    if (s.optimizer_implementation == OptimizerImplementation::kForeach)
      out.step_update += std::min(4 * n.trained / share, 4 * largest);
    return;
  }
  const double master = moved * (s.master_copy ? 4 : bytes_of(s.parameter_dtype)) * n.trained / share;
  out.host += ranks * host_optimizer_bytes(s, master, std::max(0.0, moved * state_bytes_here - master));
  if (s.sharding != Sharding::kZero3) out.bucket_always += 2 * n.largest;  // stage_1_and_2.py, temp_grad_buffer_for_gpu_offload
}

void add_parameters(const Setup& s, const ZeroElements& n, const StateBytes& states, ZeroBytes& out) {
  const bool sharded = s.sharding == Sharding::kZero3;
  const bool full = s.finetune == Finetune::kFull;
  const double copies = holds_reference(s) ? 2 : 1, held = full ? states.parameter : std::max(2.0, bytes_of(s.frozen_dtype));
  const double adapters = full ? 0 : n.trained * states.parameter;
  const double whole = copies * ((n.all - n.quantized) * held + n.quantized * bytes_of(s.frozen_dtype)) + adapters;
  out.parameter = sharded ? whole / n.share + states.parameter * n.small * (1 - 1 / n.share) : whole;
  out.load = sharded ? out.parameter : whole + (full ? whole : adapters);  // trained ones are flattened beside the originals
  if (!sharded) return;
  // partition_parameters.py, _partition_param_sec: made when a parameter is given back in forward, kept, on the device of the first.
  const double second = s.hpz > 1 ? whole / s.hpz : 0;
  (s.offload.parameters == OffloadPlace::kNone ? out.second_copy : out.host) +=
      s.offload.parameters == OffloadPlace::kNone ? second : s.gpus_per_node * second;
  if (s.offload.parameters == OffloadPlace::kHost) {
    out.host += s.gpus_per_node * static_cast<double>(pinned_bytes(static_cast<int64_t>(out.parameter)));
    out.parameter = states.parameter * n.small;
  } else if (s.offload.parameters == OffloadPlace::kNvme) {
    out.host += s.gpus_per_node * 5.0 * 1e8 * states.parameter;  // buffer_count 5, buffer_size 1e8 (offload_config.py)
    out.parameter = states.parameter * n.small;
  }
  if (n.share <= 1 && s.offload.parameters == OffloadPlace::kNone) return;
  // Parameters that backward will use within max_reuse_distance are not given back (partitioned_param_coordinator.py,
  // __params_to_release): about half of it at the turn from forward to backward. Prefetch comes on top, within max_live_parameters.
  const double max_live = or_default(s.max_live_parameters, kMaxLive),
               prefetch = or_default(s.prefetch_bucket_elements, kPrefetchBucket);
  out.live_loss = 2 * std::min(n.all, std::min(max_live, max_live / 2 + n.largest));
  out.live_layer = 2 * std::min(n.all, std::min(max_live, n.layer + prefetch + n.layer / 2));
}

void add_gradients(const Setup& s, const ZeroElements& n, ZeroBytes& out) {
  // A buffer has as many elements as were asked for, however few are reduced (stage_1_and_2.py, backward; stage3.py). A pipeline's is
  // made when its last backward is over (reduce_gradients).
  const double each = bytes_of(s.gradient_dtype), buffer = or_default(s.reduce_bucket_elements, kReduceBucket);
  const double buffers = n.share > 1 ? 2 * 2 * (s.pp > 1 ? std::min(n.trained, buffer) : buffer) : 0;
  const bool accumulates = s.gradient_accumulation > 1, offloaded = s.offload.optimizer != OffloadPlace::kNone;
  switch (s.sharding) {
    case Sharding::kDdp:
    case Sharding::kZero1:
      if (runs_bf16_optimizer(s)) {
        out.main_gradient = 4 * n.trained;
        out.gradient = out.gradient_before = out.step_gradient = 2 * n.trained;
        // Until 2023-01 a list of shards was gathered, which torch.distributed does through one tensor of all of them, here of up to
        // 5e9 elements (allgather_bucket_size); all_gather_into_tensor needs none.
        const bool lists = s.software.released > 0 && s.software.released < 202301;
        if (lists && n.share > 1) out.step_gather = 2 * std::min(n.trained, kGatherBucket);
        break;
      }
      out.gradient = each * n.trained;
      out.gradient_before = accumulates ? out.gradient : 0;
      out.step_gradient = out.gradient;
      out.bucket = s.sharding == Sharding::kZero1 ? buffers : 0;
      break;
    case Sharding::kZero2:
      out.gradient = offloaded ? 0 : (2 + (accumulates ? each : 0)) * n.trained / n.share;
      out.gradient_before = offloaded || !accumulates ? 0 : each * n.trained / n.share;
      out.step_gradient = out.gradient;
      out.bucket = buffers;
      break;
    case Sharding::kZero3:
      out.gradient = out.gradient_before = out.step_gradient = offloaded ? 0 : each * n.trained / n.share;
      out.bucket_always += 2 * buffer;
      out.bucket = 2 * std::min({buffer, n.trained, n.layer}) + 2 * n.largest;  // flattened to be scattered, and one that is too large
      if (s.finetune != Finetune::kFull) break;
      out.leaving_head = leaving_gradient_bytes(s, n.largest);
      out.leaving_layer = leaving_gradient_bytes(s, n.layer / 3);  // the largest of a layer's: of GPT's, 4 of 12 h²
      break;
  }
  if (s.sharding == Sharding::kZero2 && offloaded) out.bucket += 2 * n.layer;
}

struct ZeroPeak {
  double allocated = 0, activation = 0, logits = 0, gathered = 0, gradient = 0, communication = 0, workspace = 0;
  const char* phase = "backward";
};

void consider(ZeroPeak& best, const ZeroPeak& candidate, const ZeroBytes& bytes) {
  ZeroPeak with = candidate;
  with.allocated = bytes.parameter + bytes.second_copy + bytes.optimizer + bytes.main_gradient + candidate.activation +
                   candidate.logits + candidate.gathered + candidate.gradient + candidate.communication + candidate.workspace;
  if (with.allocated > best.allocated) best = with;
}

struct RankReport {
  ZeroBytes bytes;
  ZeroPeak peak;
  double host_activations = 0;  // per node
  double forward = 0, loss = 0, backward = 0, step = 0, evaluate = 0, pipe = 0;
};

RankReport rank_report(const Setup& s, const StageParts& parts, const LayerSymbols& symbols, const StageLayers& stage, bool first) {
  const ZeroElements n = zero_elements(s, parts, symbols, stage);
  const StateBytes states = state_bytes(s);
  RankReport out;
  ZeroBytes& b = out.bytes;
  add_parameters(s, n, states, b);
  add_gradients(s, n, b);
  add_optimizer(s, n, states, b);
  const double stored = stored_state_bytes(s).optimizer;
  b.checkpoint = s.sharding == Sharding::kZero3 ? n.trained * std::max(4.0, stored) : n.trained * (2 + stored);
  const StageActivations a = stage_activations(s, parts, symbols, stage);
  // runtime/pipe/engine.py: each micro-batch in flight keeps a clone of what the stage received and what it sent; one gradient each
  // way.
  const double hidden = 2.0 * static_cast<double>(s.model.hidden * s.tokens());
  const double kept = static_cast<double>(stage.in_flight) * ((first ? 0 : 1) + (stage.has_head ? 0 : 1)) * hidden;
  const double pipe = s.pp > 1 ? kept + 2 * hidden : 0;
  const double workspace = 2.0 * static_cast<double>(cublas_workspace_bytes(s.gpu));
  const double activation = static_cast<double>(a.layer_peak), loss = static_cast<double>(a.loss_peak);
  const double logits = static_cast<double>(a.logits_bytes), always = b.bucket_always + pipe;
  out.pipe = pipe;
  // A tensor for every layer and micro-batch, each pinned by itself.
  const int64_t of_layer = (a.kept + a.offloaded) / std::max<int64_t>(1, stage.num_layers * stage.in_flight);
  if (a.offloaded > 0 && of_layer > 0) {
    const int64_t num_tensors = a.offloaded / of_layer;
    out.host_activations = s.gpus_per_node * static_cast<double>(num_tensors * pinned_bytes(of_layer));
  }
  ZeroPeak best;
  consider(best, {0, activation, 0, b.live_layer, b.gradient, always + b.bucket + b.leaving_layer, workspace, "backward"}, b);
  const double leaving = b.leaving_head > 0 ? b.bucket + b.leaving_head : 0;  // before the last layer is recomputed
  consider(best, {0, static_cast<double>(a.kept), 0, b.live_loss, b.gradient_before, always + leaving, workspace, "backward"}, b);
  out.backward = best.allocated;
  if (loss > 0) {
    ZeroPeak at_loss;
    // The head's own gradient is there before a bucket takes it.
    const bool own = s.loss == LossHead::kLiger || s.loss == LossHead::kCutCrossEntropy ||
                     s.loss == LossHead::kChunkedHead;  // the head makes it itself, in forward
    const double head_gradient = s.finetune == Finetune::kFull && !own ? 2.0 * static_cast<double>(head_elements(parts, symbols)) : 0;
    consider(at_loss, {0, loss - logits, logits, b.live_loss, b.gradient_before + head_gradient, always, workspace, "loss"}, b);
    out.loss = at_loss.allocated;
    if (at_loss.allocated > best.allocated) best = at_loss;
  }
  ZeroPeak step;
  consider(step, {0, 0, 0, b.step_gather, b.step_gradient + b.step_temporary(), b.bucket_always, workspace, "optimizer"}, b);
  out.step = step.allocated;
  if (step.allocated > best.allocated) best = step;
  ZeroPeak forward;
  consider(forward, {0, static_cast<double>(a.kept), 0, b.live_loss, b.gradient_before, always, workspace, "forward"}, b);
  out.forward = forward.allocated;
  if (forward.allocated > best.allocated) best = forward;
  const double fixed = b.parameter + b.second_copy + b.optimizer + b.main_gradient + b.bucket_always + workspace;
  out.evaluate = fixed + b.live_layer + static_cast<double>(a.evaluate_peak);
  out.peak = best;
  return out;
}

int64_t rounded(double bytes) { return static_cast<int64_t>(std::llround(bytes)); }

// Flat buffers are single allocations; gradients of stages 0 and 1 are one per weight.
StageBuffers stage_buffers(const Setup& s, const StageParts& parts, const LayerSymbols& symbols, const RankReport& rank,
                           const StageLayers& stage) {
  StageBuffers out;
  const ZeroBytes& b = rank.bytes;
  const double master = s.master_copy ? 4.0 / std::max(1.0, state_bytes(s).optimizer) * b.optimizer : 0;
  out.from_start = {rounded(b.parameter), rounded(master), rounded(b.bucket_always), rounded(rank.peak.workspace), rounded(rank.pipe)};
  if (b.second_copy > 0) out.from_start.push_back(rounded(b.second_copy));
  if (b.main_gradient > 0) out.from_start.push_back(rounded(b.main_gradient));
  if (s.sharding == Sharding::kDdp || s.sharding == Sharding::kZero1) {
    out.from_backward = weight_sizes(parts, symbols, stage, rounded(b.gradient));
  } else {
    out.from_backward = {rounded(b.gradient)};
  }
  out.reduces_at_once = s.sharding == Sharding::kZero2 || s.sharding == Sharding::kZero3;
  // A step with gradients of zero makes the moments before training begins (initialize_optimizer_states).
  for (int moment = 0; moment < 2; ++moment) out.from_start.push_back(rounded((b.optimizer - master) / 2));
  const bool copies_each = s.sharding == Sharding::kDdp && s.pp == 1 && b.step_fp32 > 0;  // a pipeline's, measured once, take more
  out.at_start = {rounded(copies_each ? b.step_fp32 / 2 : b.step_fp32), rounded(b.step_update)};
  // A pipeline reduces at the end of the step, others bucket by bucket in backward.
  (s.pp > 1 ? out.in_optimizer : out.in_backward) = {rounded(b.bucket / 2), rounded(b.bucket / 2)};
  out.in_backward.push_back(rounded(std::max(b.live_layer, b.live_loss)));
  out.leaving_head = rounded(b.leaving_head);
  out.leaving_layer = rounded(b.leaving_layer);
  out.norm = rounded(b.step_norm);
  out.flat_gradient = rounded(b.step_flat);
  std::vector<int64_t> in_fp32 = copies_each ? weight_sizes(parts, symbols, stage, out.at_start[0]) : std::vector<int64_t>{};
  in_fp32.push_back(out.at_start[0]);
  out.in_optimizer.insert(out.in_optimizer.begin(), in_fp32.begin(), in_fp32.end());
  out.in_optimizer.push_back(rounded(b.step_update));
  out.in_optimizer.push_back(rounded(b.step_gather));
  return out;
}

MemoryEstimate estimate_of(const Setup& s, const RankReport& rank) {
  MemoryEstimate out;
  const ZeroPeak& peak = rank.peak;
  out.peak_phase = peak.phase;
  const auto add = [&](const char* name, double bytes, double most, const char* phase) {
    if (rounded(std::max(bytes, most)) <= 0) return;
    out.terms.push_back({name, rounded(bytes), rounded(std::max(bytes, most)), phase});
    out.allocated_bytes += rounded(bytes);
  };
  const ZeroBytes& b = rank.bytes;
  add("parameter shard", b.parameter, b.parameter, "load");
  add("second copy (hpZ)", b.second_copy, b.second_copy, "forward");
  add("gathered parameter", peak.gathered, std::max(b.live_loss, b.live_layer), "loss");
  add("gradient", b.main_gradient + peak.gradient, b.main_gradient + std::max(b.gradient, b.step_gradient + b.step_temporary()),
      "optimizer");
  add("optimizer state", b.optimizer, b.optimizer, "optimizer");
  add("activation", peak.activation, peak.activation, peak.phase);
  add("logits", peak.logits, peak.logits, "loss");
  add("communication", peak.communication, b.bucket_always + b.bucket, "backward");
  add("workspace", peak.workspace, peak.workspace, peak.phase);
  // The flat copy of all parameters is made on the host where the GPU has no room for it (zero/stage_1_and_2.py).
  const bool flat_on_host = b.load + b.optimizer > static_cast<double>(s.gpu.usable_memory_bytes);
  out.by_phase = {{"load", rounded((flat_on_host ? b.parameter : b.load) + b.optimizer)},
                  {"forward", rounded(rank.forward)},
                  {"loss", rounded(rank.loss)},
                  {"backward", rounded(rank.backward)},
                  {"optimizer", rounded(rank.step)},
                  {"evaluate", rounded(rank.evaluate)},
                  {"save", rounded(b.parameter + b.second_copy + b.optimizer + b.main_gradient + b.bucket_always)}};
  std::erase_if(out.by_phase, [](const PhaseMemory& phase) { return phase.allocated_bytes == 0; });
  for (PhaseMemory& phase : out.by_phase) {  // terms are rounded one by one
    if (phase.phase == out.peak_phase) phase.allocated_bytes = out.allocated_bytes;
    if (phase.phase != "load") phase.allocated_bytes = std::min(phase.allocated_bytes, out.allocated_bytes);
  }
  return out;
}

}  // namespace

MemoryEstimate deepspeed_memory(const Setup& s, Depth depth) {
  const LifetimeProgram& program = lifetime_program(s);
  const LayerSymbols symbols = layer_symbols(s, program);
  const StageParts parts = stage_parts(s, program);
  RankReport fullest;
  StageLayers fullest_stage;
  double host = 0, checkpoint = 0;
  bool first = true;
  for (const StageLayers& stage : pipeline_stages(s)) {
    const RankReport rank = rank_report(s, parts, symbols, stage, first);
    first = false;
    host = std::max(host, rank.bytes.host + rank.host_activations);
    checkpoint += rank.bytes.checkpoint * s.tp;
    if (rank.peak.allocated > fullest.peak.allocated) {
      fullest = rank;
      fullest_stage = stage;
    }
  }
  MemoryEstimate out = estimate_of(s, fullest);
  out.host_bytes_per_node = rounded(host);
  out.checkpoint_bytes = rounded(checkpoint);
  if (depth == Depth::kReplay)
    replay_into(out, s, parts, symbols, fullest_stage, stage_buffers(s, parts, symbols, fullest, fullest_stage));
  return out;
}

}  // namespace distsetup
