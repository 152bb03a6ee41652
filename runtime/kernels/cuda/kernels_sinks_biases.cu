// Kernels of attention's sinks, of experts' biases and of a clipped gate. See kernels.h; legend: runtime/kernels/cpu/sinks_biases.h.
#include "runtime/kernels/cuda/choices.cuh"
#include "runtime/kernels/cuda/sums.cuh"

namespace distsetup::cuda {
namespace {

// A block for each token, a warp for each head at a time.
template <class E>
__global__ void head_sinks_kernel(E* att, float* lse, const E* sinks, SumLayout s, int64_t D) {
  const int64_t t = blockIdx.x;
  const unsigned lane = threadIdx.x % kWarp;
  for (int64_t a = threadIdx.x / kWarp; a < s.A; a += blockDim.x / kWarp) {
    float* const sum = lse + sum_index(s, t, a);
    const float sink = load(sinks + a), before = warp_sum(lane == 0 ? *sum : 0.0f);  // read by the lane that writes it
    const float with = fmaxf(sink, before) + log1pf(expf(-fabsf(sink - before))), factor = expf(before - with);
    E* const row = att + (t * s.A + a) * D;
    for (int64_t i = lane; i < D; i += kWarp) store(row + i, load(row + i) * factor);
    if (lane == 0) *sum = with;
  }
}
// A block for each head, a warp for each token at a time.
template <class E>
__global__ void head_sinks_backward_kernel(const E* datt, const E* att, const float* lse, const E* sinks, E* dsinks, SumLayout s,
                                           int64_t D, bool accumulate) {
  const int64_t a = blockIdx.x;
  const unsigned lane = threadIdx.x % kWarp;
  const float sink = load(sinks + a);
  float sum = 0;
  for (int64_t t = threadIdx.x / kWarp; t < s.B * s.S; t += blockDim.x / kWarp) {
    const int64_t row = (t * s.A + a) * D;
    float dot = 0;
    for (int64_t i = lane; i < D; i += kWarp) dot += load(datt + row + i) * load(att + row + i);
    dot = warp_sum(dot);
    if (lane == 0) sum -= expf(sink - lse[sum_index(s, t, a)]) * dot;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) store(dsinks + a, accumulate ? load(dsinks + a) + sum : sum);
}

// A block for each row of experts; behind the last expert's rows there are none.
template <class E>
__global__ void grouped_bias_kernel(E* rows, const E* bias, const int64_t* starts, int64_t num_experts, int64_t n) {
  const int64_t row = blockIdx.x;
  if (row >= starts[num_experts]) return;
  int64_t e = 0;
  while (starts[e + 1] <= row) ++e;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) store(rows + row * n + i, load(rows + row * n + i) + load(bias + e * n + i));
}
// A thread for each column of an expert: block (x, e).
template <class E>
__global__ void grouped_bias_backward_kernel(const E* drows, const int64_t* starts, E* dbias, int64_t first, int64_t num_experts,
                                             int64_t n, bool accumulate) {
  const int64_t e = blockIdx.y, column = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= n) return;
  const bool is_own = e >= first && e < first + num_experts;
  const int64_t begin = is_own ? starts[e - first] : 0, end = is_own ? starts[e - first + 1] : 0;
  float sum = 0;
  for (int64_t row = begin; row < end; ++row) sum += load(drows + row * n + column);
  E* const to = dbias + e * n + column;
  store(to, accumulate ? load(to) + sum : sum);
}

// A block for each token.
template <class E>
__global__ void routed_bias_kernel(const E* x, const float* weights, const int64_t* choice, const E* bias, E* y, int64_t n,
                                   int64_t k) {
  const int64_t t = blockIdx.x;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    float sum = 0;
    for (int64_t j = 0; j < k; ++j) sum += weights[t * k + j] * load(bias + choice[t * k + j] * n + i);
    store(y + t * n + i, load(x + t * n + i) + sum);
  }
}
// A block for each choice.
template <class E>
__global__ void routed_bias_weights_kernel(const E* dy, const int64_t* choice, const E* bias, float* dweights, int64_t n, int64_t k) {
  const int64_t c = blockIdx.x;
  const E *const d = dy + c / k * n, *const b = bias + choice[c] * n;
  float dot = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) dot += load(d + i) * load(b + i);
  dot = block_sum(dot);
  if (threadIdx.x == 0) dweights[c] += dot;
}
// A thread for each column of an expert: block (x, e).
template <class E>
__global__ void routed_bias_gradient_kernel(const E* dy, const float* weights, const int64_t* choice, E* dbias, int64_t N, int64_t n,
                                            int64_t k, bool accumulate) {
  const int64_t e = blockIdx.y, column = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= n) return;
  float sum = 0;
  for (int64_t c = 0; c < N; ++c)
    if (choice[c] == e) sum += weights[c] * load(dy + c / k * n + column);
  E* const to = dbias + e * n + column;
  store(to, accumulate ? load(to) + sum : sum);
}

