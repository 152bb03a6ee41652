// Kernels of a router: which experts a token goes to and with which weights, and the load-balancing loss. See kernels.h; legend:
// runtime/kernels/cpu/experts.h.
#include "runtime/kernels/cuda/choices.cuh"

namespace distsetup::cuda {
namespace {

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

template <class E>
__global__ void above_share_kernel(const int64_t* choice, E* above, int64_t N, bool accumulate) {
  const int64_t expert = blockIdx.x;
  const int64_t n = count_choices(choice, N, [expert](int64_t c) { return c == expert; });
  if (threadIdx.x != 0) return;
  const float more = float(double(n) - double(N) / double(gridDim.x));
  store(above + expert, more + (accumulate ? load(above + expert) : 0.0f));
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
__global__ void sum_routes_kernel(const double* all, double* sums, int64_t ranks, int64_t n) {
  for (int64_t i = threadIdx.x; i < n; i += kWarp) {
    double sum = 0;
    for (int64_t rank = 0; rank < ranks; ++rank) sum += all[rank * n + i];
    sums[i] = sum;
  }
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

// --- the z-loss

// Of a row, by a warp; every thread gets it.
template <class E>
__device__ inline float log_sum_exp(const E* logits, int64_t n, int lane) {
  float largest = -__builtin_huge_valf(), sum = 0;
  for (int64_t e = lane; e < n; e += kWarp) largest = fmaxf(largest, load(logits + e));
  largest = warp_max(largest);
  for (int64_t e = lane; e < n; e += kWarp) sum += expf(load(logits + e) - largest);
  return largest + logf(warp_sum(sum));
}
// One block: a warp goes through every 16th row, and what the warps have is added in one order.
template <class E>
__global__ void router_z_loss_kernel(const E* logits, const double* scale, double* loss, int64_t T, int64_t num_experts,
                                     double factor) {
  __shared__ double of_warp[kCountWarps];
  const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
  double sum = 0;
  for (int64_t begin = 0; begin < T; begin += kCountWarps) {  // as many rounds for each warp
    const int64_t t = begin + warp < T ? begin + warp : T - 1;
    const double z = log_sum_exp(logits + t * num_experts, num_experts, lane);
    if (begin + warp < T) sum += z * z;
  }
  if (lane == 0) of_warp[warp] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  double total = 0;
  for (int w = 0; w < kCountWarps; ++w) total += of_warp[w];
  *loss += factor * *scale * total / double(T);
}
template <class E>
__global__ void router_z_loss_backward_kernel(const E* logits, const double* scale, const E* before, E* dlogits, int64_t num_experts,
                                              double factor) {
  const int64_t at = int64_t(blockIdx.x) * num_experts;
  const float z = log_sum_exp(logits + at, num_experts, int(threadIdx.x));
  const auto slope = float(2 * factor * *scale / double(gridDim.x) * double(z));
  for (int64_t e = threadIdx.x; e < num_experts; e += kWarp)
    store(dlogits + at + e, expf(load(logits + at + e) - z) * slope + (before == nullptr ? 0.0f : load(before + at + e)));
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
void count_routes(Element element, const void* logits, const int64_t* choice, double* sums, int64_t T, int64_t num_experts, int64_t k,
                  StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(count_routes_kernel<E>, 1, kCountWarps * kWarp, stream, DISTSETUP_IN(logits), choice, sums, T, num_experts, k);
  });
  check_launch("count_routes");
}
void sum_routes(const double* all, double* sums, int64_t ranks, int64_t num_experts, StreamHandle stream) {
  launch(sum_routes_kernel, 1, kWarp, stream, all, sums, ranks, 2 * num_experts);
  check_launch("sum_routes");
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

void router_z_loss(Element element, const void* logits, const double* scale, double* loss, int64_t T, int64_t num_experts,
                   double factor, StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(router_z_loss_kernel<E>, 1, kCountWarps * kWarp, stream, DISTSETUP_IN(logits), scale, loss, T, num_experts, factor);
  });
  check_launch("router_z_loss");
}
void router_z_loss_backward(Element element, const void* logits, const double* scale, const void* before, void* dlogits, int64_t T,
                            int64_t num_experts, double factor, StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(router_z_loss_backward_kernel<E>, unsigned(T), kWarp, stream, DISTSETUP_IN(logits), scale, DISTSETUP_IN(before),
           DISTSETUP_OUT(dlogits), num_experts, factor);
  });
  check_launch("router_z_loss_backward");
}

#undef DISTSETUP_IN
#undef DISTSETUP_OUT

}  // namespace distsetup::cuda
