// The loss, of whole rows of logits and of rows whose columns several ranks share. See kernels.h.
#include "runtime/kernels/cuda/partial_sums.cuh"
#include "runtime/kernels/preference.h"

namespace distsetup::cuda {
namespace {

// Largest value and sum of exp(z - largest), merged in a fixed order.
struct Softmax {
  float largest, sum;
};
__device__ Softmax merge(Softmax a, Softmax b) {
  // Not in terms of the maximum: fmaxf drops a NaN, which has to reach the loss.
  if (a.largest == -INFINITY && b.largest == -INFINITY) return {-INFINITY, a.sum + b.sum};
  const float largest = fmaxf(a.largest, b.largest);
  return {largest, a.sum * expf(a.largest - largest) + b.sum * expf(b.largest - largest)};
}
__device__ Softmax block_merge(Softmax v) {
  __shared__ Softmax of_warp[kWarp];
  for (int d = 1; d < kWarp; d *= 2) {
    const Softmax other = {__shfl_xor_sync(kAllLanes, v.largest, d), __shfl_xor_sync(kAllLanes, v.sum, d)};
    v = threadIdx.x & d ? merge(other, v) : merge(v, other);
  }
  __syncthreads();
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = v;
  __syncthreads();
  Softmax total = of_warp[0];
  for (unsigned w = 1; w < blockDim.x / kWarp; ++w) total = merge(total, of_warp[w]);
  return total;
}

__device__ inline float shaped(float z, LogitShape s) {
  const float m = z * s.multiplier;
  return s.soft_cap > 0 ? s.soft_cap * tanhf(m / s.soft_cap) : m;
}
__device__ inline float slope(float shaped_z, LogitShape s) {
  const float u = s.soft_cap > 0 ? shaped_z / s.soft_cap : 0;
  return s.multiplier * (1 - u * u);
}

// What a thread saw so far, and N more.
template <int N>
__device__ inline Softmax with(Softmax v, const float* z) {
  float largest = v.largest, more = 0;
  for (int c = 0; c < N; ++c) largest = fmaxf(largest, z[c]);
  for (int c = 0; c < N; ++c) more += z[c] == -INFINITY ? 0.0f : expf(z[c] - largest);
  return {largest, (v.sum > 0 ? v.sum * expf(v.largest - largest) : v.sum) + more};
}
template <class E, int N>
__device__ Softmax row_softmax(const E* row, int64_t V, LogitShape shape) {
  Softmax mine = {-INFINITY, 0.0f};
  for (int64_t j = threadIdx.x * N; j < V; j += blockDim.x * N) {
    float z[N];
    load_pack<N>(row + j, z);
    for (int c = 0; c < N; ++c) z[c] = shaped(z[c], shape);
    mine = with<N>(mine, z);
  }
  return mine;
}

// Block b takes rows b, b + grid, ... and leaves the sum of their losses. dz may be z.
template <class E, int N>
__global__ void cross_entropy_kernel(const E* z, const int64_t* target, E* dz, int64_t T, int64_t V, const double* scale_in,
                                     LogitShape shape) {
  const float scale = float(*scale_in), nothing[N] = {};
  double loss = 0;
  for (int64_t t = blockIdx.x; t < T; t += gridDim.x) {
    const E* row = z + t * V;
    E* out = dz + t * V;
    const int64_t right = target[t];
    if (right < 0) {
      for (int64_t j = threadIdx.x * N; j < V; j += blockDim.x * N) store_pack<N>(out + j, nothing);
      continue;
    }
    const Softmax mine = row_softmax<E, N>(row, V, shape);
    const float z_right = shaped(load(row + right), shape);  // before anyone overwrites it: block_merge waits for all threads
    const Softmax all = block_merge(mine);
    loss += double(all.largest) + log(double(all.sum)) - double(z_right);
    const float k = scale / all.sum;
    for (int64_t j = threadIdx.x * N; j < V; j += blockDim.x * N) {
      float s[N];
      load_pack<N>(row + j, s);
      for (int c = 0; c < N; ++c) {
        const float v = shaped(s[c], shape);
        s[c] = (expf(v - all.largest) * k - (j + c == right ? scale : 0.0f)) * slope(v, shape);
      }
      store_pack<N>(out + j, s);
    }
  }
  if (threadIdx.x == 0) partial_sums[blockIdx.x] = loss;
}

// --- columns shared by ranks

template <class E>
__global__ void cross_entropy_local_kernel(const E* z, const int64_t* target, float* stats, int64_t V, VocabularyRange range,
                                           LogitShape shape) {
  const int64_t t = blockIdx.x, n = range.end - range.begin, id = target[t];
  const E* row = z + t * V;
  const Softmax all = block_merge(row_softmax<E, 1>(row, n, shape));
  if (threadIdx.x != 0) return;
  float* out = stats + t * kLossStats;
  out[0] = all.largest;
  out[1] = all.sum;
  out[2] = id >= range.begin && id < range.end ? shaped(load(row + id - range.begin), shape) : 0.0f;
}

// A row of the whole vocabulary, of what each rank found in its columns.
struct SharedRow {
  Softmax softmax;
  double target;
};
__device__ SharedRow whole_row(const float* stats, int64_t size, int64_t member_stride) {
  SharedRow row = {{stats[0], 0.0f}, 0.0};
  for (int64_t p = 1; p < size; ++p) row.softmax.largest = fmaxf(row.softmax.largest, stats[p * member_stride]);
  for (int64_t p = 0; p < size; ++p) {
    const float* member = stats + p * member_stride;
    row.softmax.sum += member[1] * expf(member[0] - row.softmax.largest);
    row.target += double(member[2]);
  }
  return row;
}

// Blocks take rows and leave losses as cross_entropy_kernel's do. dz may be z: a thread reads only what it overwrites itself.
template <class E>
__global__ void cross_entropy_finish_kernel(const E* z, const int64_t* target, const float* all_stats, int64_t size, E* dz, int64_t T,
                                            int64_t V, const double* scale_in, VocabularyRange range, LogitShape shape) {
  const float scale = float(*scale_in);
  double loss = 0;
  for (int64_t t = blockIdx.x; t < T; t += gridDim.x) {
    const E* row = z + t * V;
    E* out = dz + t * V;
    if (target[t] < 0) {
      for (int64_t j = threadIdx.x; j < V; j += blockDim.x) store(out + j, 0.0f);
      continue;
    }
    const int64_t n = range.end - range.begin, right = target[t] - range.begin;
    const SharedRow whole = whole_row(all_stats + t * kLossStats, size, T * kLossStats);
    const Softmax all = whole.softmax;
    loss += double(all.largest) + log(double(all.sum)) - whole.target;
    const float k = scale / all.sum;
    for (int64_t j = threadIdx.x; j < V; j += blockDim.x) {
      const float s = j < n ? shaped(load(row + j), shape) : 0.0f;
      store(out + j, j < n ? (expf(s - all.largest) * k - (j == right ? scale : 0.0f)) * slope(s, shape) : 0.0f);
    }
  }
  if (threadIdx.x == 0) partial_sums[blockIdx.x] = loss;
}

// --- preference pairs

// Block b has sequence b: its threads take rows in turn, and one adds up what they found.
__global__ void sequence_logps_kernel(const int64_t* target, const float* all_stats, int64_t size, double* logps, int64_t T,
                                      int64_t rows) {
  __shared__ double sums[kBlock], counts[kBlock];
  double sum = 0, count = 0;
  for (int64_t t = blockIdx.x * rows + threadIdx.x; t < (blockIdx.x + 1) * rows; t += blockDim.x) {
    if (target[t] < 0) continue;
    const SharedRow row = whole_row(all_stats + t * kLossStats, size, T * kLossStats);
    sum += row.target - double(row.softmax.largest) - log(double(row.softmax.sum));
    count += 1;
  }
  sums[threadIdx.x] = sum, counts[threadIdx.x] = count;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned i = 1; i < blockDim.x; ++i) sum += sums[i], count += counts[i];
  logps[2 * blockIdx.x] = sum;
  logps[2 * blockIdx.x + 1] = count;
}

__device__ SequenceLogp sequence_at(const double* logps, float reference, int64_t B, int ranks, int64_t b) {
  double sum = 0, tokens = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += logps[2 * (rank * B + b)], tokens += logps[2 * (rank * B + b) + 1];
  return {float(sum), tokens, reference};
}
__global__ void reference_logps_kernel(const double* logps, int64_t B, int ranks, float* reference) {
  for (int64_t b = 0; b < B; ++b) reference[b] = sequence_at(logps, 0, B, ranks, b).logp;
}
// One thread: a micro-batch has few pairs.
__global__ void preference_kernel(const double* logps, const float* reference, const double* scale_in, PairLossShape shape, int64_t B,
                                  int ranks, bool adds, double* coefficients, double* numbers, float* policy) {
  const double scale = *scale_in;
  for (int64_t b = 0; b < B; b += 2) {
    const SequenceLogp chosen = sequence_at(logps, reference[b], B, ranks, b),
                       rejected = sequence_at(logps, reference[b + 1], B, ranks, b + 1);
    policy[b] = chosen.logp;
    policy[b + 1] = rejected.logp;
    PairNumbers found;
    const bool counts = pair_numbers(chosen, rejected, shape, found);
    coefficients[b] = found.coefficient_chosen * scale;
    coefficients[b + 1] = found.coefficient_rejected * scale;
    for (int i = 0; i < kNumPairNumbers && adds && counts; ++i) numbers[i] += found.numbers[i] * scale;
  }
}

template <class E>
__global__ void logits_gradient_kernel(const E* z, const int64_t* target, const float* all_stats, int64_t size,
                                       const double* coefficients, int64_t rows, E* dz, int64_t T, int64_t V, VocabularyRange range,
                                       LogitShape shape) {
  for (int64_t t = blockIdx.x; t < T; t += gridDim.x) {
    const E* row = z + t * V;
    E* out = dz + t * V;
    if (target[t] < 0) {
      for (int64_t j = threadIdx.x; j < V; j += blockDim.x) store(out + j, 0.0f);
      continue;
    }
    const int64_t n = range.end - range.begin, right = target[t] - range.begin;
    const Softmax all = whole_row(all_stats + t * kLossStats, size, T * kLossStats).softmax;
    const float scale = float(coefficients[t / rows]), k = scale / all.sum;
    for (int64_t j = threadIdx.x; j < V; j += blockDim.x) {
      const float s = j < n ? shaped(load(row + j), shape) : 0.0f;
      store(out + j, j < n ? (expf(s - all.largest) * k - (j == right ? scale : 0.0f)) * slope(s, shape) : 0.0f);
    }
  }
}

}  // namespace