struct Clipped {
  float gate, up, s;  // clipped ones, and sigmoid(alpha · gate)
};
__device__ inline Clipped clipped(float gate, float up, ClippedGate of) {
  const float g = fminf(gate, of.limit);
  return {g, fminf(fmaxf(up, -of.limit), of.limit), 1 / (1 + expf(-of.alpha * g))};
}
// A block for each row.
template <class E>
__global__ void clipped_swiglu_kernel(const E* gu, const float* weights, RowChoices choices, E* m, int64_t F, ClippedGate of) {
  const int64_t row = blockIdx.x;
  if (!has_row(choices, row)) return;
  const float weight = weights[choice_of(choices, row)];
  for (int64_t i = threadIdx.x; i < F; i += blockDim.x) {
    const E* const pair = gu + (row * F + i) * 2;
    const Clipped c = clipped(load(pair), load(pair + 1), of);
    store(m + row * F + i, weight * ((c.up + 1) * c.gate * c.s));
  }
}
// dgu may be gu.
template <class E>
__global__ void clipped_swiglu_backward_kernel(const E* dm, const E* gu, const float* weights, RowChoices choices, E* dgu,
                                               float* dweights, int64_t F, ClippedGate of) {
  const int64_t row = blockIdx.x;
  if (!has_row(choices, row)) return;
  const int64_t place = choice_of(choices, row);
  const float weight = weights[place];
  float of_weight = 0;
  for (int64_t i = threadIdx.x; i < F; i += blockDim.x) {
    const int64_t at = (row * F + i) * 2;
    const float g = load(gu + at), u = load(gu + at + 1), d = load(dm + row * F + i);
    const Clipped c = clipped(g, u, of);
    of_weight += d * (c.up + 1) * c.gate * c.s;
    store(dgu + at, g <= of.limit ? weight * d * (c.up + 1) * c.s * (1 + of.alpha * c.gate * (1 - c.s)) : 0.0f);
    store(dgu + at + 1, fabsf(u) <= of.limit ? weight * d * c.gate * c.s : 0.0f);
  }
  of_weight = block_sum(of_weight);
  if (threadIdx.x == 0) dweights[place] = of_weight;
}

dim3 columns_of_experts(int64_t n, int64_t num_experts) { return dim3(grid(n, kBlock), unsigned(num_experts)); }

}  // namespace

#define DISTSETUP_IN(p) static_cast<const E*>(p)
#define DISTSETUP_OUT(p) static_cast<E*>(p)

void head_sinks(Element element, void* att, float* lse, const void* sinks, SumLayout layout, int64_t D, StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(head_sinks_kernel<E>, unsigned(layout.B * layout.S), kBlock, stream, DISTSETUP_OUT(att), lse, DISTSETUP_IN(sinks), layout,
           D);
  });
  check_launch("head_sinks");
}
void head_sinks_backward(Element element, const void* datt, const void* att, const float* lse, const void* sinks, void* dsinks,
                         SumLayout layout, int64_t D, bool accumulate, StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(head_sinks_backward_kernel<E>, unsigned(layout.A), kBlock, stream, DISTSETUP_IN(datt), DISTSETUP_IN(att), lse,
           DISTSETUP_IN(sinks), DISTSETUP_OUT(dsinks), layout, D, accumulate);
  });
  check_launch("head_sinks_backward");
}
void grouped_bias_add(Element element, void* rows, const void* bias, const int64_t* starts, int64_t N, int64_t num_experts, int64_t n,
                      StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(grouped_bias_kernel<E>, unsigned(N), kBlock, stream, DISTSETUP_OUT(rows), DISTSETUP_IN(bias), starts, num_experts, n);
  });
  check_launch("grouped_bias_add");
}
void grouped_bias_backward(Element element, const void* drows, const int64_t* starts, void* dbias, int64_t first, int64_t num_experts,
                           int64_t all, int64_t n, bool accumulate, StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(grouped_bias_backward_kernel<E>, columns_of_experts(n, all), kBlock, stream, DISTSETUP_IN(drows), starts,
           DISTSETUP_OUT(dbias), first, num_experts, n, accumulate);
  });
  check_launch("grouped_bias_backward");
}
void routed_bias_add(Element element, const void* x, const float* weights, const int64_t* choice, const void* bias, void* y, int64_t T,
                     int64_t n, int64_t k, StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(routed_bias_kernel<E>, unsigned(T), kBlock, stream, DISTSETUP_IN(x), weights, choice, DISTSETUP_IN(bias), DISTSETUP_OUT(y),
           n, k);
  });
  check_launch("routed_bias_add");
}
void routed_bias_backward(Element element, const void* dy, const float* weights, const int64_t* choice, const void* bias,
                          float* dweights, void* dbias, int64_t T, int64_t n, int64_t k, int64_t num_experts, bool accumulate,
                          StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(routed_bias_weights_kernel<E>, unsigned(T * k), kBlock, stream, DISTSETUP_IN(dy), choice, DISTSETUP_IN(bias), dweights, n,
           k);
    launch(routed_bias_gradient_kernel<E>, columns_of_experts(n, num_experts), kBlock, stream, DISTSETUP_IN(dy), weights, choice,
           DISTSETUP_OUT(dbias), T * k, n, k, accumulate);
  });
  check_launch("routed_bias_backward");
}
void clipped_swiglu(Element element, const void* gu, const float* weights, RowChoices choices, void* m, int64_t N, int64_t F,
                    ClippedGate gate, StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(clipped_swiglu_kernel<E>, unsigned(N), kBlock, stream, DISTSETUP_IN(gu), weights, choices, DISTSETUP_OUT(m), F, gate);
  });
  check_launch("clipped_swiglu");
}
void clipped_swiglu_backward(Element element, const void* dm, const void* gu, const float* weights, RowChoices choices, void* dgu,
                             float* dweights, int64_t N, int64_t F, ClippedGate gate, StreamHandle stream) {
  with_type(element, [&](auto* e) {
    using E = DISTSETUP_ELEMENT(e);
    launch(clipped_swiglu_backward_kernel<E>, unsigned(N), kBlock, stream, DISTSETUP_IN(dm), DISTSETUP_IN(gu), weights, choices,
           DISTSETUP_OUT(dgu), dweights, F, gate);
  });
  check_launch("clipped_swiglu_backward");
}

#undef DISTSETUP_IN
#undef DISTSETUP_OUT

}  // namespace distsetup::cuda
