// The calibration constants that one estimate reads, looked up once: a search that times thousands of meshes of one trainer on one
// machine resolves them once and passes them on (an estimate then takes microseconds, not map look-ups).
#pragma once
#include <string>
#include <string_view>

#include "planner/frameworks/setup.h"
#include "planner/time/calibration.h"

namespace distsetup {

enum class GpuGeneration { kVolta, kTuring, kAmpere, kAda, kHopper, kBlackwell, kBlackwellRtx, kCdna, kOther };
GpuGeneration gpu_generation(const Gpu& gpu);
std::string_view name(GpuGeneration generation);

// What runs between the matrix multiplications: PyTorch's own kernels one by one, generated fused kernels, or hand-written fused ones
// (Transformer Engine, Apex, Liger), or an engine's own for all of it.
enum class ProgramClass { kEager, kCompiled, kFused, kHandWritten };
ProgramClass program_class(const Setup& setup);
// What came in this month (yyyymm) is in the release that runs; a release that nobody named is taken for new.
bool runs_since(const Setup& setup, int month);
// Frozen weights are GPTQ's integers.
bool unpacks_by_operations(const Setup& setup);
inline constexpr std::string_view kNativeProgram = kNative;  // Setup::program of the bundled trainer

enum class AttentionKernel { kUnfused, kFlash1, kFlash2, kFlash3, kFlash4, kCudnn };
AttentionKernel attention_kernel(const Setup& setup);
std::string_view name(AttentionKernel kernel);

struct GemmRate {
  double flops_per_s = 0;         // peak times the share that large multiplications sustain
  double burst = 0;               // more of it for short ones, before power limits the clock: (1 + burst / (1 + FLOPs / 2e11))
  double k_half = 0;              // prologue and epilogue of a tile, as if k were longer by this
  double memory_bytes_per_s = 0;  // reached
  double kernel_s = 0;
  double num_sm = 1;
  double misaligned_share = 1;  // of the rate, when rows are no multiples of 16 bytes
  GemmTiles tiles = GemmTiles::kOneSm;
};

struct AttentionRate {
  double forward_flops_per_s = 0, backward_flops_per_s = 0;  // causal FLOPs counted half
  double half_positions = 0;                                 // rate of a sequence S: S / (S + half_positions)
  double small_head = 1;                                     // share of the rate at head size 64
};

struct Fabric {
  double link_bytes_per_s = 0;  // bus bandwidth of a ring inside the NVLink (xGMI, PCIe) domain, per GPU
  double link_half_bytes = 0;   // message at which half of that is reached
  double nvls_bytes_per_s = 0;  // all-reduce in the switch; 0 = the switch cannot
  double nic_bytes_per_s = 0;   // per GPU, reached
  double nic_half_bytes = 0;    // message at which half of that is reached
  int domain = 1;               // GPUs that share the fast link
};

struct TimeConstants {
  GemmRate gemm, gemm_low_precision;  // bf16 or fp16; what fp8 matrices run at
  GemmRate gemm_wide;                 // what is no linear layer of a block: fp32 where that stays so, else as `gemm`
  GemmRate gemm_fp32;
  double value_bytes = 2;  // of an activation
  AttentionRate attention;
  AttentionKernel attention_kernel = AttentionKernel::kFlash2;
  ProgramClass program = ProgramClass::kEager;
  Fabric fabric;
  double memory_bytes_per_s = 0;       // elementwise kernels of this program class reach this
  double softmax_bytes_per_score = 0;  // unfused attention, forward
  double cast_bytes = 0;               // per value of a low precision operand
  double loss_bytes_per_logit = 0;
  double accumulate_cost = 0;                                                  // of a weight gradient that is added to fp32
  double grouped_share = 1;                                                    // of the GEMM rate, by grouped GEMMs of experts
  double contention = 0;                                                       // compute slows by this while a transfer runs beside it
  double tp_hidden = 0, tp_backward_hidden = 0, cp_hidden = 0, dp_hidden = 0;  // share of a transfer that its overlap hides
  double launch_layer_s = 0;                                                   // CPU time to enqueue one layer forward
  double host_beside_gpu = 1;                                                  // p of launch_exposed_s: how far the host runs ahead
  double delta_forward_s = 0, delta_backward_s = 0;                            // the same of its recurrence, operation by operation
  double step_s = 0;                                                           // fixed per step: data, logging, clipping
  double straggler = 0;                                                        // per doubling of GPUs
  double optimizer_bytes_per_s = 0, foreach_cost = 1, foreach_tensor_s = 0;
  double pcie_bytes_per_s = 0, cpu_adam_bytes_per_s = 0, nvme_bytes_per_s = 0;
  double dequantise_bytes_per_s = 0;
};
TimeConstants time_constants(const Setup& setup, const Calibration& calibration);

}  // namespace distsetup