void cross_entropy(Element element, const void* z, const int64_t* target, void* dz, double* loss, int64_t T, int64_t V,
                   const double* scale, float multiplier, float soft_cap, StreamHandle stream) {
  const unsigned blocks = unsigned(T < kNumPartials ? T : kNumPartials);
  with_pack(element, V, {z, dz}, [&](auto* e, auto width) {
    using E = DISTSETUP_ELEMENT(e);
    launch(cross_entropy_kernel<E, width()>, blocks, kBlock, stream, static_cast<const E*>(z), target, static_cast<E*>(dz), T, V,
           scale, LogitShape{multiplier, soft_cap});
  });
  launch(finish_sum, 1, kNumPartials, stream, loss, int(blocks), scale, /*accumulate=*/true);
  check_launch("cross_entropy");
}

void cross_entropy_local(Element element, const void* z, const int64_t* target, float* stats, int64_t T, int64_t V,
                         VocabularyRange range, LogitShape shape, StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(cross_entropy_local_kernel<E>, unsigned(T), kBlock, stream, static_cast<const E*>(z), target, stats, V, range, shape);
  });
  check_launch("cross_entropy_local");
}

void cross_entropy_finish(Element element, const void* z, const int64_t* target, const float* all_stats, int64_t size, void* dz,
                          double* loss, int64_t T, int64_t V, const double* scale, VocabularyRange range, LogitShape shape,
                          StreamHandle stream) {
  const unsigned blocks = unsigned(T < kNumPartials ? T : kNumPartials);
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(cross_entropy_finish_kernel<E>, blocks, kBlock, stream, static_cast<const E*>(z), target, all_stats, size,
           static_cast<E*>(dz), T, V, scale, range, shape);
  });
  launch(finish_sum, 1, kNumPartials, stream, loss, int(blocks), scale, /*accumulate=*/true);
  check_launch("cross_entropy_finish");
}

