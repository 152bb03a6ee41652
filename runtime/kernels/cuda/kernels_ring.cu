// Kernels of ring attention: what attends to some of the keys joins what attended to others. See kernels.h.
#include "runtime/kernels/cuda/sums.cuh"

namespace distsetup::cuda {
namespace {

// The row of a part that is token t's; negative: the part has none.
__device__ inline int64_t part_row(const SequenceRows& of, int64_t t) {
  const int64_t at = t % of.S - of.first;
  return at < 0 || at >= of.length ? -1 : t / of.S * of.length + at;
}

// A block for each token, a warp for each head at a time.
template <class E, class O>
__global__ void merge_attended_kernel(const float* before, const float* before_lse, const E* part, const float* part_lse,
                                      SequenceRows of, O* att, float* lse, SumLayout s, int64_t D) {
  const int64_t t = blockIdx.x, row = part != nullptr ? part_row(of, t) : -1;
  const unsigned lane = threadIdx.x % kWarp;
  for (int64_t a = threadIdx.x / kWarp; a < s.A; a += blockDim.x / kWarp) {
    const int64_t at = sum_index(s, t, a);
    float old = -INFINITY, added = -INFINITY;
    if (before != nullptr) old = warp_sum(lane == 0 ? before_lse[at] : 0.0f);  // read by the lane that writes it
    if (row >= 0) added = part_lse[(t / of.S * s.A + a) * of.length + t % of.S - of.first];
    const float most = fmaxf(old, added), with = most + log1pf(expf(fminf(old, added) - most));
    const float share = expf(old - with), more = expf(added - with);
    for (int64_t i = lane; i < D; i += kWarp) {
      const int64_t to = (t * s.A + a) * D + i;
      float value = before != nullptr ? before[to] * share : 0.0f;
      if (row >= 0) value += load(part + (row * s.A + a) * D + i) * more;
      store(att + to, value);
    }
    if (lane == 0) lse[at] = with;
  }
}

// A block for each token.
template <class E, class O>
__global__ void add_part_kernel(const float* before, int64_t before_stride, const E* part, SequenceRows of, O* out, int64_t out_stride,
                                int64_t n) {
  const int64_t t = blockIdx.x, row = part_row(of, t);
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    float value = before != nullptr ? before[t * before_stride + i] : 0.0f;
    if (row >= 0) value += load(part + row * n + i);
    store(out + t * out_stride + i, value);
  }
}

// Calls f with null pointers of the type of a part and of what is written.
template <class F>
void with_types(Element part, Element out, const F& f) {
  with_type(part, [&](auto* e) {
    if (out == part)
      f(e, e);
    else
      f(e, static_cast<float*>(nullptr));
  });
}

}  // namespace

void merge_attended(Element element, const float* before, const float* before_lse, const void* part, const float* part_lse,
                    SequenceRows of, Element result, void* att, float* lse, SumLayout layout, int64_t D, StreamHandle stream) {
  with_types(element, result, [&](auto* e, auto* o) {
    using E = DISTSETUP_ELEMENT(e);
    using O = DISTSETUP_ELEMENT(o);
    launch(merge_attended_kernel<E, O>, unsigned(layout.B * layout.S), kBlock, stream, before, before_lse, static_cast<const E*>(part),
           part_lse, of, static_cast<O*>(att), lse, layout, D);
  });
  check_launch("merge_attended");
}
void add_part(Element element, const float* before, int64_t before_stride, const void* part, SequenceRows of, Element result,
              void* out, int64_t out_stride, int64_t T, int64_t n, StreamHandle stream) {
  with_types(element, result, [&](auto* e, auto* o) {
    using E = DISTSETUP_ELEMENT(e);
    using O = DISTSETUP_ELEMENT(o);
    launch(add_part_kernel<E, O>, unsigned(T), kBlock, stream, before, before_stride, static_cast<const E*>(part), of,
           static_cast<O*>(out), out_stride, n);
  });
  check_launch("add_part");
}

}  // namespace distsetup::cuda
