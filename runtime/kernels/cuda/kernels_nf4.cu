// Matrices out of nf4 (src/plan/nf4.h). A thread makes 8 weights of 4 bytes: 8 threads share a scale, and rows of neighbours are
// written side by side. Products and sums are rounded one by one, as on the CPU, so that both make the same numbers.
#include "runtime/kernels/cuda/common.cuh"

namespace distsetup::cuda {
namespace {

constexpr int kWeightsOfThread = 8;

struct Nf4Tables {
  float weights[16], scales[256];
};
Nf4Tables nf4_tables() {
  Nf4Tables tables;
  for (size_t i = 0; i < kNf4Weights.size(); ++i) tables.weights[i] = kNf4Weights[i];
  for (size_t i = 0; i < kNf4Scales.size(); ++i) tables.scales[i] = kNf4Scales[i];
  return tables;
}

template <class E, int N>
__global__ void dequantize_nf4_kernel(const uint8_t* record, Nf4Record of, Nf4Tables tables, E* to) {
  __shared__ float weights[16];
  __shared__ float scales[256];
  for (int i = int(threadIdx.x); i < 256; i += kBlock) {
    scales[i] = tables.scales[i];
    if (i < 16) weights[i] = tables.weights[i];
  }
  __syncthreads();
  const int64_t first = (int64_t(blockIdx.x) * kBlock + threadIdx.x) * kWeightsOfThread;
  if (first >= of.numel) return;
  const int64_t block = first / kNf4Block;
  int64_t whole = block;
  if (of.part_at >= 0) {  // nf4_whole_block
    const int32_t* part = reinterpret_cast<const int32_t*>(record + of.part_at);
    whole = part[0] + block / part[1] * part[2] + block % part[1];
  }
  const float range = *reinterpret_cast<const float*>(record + of.ranges_at + 4 * (whole / kNf4Range));
  const float mean = *reinterpret_cast<const float*>(record + of.mean_at);
  const float scale = __fadd_rn(__fmul_rn(scales[record[of.scales_at + block]], range), mean);
  const uint32_t nibbles = *reinterpret_cast<const uint32_t*>(record + first / 2);  // what follows the last ones is in the record, too
  float values[kWeightsOfThread];
  for (int i = 0; i < kWeightsOfThread; ++i)
    values[i] = __fmul_rn(weights[nibbles >> (8 * (i / 2) + (i % 2 == 0 ? 4 : 0)) & 15], scale);
  const int64_t count = of.numel - first;
  if (count >= kWeightsOfThread) {
    for (int i = 0; i < kWeightsOfThread; i += N) store_pack<N>(to + first + i, values + i);
  } else {
    for (int i = 0; i < count; ++i) store(to + first + i, values[i]);
  }
}

}  // namespace

void dequantize_nf4(Element element, const uint8_t* record, const Nf4Record& of, void* to, StreamHandle stream) {
  with_pack(element, 0, {to}, [&](auto* e, auto width) {
    using E = DISTSETUP_ELEMENT(e);
    launch(dequantize_nf4_kernel<E, width()>, grid(of.numel, int64_t(kBlock) * kWeightsOfThread), kBlock, stream, record, of,
           nf4_tables(), static_cast<E*>(to));
  });
  check_launch("dequantize_nf4");
}

}  // namespace distsetup::cuda
