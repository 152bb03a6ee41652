// Optimizers' updates: AdamW, Lion, and AdamW with moments in 8 bits. See runtime/kernels/updates.h.
#include "runtime/kernels/cuda/common.cuh"

namespace distsetup::cuda {
namespace {

__device__ inline void adamw_element(const AdamWUpdate& u, float& p, float gradient, float& m, float& v) {
  const float g = gradient * u.clip;
  m = m + u.rest1 * (g - m);
  v = v + u.rest2 * (g * g - v);
  p = p * u.keep - u.rate * m / (sqrtf(v) / u.correction2 + u.epsilon);
}
// N elements at a time; what is left over one by one.
template <int N>
__global__ void adamw_kernel(AdamWUpdate u) {
  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = thread * N; i + N <= u.n; i += stride * N) {
    float p[N], g[N], m[N], v[N];
    load_pack<N>(u.parameters + i, p);
    load_pack<N>(u.gradients + i, g);
    load_pack<N>(u.first + i, m);
    load_pack<N>(u.second + i, v);
    for (int c = 0; c < N; ++c) adamw_element(u, p[c], g[c], m[c], v[c]);
    store_pack<N>(u.parameters + i, p);
    store_pack<N>(u.first + i, m);
    store_pack<N>(u.second + i, v);
  }
  const int64_t left = u.n / N * N + thread;
  if (left < u.n) adamw_element(u, u.parameters[left], u.gradients[left], u.first[left], u.second[left]);
}

__global__ void lion_kernel(LionUpdate u) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < u.n; i += stride) {
    const float gradient = u.gradients[i] * u.clip, direction = u.moments[i] * u.beta1 + gradient * u.rest1;
    const float sign = float(direction > 0) - float(direction < 0);
    u.parameters[i] = u.parameters[i] * u.keep - u.rate * sign;
    u.moments[i] = u.moments[i] * u.beta2 + gradient * u.rest2;
  }
}

constexpr int kCodes = 256;               // and elements that share a scale
constexpr int kMostRanges = 48;           // of one launch: what a kernel is called with has 4 KB
constexpr float kSmallestScale = 1e-38f;  // what a block of zeros is divided by

struct CodeTables {
  float first[kCodes], second[kCodes];
};
// Blocks of elements, and the ranges that touch them.
struct LaunchRanges {
  int64_t first_block = 0, num_blocks = 0;
  UpdateRange ranges[kMostRanges];
  int num = 0;
};

__device__ float block_max(float v) {
  __shared__ float of_warp[kWarp];
  for (int d = kWarp / 2; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(kAllLanes, v, d));
  __syncthreads();  // of_warp may still be read from the call before
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = v;
  __syncthreads();
  float most = 0;
  for (unsigned w = 0; w < blockDim.x / kWarp; ++w) most = fmaxf(most, of_warp[w]);
  return most;
}

// How many middles between neighbouring values lie below v: the nearest code.
__device__ uint8_t nearest_code(const float* values, float v, float scale) {
  v = fminf(fmaxf(v * (1.0f / fmaxf(scale, kSmallestScale)), -1.0f), 1.0f);
  unsigned code = 0;
  for (unsigned half = kCodes / 2; half > 0; half /= 2) code += (values[code + half - 1] + values[code + half]) / 2 < v ? half : 0;
  return uint8_t(code);
}

__global__ void adamw_8bit_kernel(AdamW8bitUpdate u, CodeTables tables, LaunchRanges of) {
  __shared__ float first[kCodes], second[kCodes];
  first[threadIdx.x] = tables.first[threadIdx.x];
  second[threadIdx.x] = tables.second[threadIdx.x];
  __syncthreads();
  const int64_t block = of.first_block + blockIdx.x, i = block * kCodes + threadIdx.x;
  const bool is_there = i < u.n;
  float m = is_there ? first[u.first.codes[i]] * u.first.scales[block] : 0.0f;
  float v = is_there ? second[u.second.codes[i]] * u.second.scales[block] : 0.0f;
  for (int r = 0; r < of.num; ++r) {
    if (i < of.ranges[r].begin || i >= of.ranges[r].end) continue;
    const float g = u.gradients[i] * u.clip;
    m = m * u.beta1 + g * u.rest1;
    v = v * u.beta2 + u.rest2 * (g * g);
    const float denominator = sqrtf(v) / u.correction2 + u.epsilon;
    u.parameters[i] = u.parameters[i] * (of.ranges[r].decay ? u.keep : 1.0f) - u.rate * (m / denominator);
  }
  const float scale_m = block_max(fabsf(m)), scale_v = block_max(v);
  if (threadIdx.x == 0) u.first.scales[block] = scale_m, u.second.scales[block] = scale_v;
  if (!is_there) return;
  u.first.codes[i] = nearest_code(first, m, scale_m);
  u.second.codes[i] = nearest_code(second, v, scale_v);
}

// As many blocks from `block` on as kMostRanges allow; `r`: the first range that may touch one, moved on. A block has at most 256
// elements and units begin at multiples of 16; that one is touched by more than 48 ranges would need parameters of a few elements.
LaunchRanges take_ranges(const AdamW8bitUpdate& u, int64_t block, int64_t num_blocks, int64_t& r) {
  LaunchRanges out;
  out.first_block = block;
  while (r < u.num_ranges && u.ranges[r].end <= block * kCodes) ++r;
  int64_t end = num_blocks;
  for (int64_t next = r; next < u.num_ranges; ++next) {
    if (out.num == kMostRanges) {
      end = u.ranges[next].begin / kCodes;
      break;
    }
    out.ranges[out.num++] = u.ranges[next];
  }
  out.num_blocks = end - block;
  if (out.num_blocks <= 0) throw std::runtime_error("CUDA kernel adamw_8bit: more ranges in 256 elements than a launch takes");
  return out;
}

}  // namespace

constexpr unsigned kMostBlocks = 1 << 16;

void adamw(const AdamWUpdate& update, StreamHandle stream) {
  with_pack(Element::kF32, 0, {update.parameters, update.gradients, update.first, update.second}, [&](auto*, auto width) {
    if constexpr (width() <= kPackSize<float>) {
      const unsigned needed = grid(update.n, int64_t{kBlock} * width());
      launch(adamw_kernel<width()>, needed < kMostBlocks ? needed : kMostBlocks, kBlock, stream, update);
    }
  });
  check_launch("adamw");
}

void lion(const LionUpdate& update, StreamHandle stream) {
  const unsigned needed = grid(update.n, kBlock);
  launch(lion_kernel, needed < kMostBlocks ? needed : kMostBlocks, kBlock, stream, update);
  check_launch("lion");
}

void adamw_8bit(const AdamW8bitUpdate& update, StreamHandle stream) {
  CodeTables tables;
  for (int c = 0; c < kCodes; ++c) tables.first[c] = update.first.values[c], tables.second[c] = update.second.values[c];
  const int64_t num_blocks = (update.n + kCodes - 1) / kCodes;
  int64_t r = 0;
  for (int64_t block = 0; block < num_blocks;) {
    const LaunchRanges ranges = take_ranges(update, block, num_blocks, r);
    launch(adamw_8bit_kernel, unsigned(ranges.num_blocks), kCodes, stream, update, tables, ranges);
    check_launch("adamw_8bit");
    block += ranges.num_blocks;
  }
}

}  // namespace distsetup::cuda
