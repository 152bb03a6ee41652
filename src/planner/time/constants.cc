// Which constants a setup reads. A constant is looked up by the GPU's preset id, then by the GPU's family (the id up to the first
// '_'), by a family of the same die, then by its generation, so that a new GPU without measured runs of its own is predicted by its
// generation and its datasheet.
#include "planner/time/constants.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "planner/frameworks/delta_rule.h"
#include "planner/frameworks/experts.h"
#include "planner/replay/program_file.h"

namespace distsetup {
namespace {

constexpr int kTitanPrefersCudnnSince = 202510;  // torchtitan 6a3a9da95: sdpa_kernel(..., set_priority=True), cuDNN's first
constexpr double kKernelsPerLayer = 25;          // two norms, seven products, rotary, attention, residuals, SwiGLU
constexpr double kModulesPerLayer = 9;           // with parameters: seven products, two norms
constexpr double kModulesPerExpert = 3;
constexpr double kOperation_s = 10e-6;                                 // of the host, for one of PyTorch's operations
constexpr double kUnpackingLaunch_s = 7 * 8 * kOperation_s * 2 / 3.5;  // seven matrices, eight operations, in two of 3.5 passes
// Operations of a layer that DTensor's dispatcher sends on under tensor parallelism: t, view, mm and view of seven products, two
// norms. Each takes 90 us of the host (pytorch PR 159699, test_dtensor_dispatch_overhead.py, 2025-08).
constexpr double kTensorDispatches = 7 * 4 + 2, kTensorDispatch_s = 90e-6;
constexpr int kCurrentSoftware = 202606;  // of a stack whose release is not stated

// Families that share a die share what its tensor cores reach: GH100, GA100 and the dies of B300 (NVIDIA's architecture papers).
std::string measured_sibling(const std::string& family) {
  if (family == "h200" || family == "h800" || family == "gh200" || family == "h20") return "h100";
  if (family == "a800") return "a100";
  return family == "b300" ? "gb300" : family;
}

class ConstantLookup {
 public:
  ConstantLookup(const Setup& setup, const Calibration& calibration) : calibration_(calibration) {
    const std::string& id = setup.gpu.name;
    const std::string family = id.substr(0, id.find('_'));
    names_ = {id, family, measured_sibling(family), std::string(name(gpu_generation(setup.gpu)))};
  }
  // "gemm.<gpu>.efficiency": first of preset id, family, a measured family of the same die, generation.
  double of_gpu(std::string_view group, std::string_view leaf, double fallback) const {
    for (const std::string& gpu : names_) {
      const auto it = calibration_.constants.find(fmt::format("{}.{}.{}", group, gpu, leaf));
      if (it != calibration_.constants.end()) return it->second;
    }
    return fallback;
  }
  // A part that runs at a lower power limit than its family clocks all tensor kernels lower.
  double clock_share() const { return of_gpu("clock", "share", 1); }
  double at(std::string_view constant) const { return calibration_.at(constant); }
  double get(const std::string& constant, double fallback) const { return calibration_.get(constant, fallback); }

