// Kernels of mixtures of experts: the router, rows of tokens as rows of experts and back, activations times a row's weight, the
// load-balancing loss. See kernels.h; legend: runtime/kernels/cpu/experts.h.
#include "runtime/kernels/cuda/activation.cuh"

namespace distsetup::cuda {
namespace {

// As it is once it has been stored.
template <class E>
__device__ inline float rounded(float v) {
  E stored;
  store(&stored, v);
  return load(&stored);
}

__device__ inline float warp_max(float v) {
  for (int d = kWarp / 2; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(kAllLanes, v, d));
  return v;
}

// --- the router: a warp, which is a block, for each row

template <class E>
__device__ inline void scores_of(const E* logits, float* scores, int64_t n, RouterScore score) {
  if (score == RouterScore::kSigmoid) {
    for (int64_t e = threadIdx.x; e < n; e += kWarp) scores[e] = 1.0f / (1.0f + expf(-load(logits + e)));
    return;
  }
  float largest = -__builtin_huge_valf(), sum = 0;
  for (int64_t e = threadIdx.x; e < n; e += kWarp) largest = fmaxf(largest, load(logits + e));
  largest = warp_max(largest);
  for (int64_t e = threadIdx.x; e < n; e += kWarp) sum += scores[e] = expf(load(logits + e) - largest);
  sum = warp_sum(sum);
  for (int64_t e = threadIdx.x; e < n; e += kWarp) scores[e] /= sum;
}

constexpr float kTaken = -__builtin_huge_valf();

struct Best {
  float value;
  int at;  // negative: none
};
__device__ inline bool is_better(const Best& a, const Best& b) {
  return a.at >= 0 && (b.at < 0 || a.value > b.value || (a.value == b.value && a.at < b.at));
}
// The largest of n values that is not taken, the first of equal ones; every thread gets what the first one finds.
__device__ int best_of(const float* values, int64_t n) {
  __shared__ int found;
  Best best = {0, -1};
  for (int64_t i = threadIdx.x; i < n; i += kWarp)
    if (values[i] != kTaken && (best.at < 0 || values[i] > best.value)) best = {values[i], int(i)};
  for (int d = kWarp / 2; d > 0; d /= 2) {
    const Best other = {__shfl_xor_sync(kAllLanes, best.value, d), __shfl_xor_sync(kAllLanes, best.at, d)};
    if (is_better(other, best)) best = other;
  }
  if (threadIdx.x == 0) found = best.at < 0 ? 0 : best.at;
  __syncthreads();
  return found;
}

// Takes the experts of all but the best groups out of the choice.
__device__ void leave_groups_out(float* values, const Router& r) {
  __shared__ float of_group[kMostExperts];
  __shared__ bool is_chosen[kMostExperts];
  const int64_t each = r.num_experts / r.groups;
  for (int64_t g = threadIdx.x; g < r.groups; g += kWarp) {
    float first = kTaken, second = kTaken;
    for (int64_t e = g * each; e < (g + 1) * each; ++e) {
      if (values[e] > first) {
        second = first;
        first = values[e];
      } else if (values[e] > second) {
        second = values[e];
      }
    }
    of_group[g] = r.score == RouterScore::kSoftmax || each == 1 ? first : first + second;
    is_chosen[g] = false;
  }
  __syncthreads();
  for (int64_t i = 0; i < r.groups_chosen; ++i) {
    const int g = best_of(of_group, r.groups);
    if (threadIdx.x == 0) {
      of_group[g] = kTaken;
      is_chosen[g] = true;
    }
    __syncthreads();
  }
  for (int64_t e = threadIdx.x; e < r.num_experts; e += kWarp)
    if (!is_chosen[e / each]) values[e] = kTaken;
  __syncthreads();
}

constexpr float kSmallest = 1e-20f;  // beside the sum of sigmoids, as DeepSeek adds it

template <class Choice>
__device__ inline float sum_of_chosen(const float* scores, const Choice* choice, const Router& r) {
  float sum = r.score == RouterScore::kSigmoid ? kSmallest : 0.0f;
  for (int64_t j = 0; j < r.k; ++j) sum += scores[choice[j]];
  return sum;
}

template <class E>
__global__ void route_kernel(const E* logits, const E* bias, float* weights, int64_t* choice, Router r) {
  __shared__ float scores[kMostExperts], values[kMostExperts];
  __shared__ int chosen[kMostChosen];
  const int64_t t = blockIdx.x;
  scores_of(logits + t * r.num_experts, scores, r.num_experts, r.score);
  for (int64_t e = threadIdx.x; e < r.num_experts; e += kWarp) values[e] = scores[e] + (bias == nullptr ? 0.0f : load(bias + e));
  __syncthreads();
  if (r.groups > 1) leave_groups_out(values, r);
  for (int64_t j = 0; j < r.k; ++j) {
    const int best = best_of(values, r.num_experts);
    if (threadIdx.x == 0) {
      chosen[j] = best;
      values[best] = kTaken;
    }
    __syncthreads();
  }
  const float factor = r.normalized ? r.scaling / sum_of_chosen(scores, chosen, r) : r.scaling;
  for (int64_t j = threadIdx.x; j < r.k; j += kWarp) {
    choice[t * r.k + j] = chosen[j];
    weights[t * r.k + j] = scores[chosen[j]] * factor;
  }
}

// The formula stands in runtime/kernels/cpu/experts.cc.
template <class E>
__global__ void route_backward_kernel(const float* dweights, const E* logits, const int64_t* choice, const E* before, E* dlogits,
                                      Router r) {
  __shared__ float scores[kMostExperts], d[kMostExperts];
  __shared__ float inner_of_chosen;
  const int64_t t = blockIdx.x, at = t * r.num_experts;
  scores_of(logits + at, scores, r.num_experts, r.score);
  for (int64_t e = threadIdx.x; e < r.num_experts; e += kWarp) d[e] = 0;
  __syncthreads();
  if (threadIdx.x == 0) {
    const float* dw = dweights + t * r.k;
    const int64_t* chosen = choice + t * r.k;
    const float sum = r.normalized ? sum_of_chosen(scores, chosen, r) : 1.0f;
    float mean = 0, inner = 0;
    if (r.normalized)
      for (int64_t j = 0; j < r.k; ++j) mean += dw[j] * (scores[chosen[j]] / sum);
    for (int64_t j = 0; j < r.k; ++j) {
      d[chosen[j]] = r.scaling / sum * (dw[j] - mean);
      inner += d[chosen[j]] * scores[chosen[j]];
    }
    inner_of_chosen = r.normalized ? 0.0f : inner;
  }
  __syncthreads();
  for (int64_t e = threadIdx.x; e < r.num_experts; e += kWarp) {
    const float slope = r.score == RouterScore::kSigmoid ? scores[e] * (1 - scores[e]) * d[e] : scores[e] * (d[e] - inner_of_chosen);
    store(dlogits + at + e, slope + (before == nullptr ? 0.0f : load(before + at + e)));
  }
}

// --- order: a block for each expert

// How many of the N choices `counts` says yes to; every thread gets it.
template <class Counts>
__device__ int64_t count_choices(const int64_t* choice, int64_t N, const Counts& counts) {
  int64_t n = 0;
  for (int64_t i = threadIdx.x; i < N; i += blockDim.x) n += counts(choice[i]) ? 1 : 0;
  return block_sum(n);
}
template <class E>
__global__ void above_share_kernel(const int64_t* choice, E* above, int64_t N, bool accumulate) {
  const int64_t expert = blockIdx.x;
  const int64_t n = count_choices(choice, N, [expert](int64_t c) { return c == expert; });
  if (threadIdx.x != 0) return;
  const float more = float(double(n) - double(N) / double(gridDim.x));
  store(above + expert, more + (accumulate ? load(above + expert) : 0.0f));
}
__global__ void sort_experts_kernel(const int64_t* choice, int64_t* order, int64_t* place, int64_t* starts, int64_t N) {
  __shared__ int of_warp[kWarp];
  const int64_t expert = blockIdx.x;
  int64_t next = count_choices(choice, N, [expert](int64_t c) { return c < expert; });
  if (threadIdx.x == 0) starts[expert] = next;
  if (threadIdx.x == 0 && expert + 1 == gridDim.x) starts[gridDim.x] = N;
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int64_t begin = 0; begin < N; begin += blockDim.x) {
    const int64_t i = begin + threadIdx.x;
    const bool is_mine = i < N && choice[i] == expert;
    const unsigned lanes = __ballot_sync(kAllLanes, is_mine);
    if (lane == 0) of_warp[warp] = __popc(lanes);
    __syncthreads();
    int before = __popc(lanes & ((1u << lane) - 1)), all = 0;
    for (unsigned w = 0; w < blockDim.x / kWarp; ++w) {
      before += w < warp ? of_warp[w] : 0;
      all += of_warp[w];
    }
    if (is_mine) {
      place[i] = next + before;
      order[next + before] = i;
    }
    next += all;
    __syncthreads();  // of_warp is written again
  }
}

// --- rows: a block for each

template <class E, int N>
__global__ void permute_kernel(const E* x, const int64_t* order, E* y, int64_t H, int64_t k) {
  const int64_t i = blockIdx.x, from = order[i] / k;
  for (int64_t j = threadIdx.x * N; j < H; j += blockDim.x * N)
    *reinterpret_cast<Pack<E, N>*>(y + i * H + j) = *reinterpret_cast<const Pack<E, N>*>(x + from * H + j);
}
template <class E, int N>
__global__ void unpermute_kernel(const E* rows, const int64_t* place, const E* addend, E* y, int64_t H, int64_t k) {
  __shared__ int64_t sorted[kMostChosen];
  const int64_t t = blockIdx.x;
  if (threadIdx.x == 0) {
    for (int64_t j = 0; j < k; ++j) {  // by insertion: k is small
      int64_t at = j;
      for (; at > 0 && sorted[at - 1] > place[t * k + j]; --at) sorted[at] = sorted[at - 1];
      sorted[at] = place[t * k + j];
    }
  }
  __syncthreads();
  for (int64_t j = threadIdx.x * N; j < H; j += blockDim.x * N) {
    float sum[N] = {}, v[N];
    for (int64_t n = 0; n < k; ++n) {
      load_pack<N>(rows + sorted[n] * H + j, v);
      for (int c = 0; c < N; ++c) sum[c] += v[c];
    }
    if (addend != nullptr) {
      load_pack<N>(addend + t * H + j, v);
      for (int c = 0; c < N; ++c) sum[c] += v[c];
    }
    store_pack<N>(y + t * H + j, sum);
  }
}

__device__ inline bool has_row(const RowChoices& choices, int64_t row) {
  return choices.num_rows == nullptr || row < *choices.num_rows;
}
__device__ inline int64_t choice_of(const RowChoices& choices, int64_t row) {
  return choices.order == nullptr ? row : choices.order[row];
}
// Row i has the weight of choice order[i]. What is rounded on the CPU is rounded here.
template <class E, int N>
__global__ void gated_weighted_kernel(Activation f, const E* gu, const float* weights, RowChoices choices, E* m, int64_t F) {
  const int64_t i = blockIdx.x;
  if (!has_row(choices, i)) return;
  const float weight = weights[choice_of(choices, i)];
  gate_row<N>(gu + i * 2 * F, m + i * F, F, [f](float g) { return activation_at(f, g).value; });
  for (int64_t j = threadIdx.x * N; j < F; j += blockDim.x * N) {  // each thread reads what it has written
    float v[N];
    load_pack<N>(m + i * F + j, v);
    for (int c = 0; c < N; ++c) v[c] *= weight;
    store_pack<N>(m + i * F + j, v);
  }
}
// dgu may be gu.
template <class E, int N>
__global__ void gated_weighted_backward_kernel(Activation f, const E* dm, const E* gu, const float* weights, RowChoices choices,
                                               E* dgu, float* dweights, int64_t F) {
  const int64_t i = blockIdx.x;
  if (!has_row(choices, i)) return;
  const int64_t choice = choice_of(choices, i);
  const float weight = weights[choice];
  const E *d_row = dm + i * F, *gu_row = gu + i * 2 * F;
  float of_weight = 0;
  for (int64_t j = threadIdx.x * N; j < F; j += blockDim.x * N) {
    float d[N], g[N], u[N];
    load_pack<N>(d_row + j, d);
    load_pack<N>(gu_row + j, g);
    load_pack<N>(gu_row + F + j, u);
    for (int c = 0; c < N; ++c) of_weight += d[c] * rounded<E>(activation_at(f, g[c]).value * u[c]);
  }
  of_weight = block_sum(of_weight);
  if (threadIdx.x == 0) dweights[choice] = of_weight;
  gate_row_backward<N>(d_row, gu_row, dgu + i * 2 * F, F, [f, weight](float& d, float& g, float u) {
    d = rounded<E>(d * weight);
    gate_gradients(f, d, g, u);
  });
}

template <class E>
__device__ inline float sigmoid_of(const E* x) {
  return 1.0f / (1.0f + expf(-load(x)));
}
template <class E>
__global__ void sigmoid_rows_kernel(const E* m, const E* s, E* y, int64_t F) {
  const int64_t t = blockIdx.x;
  const float factor = sigmoid_of(s + t);
  for (int64_t j = threadIdx.x; j < F; j += blockDim.x) store(y + t * F + j, load(m + t * F + j) * factor);
}
template <class E>
__global__ void sigmoid_rows_backward_kernel(const E* d, const E* m, const E* s, E* dm, E* ds, int64_t F) {
  const int64_t t = blockIdx.x;
  const float factor = sigmoid_of(s + t);
  float dot = 0;
  for (int64_t j = threadIdx.x; j < F; j += blockDim.x) dot += load(d + t * F + j) * load(m + t * F + j);
  dot = block_sum(dot);
  for (int64_t j = threadIdx.x; j < F; j += blockDim.x) store(dm + t * F + j, load(d + t * F + j) * factor);
  if (threadIdx.x == 0) store(ds + t, dot * factor * (1 - factor));
}

// --- experts of several ranks

// One thread: an expert's rows are those that all ranks send.
__global__ void own_starts_kernel(const int64_t* all, int64_t* own, int64_t ranks, int64_t num_experts, int64_t first,
                                  int64_t num_own) {
  if (threadIdx.x != 0) return;
  own[0] = 0;
  for (int64_t e = 0; e < num_own; ++e) {
    own[e + 1] = own[e];
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const int64_t* starts = all + rank * (num_experts + 1) + first + e;
      own[e + 1] += starts[1] - starts[0];
    }
  }
}
__global__ void sort_weights_kernel(const float* weights, const int64_t* order, float* rows, int64_t N) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < N) rows[i] = weights[order[i]];
}
__global__ void unsort_weights_kernel(const float* rows, const int64_t* order, float* weights, int64_t N) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < N) weights[order[i]] = rows[i];
}

