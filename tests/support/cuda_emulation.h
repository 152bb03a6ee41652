// Runs CUDA kernels on the CPU, for tests of runtime/kernels/cuda/kernels.cu where there is no GPU: a block's threads are fibers that
// take turns at barriers and shuffles; blocks run one after another. It shows that indices, sums and in-place rules are right; not how
// the compiler for the GPU, its memory or several blocks at once behave. Reads and writes between two barriers are in thread order, so
// a missing barrier is found only where that order is wrong: `reversed` runs the threads the other way round.
#pragma once
#include <ucontext.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#define DISTSETUP_CUDA_EMULATED
#define __global__
#define __device__
#define __shared__ static

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
inline dim3 blockIdx, threadIdx, gridDim, blockDim;

struct __nv_bfloat16 {
  uint16_t bits;
};
inline float __bfloat162float(__nv_bfloat16 v) { return std::bit_cast<float>(uint32_t(v.bits) << 16); }
inline __nv_bfloat16 __float2bfloat16_rn(float v) {
  const uint32_t u = std::bit_cast<uint32_t>(v);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {0x7fff};
  return {uint16_t((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}
struct __half {
  uint16_t bits;
};
inline float __half2float(__half v) {
  const int exponent = (v.bits >> 10) & 31, mantissa = v.bits & 1023;
  const float sign = (v.bits >> 15) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa != 0 ? std::nanf("") : sign * HUGE_VALF;
  return sign * (exponent == 0 ? std::ldexp(float(mantissa), -24) : std::ldexp(float(1024 + mantissa), exponent - 25));
}
inline __half __float2half_rn(float v) {
  const auto sign = uint16_t(std::signbit(v) ? 0x8000 : 0);
  if (std::isnan(v)) return {0x7fff};
  const float magnitude = std::fabs(v);
  if (magnitude >= 65520.0f) return {uint16_t(sign | 0x7c00)};
  if (magnitude < 0x1p-14f) return {uint16_t(sign | uint16_t(std::nearbyint(std::ldexp(magnitude, 24))))};
  const int exponent = std::ilogb(magnitude);
  return {uint16_t(sign | uint16_t((exponent + 14) * 1024 + int(std::nearbyint(std::ldexp(magnitude, 10 - exponent)))))};
}
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float rsqrtf(float v) { return 1.0f / std::sqrt(v); }

using cudaError_t = int;
inline constexpr cudaError_t cudaSuccess = 0;
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t) { return "no error"; }

namespace cuda_emulation {

inline bool reversed = false;

class Block {
 public:
  static Block*& running() {
    static Block* block = nullptr;
    return block;
  }
  Block(dim3 size, const std::function<void()>& body) : size_(size), body_(body), fibers_(size.x * size.y * size.z) {
    running() = this;
    static std::vector<std::vector<char>> stacks;  // kept from block to block
    if (stacks.size() < fibers_.size()) stacks.resize(fibers_.size(), std::vector<char>(kStackBytes));
    for (size_t n = 0; n < fibers_.size(); ++n) {
      Fiber& f = fibers_[n];
      getcontext(&f.context);
      f.context.uc_stack.ss_sp = stacks[n].data();
      f.context.uc_stack.ss_size = kStackBytes;
      f.context.uc_link = &scheduler_;
      makecontext(&f.context, &Block::enter, 0);
    }
    // Each turn takes every thread to its next barrier, or to its end.
    for (bool any = true; any;) {
      any = false;
      for (size_t n = 0; n < fibers_.size(); ++n) {
        current_ = reversed ? fibers_.size() - 1 - n : n;
        if (fibers_[current_].done) continue;
        set_thread_index();
        swapcontext(&scheduler_, &fibers_[current_].context);
        any = any || !fibers_[current_].done;
      }
    }
    running() = nullptr;
  }
  void barrier() { swapcontext(&fibers_[current_].context, &scheduler_); }
  // All lanes of a warp call it together: value of lane ^ mask. Two barriers, so other warps have to be in step too (all of ours are:
  // shuffles stand where every thread of the block arrives, or every thread of a warp of a kernel without barriers).
  template <class V>
  V exchange(V value, int mask) {
    static_assert(sizeof(V) <= 8);
    fibers_[current_].slot = 0;
    std::memcpy(&fibers_[current_].slot, &value, sizeof(V));
    barrier();
    V other;
    std::memcpy(&other, &fibers_[current_ ^ size_t(mask)].slot, sizeof(V));
    barrier();
    return other;
  }
  // As exchange(): bit n is what lane n of this warp says.
  unsigned ballot(bool value) {
    fibers_[current_].slot = value;
    barrier();
    unsigned bits = 0;
    for (size_t lane = 0; lane < 32; ++lane) bits |= unsigned(fibers_[current_ / 32 * 32 + lane].slot != 0) << lane;
    barrier();
    return bits;
  }

 private:
  static constexpr size_t kStackBytes = 32 * 1024;
  struct Fiber {
    ucontext_t context;
    uint64_t slot = 0;
    bool done = false;
  };
  static void enter() {
    Block& b = *running();
    b.body_();
    b.fibers_[b.current_].done = true;
  }
  void set_thread_index() {
    threadIdx = dim3(unsigned(current_ % size_.x), unsigned(current_ / size_.x % size_.y), unsigned(current_ / size_.x / size_.y));
  }

  dim3 size_;
  const std::function<void()>& body_;
  std::vector<Fiber> fibers_;
  ucontext_t scheduler_{};
  size_t current_ = 0;
};

}  // namespace cuda_emulation

inline void __syncthreads() { cuda_emulation::Block::running()->barrier(); }
template <class V>
V __shfl_xor_sync(unsigned, V value, int mask) {
  return cuda_emulation::Block::running()->exchange(value, mask);
}

inline unsigned __ballot_sync(unsigned, bool value) { return cuda_emulation::Block::running()->ballot(value); }
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int atomicAdd(int* p, int n) { return std::exchange(*p, *p + n); }  // threads take turns
inline int __ffs(int bits) { return __builtin_ffs(bits); }

template <class Stream>
int cudaMemsetAsync(void* data, int byte, size_t num_bytes, Stream) {
  std::memset(data, byte, num_bytes);
  return cudaSuccess;
}

namespace distsetup::cuda {
template <class... P, class Stream, class... A>
void launch(void (*kernel)(P...), dim3 blocks, dim3 threads, Stream, A... arguments) {
  gridDim = blocks;
  blockDim = threads;
  for (unsigned y = 0; y < blocks.y; ++y) {
    for (unsigned x = 0; x < blocks.x; ++x) {
      blockIdx = dim3(x, y);
      cuda_emulation::Block(threads, [&] { kernel(static_cast<P>(arguments)...); });
    }
  }
}
}  // namespace distsetup::cuda
