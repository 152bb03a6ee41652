// `distsetup-train --probe`: what libtorch's matrix multiplication reaches here, fp32 and bf16, with one thread (a rank per core) and
// with all. The best of several runs: a probe measures the machine, not who else is on it. Leaves out: attention, memory-bound work.
#include "runtime/monitor/probe_kernels.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <thread>

#include "base/clock.h"
#include "base/json.h"

namespace distsetup {
namespace {

constexpr int64_t kSize = 768;  // 2·768³ = 0.9 GFLOP: some 10 ms on a slow core

double gemm_flops_per_s(at::ScalarType dtype, double budget_s) {
  const at::Tensor a = at::randn({kSize, kSize}).to(dtype), b = at::randn({kSize, kSize}).to(dtype);
  at::Tensor c = at::empty({kSize, kSize}, a.options());
  at::mm_out(c, a, b);  // first use: kernels are chosen or generated
  double best_s = 1e30;
  const double end_s = now_s() + budget_s;
  do {
    const double begin_s = now_s();
    at::mm_out(c, a, b);
    best_s = std::min(best_s, now_s() - begin_s);
  } while (now_s() < end_s);
  return 2.0 * kSize * kSize * kSize / best_s;
}

}  // namespace

int run_probe_kernels(double budget_s) {
  try {
    const int num_cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    Json rows = Json::array();
    for (int threads : {1, num_cores}) {
      if (threads == 1 && !rows.empty()) break;
      at::set_num_threads(threads);
      rows.push_back({{"threads", threads},
                      {"gemm_f32_flops_per_s", gemm_flops_per_s(at::kFloat, budget_s / 4)},
                      {"gemm_bf16_flops_per_s", gemm_flops_per_s(at::kBFloat16, budget_s / 4)}});
    }
    fmt::print("{}\n", Json({{"gemm_size", kSize}, {"measurements", rows}}).dump());
    return 0;
  } catch (const std::exception& failure) {
    fmt::print(stderr, "distsetup-train: probe failed: {}\n", failure.what());
    return 1;
  }
}

}  // namespace distsetup