// --- the load-balancing loss

// One block: a warp goes through every 16th row, its threads each through every 32nd expert.
constexpr int kCountWarps = 16, kOwnExperts = kMostExperts / kWarp;
template <class E>
__global__ void count_routes_kernel(const E* logits, const int64_t* choice, double* sums, int64_t T, int64_t num_experts, int64_t k) {
  __shared__ double probabilities[kMostExperts];
  __shared__ int counts[kMostExperts];
  const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
  for (int64_t e = threadIdx.x; e < num_experts; e += blockDim.x) {
    probabilities[e] = 0;
    counts[e] = 0;
  }
  __syncthreads();
  double own[kOwnExperts] = {};
  for (int64_t begin = 0; begin < T; begin += kCountWarps) {  // as many rounds for each warp: sums of a warp take all threads
    const int64_t t = begin + warp;
    float p[kOwnExperts], largest = -__builtin_huge_valf(), sum = 0;
    for (int n = 0; n < kOwnExperts; ++n) {
      const int64_t e = lane + int64_t(n) * kWarp;
      p[n] = t < T && e < num_experts ? load(logits + t * num_experts + e) : -__builtin_huge_valf();
      largest = fmaxf(largest, p[n]);
    }
    largest = warp_max(largest);
    for (int n = 0; n < kOwnExperts; ++n) sum += p[n] = t < T ? expf(p[n] - largest) : 0.0f;
    sum = warp_sum(sum);
    for (int n = 0; n < kOwnExperts; ++n) own[n] += t < T ? double(p[n] / sum) : 0.0;
  }
  for (int64_t i = threadIdx.x; i < T * k; i += blockDim.x) atomicAdd(counts + choice[i], 1);
  for (int w = 0; w < kCountWarps; ++w) {  // in one order
    if (warp == w)
      for (int n = 0; n < kOwnExperts; ++n)
        if (lane + n * kWarp < num_experts) probabilities[lane + n * kWarp] += own[n];
    __syncthreads();
  }
  for (int64_t e = threadIdx.x; e < num_experts; e += blockDim.x) {
    sums[e] += counts[e];
    sums[num_experts + e] += probabilities[e];
  }
}
// Rows that count_routes has seen, of all layers. Counts are whole numbers: any order gives the same sum.
__device__ inline double rows_of(const double* sums, int64_t num_experts, int64_t k) {
  double choices = 0;
  for (int64_t e = threadIdx.x; e < num_experts; e += kWarp) choices += sums[e];
  return warp_sum(choices) / double(k);
}
__global__ void balance_loss_kernel(const double* sums, const double* scale, double* loss, int64_t num_experts, int64_t k,
                                    double factor) {
  const double rows = rows_of(sums, num_experts, k);
  double total = 0;
  for (int64_t e = threadIdx.x; e < num_experts; e += kWarp) total += sums[e] / rows * (sums[num_experts + e] / rows);
  total = warp_sum(total);
  if (threadIdx.x == 0) *loss += factor * *scale * double(num_experts) * total;
}
template <class E>
__global__ void balance_backward_kernel(const E* logits, const double* sums, const double* scale, const E* before, E* dlogits,
                                        int64_t num_experts, int64_t k, double factor) {
  __shared__ float p[kMostExperts];
  const int64_t at = int64_t(blockIdx.x) * num_experts;
  const double rows = rows_of(sums, num_experts, k);
  const auto slope = [&](int64_t e) { return float(factor * *scale * double(num_experts) * sums[e] / rows / rows); };
  scores_of(logits + at, p, num_experts, RouterScore::kSoftmax);
  float inner = 0;
  for (int64_t e = threadIdx.x; e < num_experts; e += kWarp) inner += p[e] * slope(e);
  inner = warp_sum(inner);
  for (int64_t e = threadIdx.x; e < num_experts; e += kWarp)
    store(dlogits + at + e, p[e] * (slope(e) - inner) + (before == nullptr ? 0.0f : load(before + at + e)));
}

