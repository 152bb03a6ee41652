// Constants of libraries, each from its source. Left out: NVLS multicast buffers, and point-to-point transports made while running
// (a 64-rank all-to-all can take tens of GiB more).
#include "planner/frameworks/libraries.h"

#include <bit>

namespace distsetup {
namespace {

constexpr int64_t kMebibyte = 1 << 20;

// Hopper and newer data-centre parts have wgmma; no GeForce or Ada part reaches 1 PFLOP/s dense in fp8.
bool is_hopper_or_newer(const Gpu& gpu) { return gpu.vendor == "nvidia" && gpu.peak_fp8_flops_per_s >= 1e15; }

}  // namespace

int64_t cublas_workspace_bytes(const Gpu& gpu) {
  if (gpu.vendor == "cpu") return 0;
  return is_hopper_or_newer(gpu) ? 32 * kMebibyte : 8519680;
}

int64_t transformer_engine_workspace_bytes(const Gpu& gpu, bool grouped_gemm) {
  const int64_t one = (is_hopper_or_newer(gpu) ? 32 : 4) * kMebibyte;
  return grouped_gemm ? 5 * one : one;
}

int num_communicators(const Setup& s) {
  if (s.world() == 1) return 0;
  int groups = 1;  // the world
  for (const int size : {s.dp_shard * s.cp, s.tp, s.pp, s.cp, s.ep, s.dp_replicate}) groups += size > 1 && size < s.world() ? 1 : 0;
  return groups;
}

int64_t communicator_bytes(const Setup& s) {
  const int groups = num_communicators(s);
  return groups == 0 ? 0 : 600 * kMebibyte + (groups - 1) * 300 * kMebibyte;
}

int64_t pinned_bytes(int64_t bytes) { return bytes <= 0 ? 0 : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes))); }

}  // namespace distsetup