void sequence_logps(const int64_t* target, const float* all_stats, int64_t size, double* logps, int64_t T, int64_t B,
                    StreamHandle stream) {
  launch(sequence_logps_kernel, unsigned(B), kBlock, stream, target, all_stats, size, logps, T, T / B);
  check_launch("sequence_logps");
}

void reference_logps(const double* logps, int64_t B, int ranks, float* reference, StreamHandle stream) {
  launch(reference_logps_kernel, 1, 1, stream, logps, B, ranks, reference);
  check_launch("reference_logps");
}

void preference(const double* logps, const float* reference, const double* scale, PairLossShape shape, int64_t B, int ranks, bool adds,
                double* coefficients, double* numbers, float* policy, StreamHandle stream) {
  launch(preference_kernel, 1, 1, stream, logps, reference, scale, shape, B, ranks, adds, coefficients, numbers, policy);
  check_launch("preference");
}

void logits_gradient(Element element, const void* z, const int64_t* target, const float* all_stats, int64_t size,
                     const double* coefficients, int64_t B, void* dz, int64_t T, int64_t V, VocabularyRange range, LogitShape shape,
                     StreamHandle stream) {
  const unsigned blocks = unsigned(T < kNumPartials ? T : kNumPartials);
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(logits_gradient_kernel<E>, blocks, kBlock, stream, static_cast<const E*>(z), target, all_stats, size, coefficients, T / B,
           static_cast<E*>(dz), T, V, range, shape);
  });
  check_launch("logits_gradient");
}

}  // namespace distsetup::cuda
