// A GEMM runs as waves of output tiles, one tile per multiprocessor and wave: 133 tiles on 132 multiprocessors take as long as 264.
// seconds = waves · multiprocessors · tile_m · tile_n · 2 (k + k_half) / (rate · share of the tile), over the tile that is best.
// Few waves count whole; many run into each other and cost half a wave at the end (split-k and persistent kernels blur the tail).
// Sources: NVIDIA, "Matrix Multiplication Background User's Guide" (tile and wave quantisation); CUTLASS 3 default tile shapes for the
// candidates. The sustained rate, k_half and the shares of smaller tiles come from measured shapes (SimuMax's operator tables) and
// from training runs, presets/calibration/time.yaml.
// Leaves out: the choice cuBLAS makes (we take the best tile), layouts, clocks that vary by shape.
#include "planner/time/gemm.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

namespace distsetup {
namespace {

struct Tile {
  double m, n, slower;  // than the best tile, per output
};
constexpr std::array<Tile, 4> kTiles = {{{128, 256, 1}, {256, 128, 1}, {128, 128, 1 / 0.93}, {128, 64, 1 / 0.8}}};
constexpr std::array<Tile, 4> kPairedTiles = {
    {{256, 256, 1}, {128, 256, 1 / 0.97}, {256, 128, 1 / 0.97}, {128, 128, 1 / 0.9}}};                   // two SMs
constexpr std::array<Tile, 3> kScalarTiles = {{{128, 128, 1}, {128, 64, 1 / 0.95}, {64, 64, 1 / 0.9}}};  // fp32, no tensor cores
// ceil() of what is far below 2^63, without a call into libm: a search computes millions.
inline double whole(double x) {
  const auto below = static_cast<double>(static_cast<int64_t>(x));
  return below < x ? below + 1 : below;
}

constexpr double kWholeWaves = 6, kBurstFlops = 2e11;
constexpr int64_t kAlignment = 16;
constexpr double kGroupedTileRows = 128;  // DeepGEMM's alignment of an expert's rows in its contiguous layout; CUTLASS' tiles

}  // namespace

double gemm_s(const GemmRate& r, double m, double n, double k, double element_bytes, double output_bytes, SummedOver over) {
  const std::span<const Tile> tiles = r.tiles == GemmTiles::kNoTensorCores ? std::span<const Tile>(kScalarTiles)
                                      : r.tiles == GemmTiles::kTwoSm       ? std::span<const Tile>(kPairedTiles)
                                                                           : kTiles;
  double padded = 1e300;  // outputs computed, those of a wave's idle multiprocessors included
  for (const Tile& t : tiles) {
    const double count = whole(m / t.m) * whole(n / t.n), waves = count / r.num_sm;
    const double counted = waves < kWholeWaves ? whole(waves) : waves + 0.5;
    padded = std::min(padded, counted * r.num_sm * t.m * t.n * t.slower);
  }
  // Rows of operands that do not start at 16 bytes are loaded piecewise (same guide, "requirements to use tensor cores"); fp32 has
  // none. The gradient of a head whose vocabulary is odd (m) has its share in what was measured of the head's other two.
  const auto k_bytes = static_cast<int64_t>(k * element_bytes), n_bytes = static_cast<int64_t>(n * element_bytes);
  const bool are_features_aligned = over == SummedOver::kFeatures ? k_bytes % kAlignment == 0 : over == SummedOver::kRows;
  const bool aligned = r.tiles == GemmTiles::kNoTensorCores || (are_features_aligned && n_bytes % kAlignment == 0);
  const double rate = r.flops_per_s * (1 + r.burst / (1 + 2 * m * n * k / kBurstFlops)) * (aligned ? 1 : r.misaligned_share);
  const double traffic = ((m + n) * k * element_bytes + m * n * output_bytes) / r.memory_bytes_per_s;
  return r.kernel_s + std::max(2 * padded * (k + r.k_half) / rate, traffic);
}

// Experts share no tile: the last one of each is half full on average.
double grouped_gemm_s(const GemmRate& r, double experts, double rows, double n, double k, double element_bytes, double share) {
  const double computed = rows + std::min(rows, experts * kGroupedTileRows / 2);
  // Persistent kernels start a tile's loads beside the last one's stores.
  const double arithmetic = 2 * computed * n * (k + r.k_half / 4) / (r.flops_per_s * share);
  const double traffic = (experts * n * k + rows * (n + k)) * element_bytes / r.memory_bytes_per_s;
  return r.kernel_s + std::max(arithmetic, traffic);
}

// Each expert sums over its own rows, and its gradient is as large as its weight however few these are.
double grouped_gradient_s(const GemmRate& r, double experts, double rows, double n, double k, double element_bytes,
                          double output_bytes, double share) {
  const double arithmetic = 2 * n * k * (rows + experts * r.k_half / 4) / (r.flops_per_s * share);
  const double traffic = (rows * (n + k) * element_bytes + experts * n * k * output_bytes) / r.memory_bytes_per_s;
  return r.kernel_s + std::max(arithmetic, traffic);
}

}  // namespace distsetup