// --- products: where rows of experts end, as int32; gradients of experts without rows

__global__ void row_ends_kernel(const int64_t* starts, int32_t* ends, int64_t num_experts) {
  const int64_t e = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (e < num_experts) ends[e] = int32_t(starts[e + 1]);
}
template <class E>
__global__ void clear_idle_kernel(const int64_t* starts, E* g, int64_t numel) {
  const int64_t expert = blockIdx.y;
  if (starts[expert] != starts[expert + 1]) return;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < numel; i += int64_t(gridDim.x) * blockDim.x)
    store(g + expert * numel + i, 0.0f);
}

}  // namespace

#define DISTSETUP_IN(p) static_cast<const E*>(p)
#define DISTSETUP_OUT(p) static_cast<E*>(p)

void route(Element element, const void* logits, const void* bias, float* weights, int64_t* choice, int64_t T, const Router& router,
           StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(route_kernel<E>, unsigned(T), kWarp, stream, DISTSETUP_IN(logits), DISTSETUP_IN(bias), weights, choice, router);
  });
  check_launch("route");
}
void route_backward(Element element, const float* dweights, const void* logits, const int64_t* choice, const void* before,
                    void* dlogits, int64_t T, const Router& router, StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(route_backward_kernel<E>, unsigned(T), kWarp, stream, dweights, DISTSETUP_IN(logits), choice, DISTSETUP_IN(before),
           DISTSETUP_OUT(dlogits), router);
  });
  check_launch("route_backward");
}
void count_above_share(Element element, const int64_t* choice, void* above, int64_t N, int64_t num_experts, bool accumulate,
                       StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(above_share_kernel<E>, unsigned(num_experts), kBlock, stream, choice, DISTSETUP_OUT(above), N, accumulate);
  });
  check_launch("count_above_share");
}
void sort_experts(const int64_t* choice, int64_t* order, int64_t* place, int64_t* starts, int64_t N, int64_t num_experts,
                  StreamHandle stream) {
  launch(sort_experts_kernel, unsigned(num_experts), 2 * kBlock, stream, choice, order, place, starts, N);
  check_launch("sort_experts");
}
void permute(Element element, const void* x, const int64_t* order, void* y, int64_t N, int64_t H, int64_t k, StreamHandle stream) {
  with_pack(element, H, {x, y}, [&](auto* e, auto width) {
    using E = DISTSETUP_ELEMENT(e);
    launch(permute_kernel<E, width()>, unsigned(N), kBlock, stream, DISTSETUP_IN(x), order, DISTSETUP_OUT(y), H, k);
  });
  check_launch("permute");
}
void unpermute(Element element, const void* rows, const int64_t* place, const void* addend, void* y, int64_t T, int64_t H, int64_t k,
               StreamHandle stream) {
  with_pack(element, H, {rows, addend, y}, [&](auto* e, auto width) {
    using E = DISTSETUP_ELEMENT(e);
    launch(unpermute_kernel<E, width()>, unsigned(T), kBlock, stream, DISTSETUP_IN(rows), place, DISTSETUP_IN(addend),
           DISTSETUP_OUT(y), H, k);
  });
  check_launch("unpermute");
}
void gated_weighted(Element element, Activation f, const void* gu, const float* weights, RowChoices choices, void* m, int64_t N,
                    int64_t F, StreamHandle stream) {
  with_pack(element, F, {gu, m}, [&](auto* e, auto width) {
    using E = DISTSETUP_ELEMENT(e);
    launch(gated_weighted_kernel<E, width()>, unsigned(N), kBlock, stream, f, DISTSETUP_IN(gu), weights, choices, DISTSETUP_OUT(m), F);
  });
  check_launch("gated_weighted");
}
void gated_weighted_backward(Element element, Activation f, const void* dm, const void* gu, const float* weights, RowChoices choices,
                             void* dgu, float* dweights, int64_t N, int64_t F, StreamHandle stream) {
  with_pack(element, F, {dm, gu, dgu}, [&](auto* e, auto width) {
    using E = DISTSETUP_ELEMENT(e);
    launch(gated_weighted_backward_kernel<E, width()>, unsigned(N), kBlock, stream, f, DISTSETUP_IN(dm), DISTSETUP_IN(gu), weights,
           choices, DISTSETUP_OUT(dgu), dweights, F);
  });
  check_launch("gated_weighted_backward");
}
void sigmoid_rows(Element element, const void* m, const void* s, void* y, int64_t T, int64_t F, StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(sigmoid_rows_kernel<E>, unsigned(T), kBlock, stream, DISTSETUP_IN(m), DISTSETUP_IN(s), DISTSETUP_OUT(y), F);
  });
  check_launch("sigmoid_rows");
}
void sigmoid_rows_backward(Element element, const void* d, const void* m, const void* s, void* dm, void* ds, int64_t T, int64_t F,
                           StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(sigmoid_rows_backward_kernel<E>, unsigned(T), kBlock, stream, DISTSETUP_IN(d), DISTSETUP_IN(m), DISTSETUP_IN(s),
           DISTSETUP_OUT(dm), DISTSETUP_OUT(ds), F);
  });
  check_launch("sigmoid_rows_backward");
}
void own_starts(const int64_t* all, int64_t* own, int64_t ranks, int64_t num_experts, int64_t first, int64_t num_own,
                StreamHandle stream) {
  launch(own_starts_kernel, 1, kWarp, stream, all, own, ranks, num_experts, first, num_own);
  check_launch("own_starts");
}
void sort_weights(const float* weights, const int64_t* order, float* rows, int64_t N, StreamHandle stream) {
  launch(sort_weights_kernel, grid(N, kBlock), kBlock, stream, weights, order, rows, N);
  check_launch("sort_weights");
}
void unsort_weights(const float* rows, const int64_t* order, float* weights, int64_t N, StreamHandle stream) {
  launch(unsort_weights_kernel, grid(N, kBlock), kBlock, stream, rows, order, weights, N);
  check_launch("unsort_weights");
}
void count_routes(Element element, const void* logits, const int64_t* choice, double* sums, int64_t T, int64_t num_experts, int64_t k,
                  StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(count_routes_kernel<E>, 1, kCountWarps * kWarp, stream, DISTSETUP_IN(logits), choice, sums, T, num_experts, k);
  });
  check_launch("count_routes");
}
void balance_loss(const double* sums, const double* scale, double* loss, int64_t num_experts, int64_t k, double factor,
                  StreamHandle stream) {
  launch(balance_loss_kernel, 1, kWarp, stream, sums, scale, loss, num_experts, k, factor);
  check_launch("balance_loss");
}
void balance_backward(Element element, const void* logits, const double* sums, const double* scale, const void* before, void* dlogits,
                      int64_t T, int64_t num_experts, int64_t k, double factor, StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(balance_backward_kernel<E>, unsigned(T), kWarp, stream, DISTSETUP_IN(logits), sums, scale, DISTSETUP_IN(before),
           DISTSETUP_OUT(dlogits), num_experts, k, factor);
  });
  check_launch("balance_backward");
}
void row_ends(const int64_t* starts, int32_t* ends, int64_t num_experts, StreamHandle stream) {
  launch(row_ends_kernel, grid(num_experts, kBlock), kBlock, stream, starts, ends, num_experts);
  check_launch("row_ends");
}
void clear_idle(Element element, const int64_t* starts, void* g, int64_t numel, int64_t num_experts, StreamHandle stream) {
  constexpr int kBlocksEach = 16;
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(clear_idle_kernel<E>, dim3(kBlocksEach, unsigned(num_experts)), kBlock, stream, starts, DISTSETUP_OUT(g), numel);
  });
  check_launch("clear_idle");
}

#undef DISTSETUP_IN
#undef DISTSETUP_OUT

}  // namespace distsetup::cuda