 private:
  const Calibration& calibration_;
  std::array<std::string, 4> names_;
};

double year_of(const Setup& s) {
  const int released = s.software.released > 0 ? s.software.released : kCurrentSoftware;
  const int year = released / 100, month = released % 100;
  return year + (month - 1) / 12.0;
}

// NVIDIA's containers, where Megatron, NeMo and Lightning Thunder's benchmarks run, have libraries that PyTorch's own builds get
// later.
bool in_container(const Setup& s) { return s.traits().own_container || s.software.own_container; }

// 0 with the libraries of 2023 (cuBLAS 11 and 12.1), 1 with those tuned for Hopper (from 12.4 on): in containers in the middle of
// 2024; PyTorch's own builds kept 12.1 until 2.4 (July 2024).
double library_maturity(const Setup& s) {
  return in_container(s) ? std::clamp((year_of(s) - 2023.75) / 0.75, 0.0, 1.0) : std::clamp((year_of(s) - 2024.5) / 0.4, 0.0, 1.0);
}
// The same of 8-bit matrices, a year later (Transformer Engine 1.8 to 2.1).
double low_precision_maturity(const Setup& s) {
  const double first = gpu_generation(s.gpu) == GpuGeneration::kBlackwell ? 2025.25 : 2024.25;
  return std::clamp(year_of(s) - first, 0.0, 1.0);
}

std::string_view recipe_name(Fp8Recipe recipe) {
  switch (recipe) {
    case Fp8Recipe::kNone: return "none";
    case Fp8Recipe::kTensorwise: return "tensorwise";
    case Fp8Recipe::kRowwise: return "rowwise";
    case Fp8Recipe::kDelayed: return "delayed";
    case Fp8Recipe::kMxfp8: return "mxfp8";
    case Fp8Recipe::kBlockwise: return "blockwise";
    case Fp8Recipe::kNvfp4: return "nvfp4";
  }
  return "none";
}

// Head and loss in chunks move what Liger's kernel moves.
std::string_view head_name(LossHead head) { return replay::loss_name(head == LossHead::kChunkedHead ? LossHead::kLiger : head); }

std::string_view class_name(ProgramClass program) {
  switch (program) {
    case ProgramClass::kEager: return "eager";
    case ProgramClass::kCompiled: return "compiled";
    case ProgramClass::kFused: return "fused";
    case ProgramClass::kHandWritten: return "hand_written";
  }
  return "eager";
}

// PyTorch leaves TF32 off unless asked (torch.backends.cuda.matmul.allow_tf32); GPUs before Ampere have none.
bool multiplies_in_tf32(const Setup& s) {
  return s.compute == Dtype::kF32 && s.software.tf32_products && s.gpu.peak_tf32_flops_per_s > 0;
}

double matrix_peak(const Setup& s) {
  if (multiplies_in_tf32(s)) return s.gpu.peak_tf32_flops_per_s;
  if (s.compute == Dtype::kF32) return s.gpu.peak_fp32_flops_per_s;
  if (s.compute == Dtype::kF16 || s.gpu.peak_bf16_flops_per_s <= 0)
    return std::max(s.gpu.peak_fp16_flops_per_s, s.gpu.peak_fp32_flops_per_s);
  return s.gpu.peak_bf16_flops_per_s;
}

// Products in fp32 or in 16 bits.
GemmRate gemm_rate(const Setup& s, const ConstantLookup& look, bool fp32) {
  const double gain = 1 + look.of_gpu("gemm", "library_gain", 0) * library_maturity(s) +
                      look.of_gpu("gemm", "library_gain_12_9", 0) * (!in_container(s) && year_of(s) > 2025.5 ? 1 : 0);
  const double share = fp32 ? look.at("gemm.fp32_efficiency") : look.of_gpu("gemm", "efficiency", s.gpu.gemm_efficiency) * gain;
  GemmRate rate;
  rate.flops_per_s = (fp32 ? s.gpu.peak_fp32_flops_per_s : matrix_peak(s)) * share * look.clock_share();
  rate.burst = look.of_gpu("gemm", "burst", 0);
  rate.tiles = fp32                                                 ? GemmTiles::kNoTensorCores
               : gpu_generation(s.gpu) == GpuGeneration::kBlackwell ? GemmTiles::kTwoSm
                                                                    : GemmTiles::kOneSm;
  // A tile's prologue takes the same time, and less of the longer product.
  const double peak = fp32 ? s.gpu.peak_fp32_flops_per_s : matrix_peak(s);
  const double slower = s.compute == Dtype::kF32 || fp32 ? peak / std::max(s.gpu.peak_fp16_flops_per_s, peak) : 1;
  rate.k_half = look.of_gpu("gemm", "k_half", 128) * slower;
  rate.memory_bytes_per_s = s.gpu.memory_bytes_per_s * look.at("gemm.memory_share");
  rate.kernel_s = look.at("gemm.kernel_s");
  rate.misaligned_share = look.at("gemm.misaligned_share");
  rate.num_sm = std::max<double>(1, static_cast<double>(s.gpu.num_sm));
  return rate;
}

void resolve_gemm(TimeConstants& c, const Setup& s, const ConstantLookup& look) {
  c.gemm = gemm_rate(s, look, s.compute == Dtype::kF32 && !multiplies_in_tf32(s));
  c.gemm_fp32 = gemm_rate(s, look, true);
  // Where operands are not aligned cuBLAS takes its fp32 kernels, which ask for no alignment, if those are the faster ones.
  if (multiplies_in_tf32(s))
    c.gemm.misaligned_share = std::clamp(c.gemm_fp32.flops_per_s / c.gemm.flops_per_s, c.gemm.misaligned_share, 1.0);
  c.gemm_wide = s.stays_in_fp32() ? c.gemm_fp32 : c.gemm;
  if (s.stays_in_fp32() || s.compute == Dtype::kF32) c.value_bytes = 4;
  c.gemm_low_precision = c.gemm;
  if (s.fp8 != Fp8Recipe::kNone) {
    // A GPU without fp8 units computes what was rounded to fp8 at its 16-bit rate.
    const double peak = s.gpu.peak_fp8_flops_per_s > 0 ? s.gpu.peak_fp8_flops_per_s : matrix_peak(s);
    const double rate4 = s.fp8 == Fp8Recipe::kNvfp4 ? look.of_gpu("gemm", "fp4_rate", 1) : 1;
    const double share8 = look.of_gpu("gemm", "fp8_efficiency", s.gpu.gemm_efficiency);
    const double gain8 = 1 + look.of_gpu("gemm", "fp8_library_gain", 0) * low_precision_maturity(s);
    c.gemm_low_precision.flops_per_s =
        peak * look.clock_share() * rate4 * share8 * gain8 * look.get(fmt::format("fp8.{}.rate", recipe_name(s.fp8)), 1);
    // Transformer Engine casts in fused kernels; torchao's casts are generated by the compiler or not at all, and for recipes with
    // block scales they are kernels of its own.
    const std::string recipe = fmt::format("fp8.{}.", recipe_name(s.fp8));
    c.cast_bytes = look.get(recipe + "cast_bytes", 6);
    if (!s.traits().transformer_engine) c.cast_bytes = look.get(recipe + "torchao_cast_bytes", c.cast_bytes);
    if (c.program == ProgramClass::kEager && s.fp8 != Fp8Recipe::kDelayed && !s.software.cast_kernels)
      c.cast_bytes *= look.at("fp8.eager_cost");
  }
  c.accumulate_cost = s.traits().sums_into_main_gradients ? look.at("gemm.accumulate_cost") : 0;
  c.grouped_share = look.of_gpu("gemm", "grouped_share", 0.6);
}

void resolve_attention(TimeConstants& c, const Setup& s, const ConstantLookup& look) {
  c.attention_kernel = attention_kernel(s);
  // The compiler writes kernels of the same form with Blackwell's instructions, the package has none.
  const bool without_instructions = s.flash_package == 2 && gpu_generation(s.gpu) == GpuGeneration::kBlackwell;
  const std::string group = fmt::format("attention.{}", without_instructions ? "flash2_package" : name(c.attention_kernel));
  // Without tensor cores the same part of what products reach.
  const double peak = s.stays_in_fp32() ? c.gemm_fp32.flops_per_s / look.of_gpu("gemm", "efficiency", s.gpu.gemm_efficiency)
                                        : matrix_peak(s) * look.clock_share();
  c.attention.forward_flops_per_s = peak * look.of_gpu(group, "forward", s.gpu.attention_forward_efficiency);
  c.attention.backward_flops_per_s = peak * look.of_gpu(group, "backward", s.gpu.attention_backward_efficiency);
  c.attention.half_positions = look.get("attention.half_sequence", 256);
  c.attention.small_head = look.of_gpu(group, "head_64", 0.9);
}

// Ethernet without RDMA: NCCL's sockets. What frames leave of a slow card's rate is reached; a fast card waits for the two threads
// that copy, one a channel (NCCL src/transport/net_socket.cc). Beyond one card of 100 Gbit/s a node has several. What a message waits
// before it flows is a time, not bytes.
void resolve_sockets(Fabric& f, double line_per_gpu, int gpus, const ConstantLookup& look) {
  constexpr double kCard = 12.5e9;
  const double line = line_per_gpu * gpus, of_threads = look.at("network.ethernet.card_bytes_per_s") * std::max(1.0, line / kCard);
  const double reached = std::min(line * look.at("network.ethernet.efficiency"), of_threads);
  f.nic_bytes_per_s = reached / gpus;
  f.nic_half_bytes = reached * look.at("network.ethernet.start_s");
}

void resolve_fabric(TimeConstants& c, const Setup& s, const ConstantLookup& look) {
  Fabric& f = c.fabric;
  const std::string& kind = s.gpu.link.kind;
  const bool nvlink = kind.starts_with("nvlink"), xgmi = kind.starts_with("xgmi");
  const std::string_view group = nvlink ? "nvlink" : xgmi ? "xgmi" : "pcie";
  f.link_bytes_per_s = std::max(s.gpu.link.bytes_per_s, 1e9) *
                       look.get(fmt::format("network.{}.share", kind), look.get(fmt::format("network.{}.share", group), 0.7));
  f.link_half_bytes = look.get(fmt::format("network.{}.half_bytes", kind), 0);
  if (nvlink && (gpu_generation(s.gpu) == GpuGeneration::kHopper || gpu_generation(s.gpu) == GpuGeneration::kBlackwell))
    f.nvls_bytes_per_s = s.gpu.link.bytes_per_s * look.at("network.nvlink.in_switch_share");
  f.domain = std::max(s.gpus_per_node, static_cast<int>(look.of_gpu("network", "link_domain", 0)));
  const std::string nic = s.nic_kind.empty() ? "unknown" : s.nic_kind;
  const double per_gpu = s.nic_bytes_per_s > 0 ? s.nic_bytes_per_s / s.gpus_per_node
                                               : s.gpu.link.bytes_per_s * look.of_gpu("network", "nic_share_of_link", 1.0 / 9);
  f.nic_bytes_per_s = per_gpu * look.get(fmt::format("network.{}.efficiency", nic), look.at("network.unknown.efficiency"));
  f.nic_half_bytes = look.get(fmt::format("network.{}.half_bytes", nic), look.at("network.unknown.half_bytes"));
  if (nic == "ethernet") resolve_sockets(f, per_gpu, s.gpus_per_node, look);
}

// All GPUs of a node share the host's memory: their copies, and Adam. Where its bandwidth is not stated, that of the platforms the GPU
// is sold in: two sockets of 12 (Volta), 16 (Ampere, GeForce: one socket of 8) or 16 channels DDR5 (Hopper on).
void resolve_host(TimeConstants& c, const Setup& s, const ConstantLookup& look) {
  const GpuGeneration generation = gpu_generation(s.gpu);
  const double platform = !s.gpu.p2p                             ? 2.05e11
                          : generation == GpuGeneration::kVolta  ? 2.56e11
                          : generation == GpuGeneration::kAmpere ? 4.1e11
                                                                 : 6.14e11;
  const double host = s.host_memory_bytes_per_s > 0 ? s.host_memory_bytes_per_s : platform;
  const double link = (s.gpu.pcie_bytes_per_s > 0 ? s.gpu.pcie_bytes_per_s : 25e9) * look.at("offload.pcie_share");
  constexpr double kStreamShare = 0.8;  // of a memory's bandwidth (STREAM)
  const double of_memory = kStreamShare * host / std::max(1, s.gpus_per_node);
  c.pcie_bytes_per_s = std::min(link, of_memory);
  // The driver copies pageable memory through a buffer of its own: 4 to 6 times slower (DeepSpeed's pull request 5301), and every byte
  // is read, written and read. A coherent link reads it where it is (GH200: 93 and 97 GiB/s, vortex's pull request 7815).
  constexpr double kPageableShare = 0.2, kCoherentLink = 2e11, kPageablePasses = 3;
  if (!s.offload.pin_memory && s.gpu.pcie_bytes_per_s < kCoherentLink)
    c.pcie_bytes_per_s = std::min(link * kPageableShare, of_memory / kPageablePasses);
  // The kernel is bound by the host's cores, and by what share of its memory's bandwidth they reach (arXiv 2101.06840, table 4: 10B
  // parameters in 2.57 s on two sockets of 24 cores and 256 GB/s).
  c.cpu_adam_bytes_per_s = std::min(look.at("offload.cpu_adam_bytes_per_s"), look.at("offload.cpu_adam_share") * host);
  // PyTorch's own AdamW took 5.7 times as long (the same table) until it had a fused kernel for the CPU (2.4). Without asking for that
  // one, PyTorch 2.11 still takes 6.3 to 8.9 times as long for tensors of 64M elements and 3.8 to 5.8 for 1M (1 to 8 cores of a Xeon,
  // fp32, 2026-11).
  const bool fused = (s.traits().own_cpu_adam && s.optimizer_implementation != OptimizerImplementation::kForeach) ||
                     (s.optimizer_implementation == OptimizerImplementation::kFused && runs_since(s, 202407));
  if (!fused) c.cpu_adam_bytes_per_s /= 5.7;
}

}  // namespace

bool runs_since(const Setup& s, int month) { return month != kNever && (s.software.released == 0 || s.software.released >= month); }

GpuGeneration gpu_generation(const Gpu& gpu) {
  using enum GpuGeneration;
  constexpr std::array<std::pair<std::string_view, GpuGeneration>, 28> kFamilies = {{
      {"v100", kVolta},       {"t4", kTuring},       {"a100", kAmpere},
      {"a800", kAmpere},      {"a10", kAmpere},      {"a40", kAmpere},
      {"rtx_30", kAmpere},    {"rtx_a", kAmpere},    {"a30", kAmpere},
      {"a6000", kAmpere},     {"l4", kAda},          {"rtx_40", kAda},
      {"rtx_6000_ada", kAda}, {"h100", kHopper},     {"h800", kHopper},
      {"h200", kHopper},      {"gh200", kHopper},    {"h20", kHopper},
      {"b200", kBlackwell},   {"b100", kBlackwell},  {"b300", kBlackwell},
      {"gb200", kBlackwell},  {"gb300", kBlackwell}, {"rtx_50", kBlackwellRtx},
      {"mi2", kCdna},         {"mi3", kCdna},        {"rtx_pro", kBlackwellRtx},
      {"titan_rtx", kTuring},
  }};
  for (const auto& [prefix, generation] : kFamilies)
    if (gpu.name.starts_with(prefix)) return generation;
  return kOther;
}

std::string_view name(GpuGeneration generation) {
  switch (generation) {
    case GpuGeneration::kVolta: return "volta";
    case GpuGeneration::kTuring: return "turing";
    case GpuGeneration::kAmpere: return "ampere";
    case GpuGeneration::kAda: return "ada";
    case GpuGeneration::kHopper: return "hopper";
    case GpuGeneration::kBlackwell: return "blackwell";
    case GpuGeneration::kBlackwellRtx: return "blackwell_rtx";
    case GpuGeneration::kCdna: return "cdna";
    case GpuGeneration::kOther: return "other";
  }
  return "other";
}

std::string_view name(AttentionKernel kernel) {
  switch (kernel) {
    case AttentionKernel::kUnfused: return "unfused";
    case AttentionKernel::kFlash1: return "flash1";
    case AttentionKernel::kFlash2: return "flash2";
    case AttentionKernel::kFlash3: return "flash3";
    case AttentionKernel::kFlash4: return "flash4";
    case AttentionKernel::kCudnn: return "cudnn";
  }
  return "flash2";
}

bool unpacks_by_operations(const Setup& s) {
  return s.finetune == Finetune::kQlora && (s.frozen_dtype == Dtype::kInt4 || s.frozen_dtype == Dtype::kInt8);
}

// Megatron's kernels are fused from 2022 on; a trainer that fuses norms and rotary alone still runs PyTorch's kernels between them.
ProgramClass program_class(const Setup& s) {
  if (!s.traits().python) return ProgramClass::kHandWritten;
  if (runs_since(s, s.traits().fused_kernels_since) || s.program.starts_with("megatron_te") ||
      s.program.starts_with("transformer_engine"))
    return ProgramClass::kFused;
  const bool own_kernels = s.software.interpreted && !s.software.inductor_kernels;
  return s.compiled && !own_kernels ? ProgramClass::kCompiled : ProgramClass::kEager;
}

// Transformer Engine takes cuDNN's kernels where they are faster (Hopper on). PyTorch's scaled_dot_product_attention is FlashAttention
// 2 from 2.2 on, but cuDNN's on Blackwell, and on Hopper in the nightlies and releases of 2.5.0 (August to October 2024, off again in
// 2.5.1); what trained before the end of 2023 had FlashAttention 1 (Triton's or the CUDA one).
AttentionKernel attention_kernel(const Setup& s) {
  if (!s.flash_attention) return AttentionKernel::kUnfused;
  if (s.software.flex_attention) return AttentionKernel::kFlash2;
  const GpuGeneration generation = gpu_generation(s.gpu);
  // Called by its name, not through SDPA (runtime/kernels/cuda/ops.cc).
  const bool from_hopper_on = generation == GpuGeneration::kHopper || generation == GpuGeneration::kBlackwell;
  if (s.program == kNativeProgram) return from_hopper_on ? AttentionKernel::kCudnn : AttentionKernel::kFlash2;
  if (s.flash_package >= 3 && generation == GpuGeneration::kHopper) return AttentionKernel::kFlash3;
  if (s.flash_package == 4 && generation == GpuGeneration::kBlackwell) return AttentionKernel::kFlash4;
  if (s.flash_package == 2 || (s.flash_package == 3 && !from_hopper_on)) return AttentionKernel::kFlash2;  // 3 has 2's loops
  const int released = s.software.released > 0 ? s.software.released : kCurrentSoftware;
  const bool transformer_engine = s.traits().transformer_engine || s.program.starts_with("megatron_te");
  const bool titan = s.program.starts_with("torchtitan") && released >= kTitanPrefersCudnnSince;
  const bool cudnn_default = titan || (released >= 202408 && released <= 202410);
  if (generation == GpuGeneration::kBlackwell) return AttentionKernel::kCudnn;
  if (generation == GpuGeneration::kHopper && (transformer_engine || cudnn_default)) return AttentionKernel::kCudnn;
  // FlashAttention wants one head size: keys and values of two are PyTorch's memory-efficient kernel's, as fast as FlashAttention 1.
  const bool two_sizes =
      s.model.attention == Attention::kLatent && s.model.qk_nope_head_size + s.model.qk_rope_head_size != s.model.v_head_size;
  return released < 202310 || two_sizes ? AttentionKernel::kFlash1 : AttentionKernel::kFlash2;
}

TimeConstants time_constants(const Setup& s, const Calibration& calibration) {
  const ConstantLookup look(s, calibration);
  TimeConstants c;
  c.program = program_class(s);
  const std::string_view program = class_name(c.program);
  resolve_gemm(c, s, look);
  resolve_attention(c, s, look);
  resolve_fabric(c, s, look);
  c.memory_bytes_per_s = s.gpu.memory_bytes_per_s * look.of_gpu(fmt::format("elementwise.{}", program), "bandwidth_share",
                                                                look.get(fmt::format("elementwise.{}.bandwidth_share", program), 0.8));
  c.softmax_bytes_per_score = look.at("attention.unfused.bytes_per_score");
  c.loss_bytes_per_logit = look.get(fmt::format("loss.{}.bytes_per_logit", head_name(s.loss)), 28);
  c.contention = look.of_gpu("overlap", "contention", 0.1);
  const FrameworkTraits& traits = s.traits();
  if (!traits.python) c.loss_bytes_per_logit = look.at("loss.in_place.bytes_per_logit");
  if (s.loss_bytes_per_logit > 0) c.loss_bytes_per_logit = s.loss_bytes_per_logit;
  c.tp_hidden = s.overlap_tp ? look.at(fmt::format("overlap.tensor_parallel.{}", traits.overlap)) : 0;
  const bool beside_weights = runs_since(s, traits.reduces_beside_weights_since);
  c.tp_backward_hidden = beside_weights ? std::min(1.0, look.at("overlap.tensor_parallel.backward")) : 0;
  c.cp_hidden = look.at("overlap.context_parallel");
  c.dp_hidden = look.at(fmt::format("overlap.data_parallel.{}", traits.overlap));
  const double age = std::clamp((2025 - year_of(s)) / 2, 0.0, 1.0);  // hosts and PyTorch's dispatch got faster until 2025
  c.launch_layer_s = look.get(fmt::format("software.launch_s.{}", program), 1e-3) * (1 + look.at("software.launch_2023") * age);
  // A traced graph that Python interprets op by op pays its dispatch for each of them, those of experts too.
  double dispatch = 1;
  if (s.software.interpreted && !s.software.cuda_graphs) {
    c.launch_layer_s = look.at("software.launch_s.interpreted_graph");
    dispatch = c.launch_layer_s / look.at("software.launch_s.eager");
  }
  if (s.model.qk_norm_present()) c.launch_layer_s *= 1 + 2.0 / kKernelsPerLayer;
  // Experts: routing, sorting and a launch for each, after which the host waits for the counts; in 8 bits each has casts of its own.
  if (s.model.num_experts > 0 && !runs_in_turn(expert_kernels(s))) {
    c.launch_layer_s += dispatch * look.at("software.launch_s.experts") * (s.fp8 == Fp8Recipe::kNone ? 1 : 2);
  }
  const bool op_by_op = !s.software.traced && (c.program == ProgramClass::kEager || c.program == ProgramClass::kFused);
  if (s.tp > 1 && traits.wraps_each_parameter && op_by_op) c.launch_layer_s += kTensorDispatches * kTensorDispatch_s;
  c.launch_layer_s *= 1 - s.graphed;
  c.launch_layer_s += kUnpackingLaunch_s * (unpacks_by_operations(s) ? 1 + look.at("software.launch_2023") * age : 0);
  const auto experts = static_cast<double>(s.model.num_experts);
  c.launch_layer_s +=
      experts * (c.launch_layer_s * launches_per_expert(s) / kKernelsPerLayer + operations_per_adapted_expert(s) * kOperation_s);
  // ZeRO's hooks run in Python for every module (stage 3: fetch, release) or gradient (stage 2).
  if (traits.python_hooks && s.sharding == Sharding::kZero3) {
    const double modules = expert_kernels(s) == ExpertKernels::kModulesInTurn ? experts * kModulesPerExpert : 0;
    c.launch_layer_s += look.at("software.launch_s.zero3") * (1 + modules / kModulesPerLayer);
  }
  if (traits.python_hooks && s.sharding == Sharding::kZero2) c.launch_layer_s += look.at("software.launch_s.zero2");
  const DeltaRuleWork delta = delta_rule_work(s);
  c.delta_forward_s = delta_layers_share(s) * delta.forward_kernels * kOperation_s;
  c.delta_backward_s = delta_layers_share(s) * delta.backward_kernels * kOperation_s;
  const bool gathers = s.dp_shard > 1 && s.sharding == Sharding::kZero3;
  c.host_beside_gpu = look.at(fmt::format("software.host_beside_gpu.{}", s.software.traced ? "graph" : gathers ? "gathers" : "whole"));
  c.step_s = look.at("software.step_s");
  if (!traits.python) c.launch_layer_s = c.step_s = 0;
  c.straggler = look.at("straggler.per_doubling");
  c.optimizer_bytes_per_s = s.gpu.memory_bytes_per_s * look.at("optimizer.bandwidth_share");
  c.foreach_cost = look.at("optimizer.foreach_cost");
  c.foreach_tensor_s = look.at("optimizer.foreach_tensor_s");
  resolve_host(c, s, look);
  c.nvme_bytes_per_s = s.nvme_bytes_per_s > 0 ? s.nvme_bytes_per_s : look.at("offload.nvme_bytes_per_s");
  c.dequantise_bytes_per_s = s.gpu.memory_bytes_per_s * look.at("quantised.bandwidth_share");
  return c;
}

}  // namespace distsetup
