// What tests of CUDA kernels on the CPU share (support/cuda_emulation.h): element types, how close results are, both orders of
// threads.
#pragma once
#include <string>
#include <vector>

#include "runtime/kernels/cuda/kernels.h"
#include "runtime/values.h"
#include "support/cuda_emulation.h"

#include <catch2/catch.hpp>

namespace distsetup {

template <class E>
constexpr double kClose = kIsBf16<E>    ? 8e-3
                          : kIs16Bit<E> ? 1.1e-3
                                        : 3e-6;  // one unit in the last of 8 bits, and of 11
template <class E>
constexpr cuda::Element kElement = kIsBf16<E>    ? cuda::Element::kBf16
                                   : kIs16Bit<E> ? cuda::Element::kF16
                                                 : cuda::Element::kF32;

// Runs `f` with the threads in both orders; `f` returns everything that was computed, as bytes.
template <class F>
void same_in_both_orders(const F& f) {
  cuda_emulation::reversed = false;
  const std::vector<char> forwards = f();
  cuda_emulation::reversed = true;
  const std::vector<char> backwards = f();
  cuda_emulation::reversed = false;
  CHECK(forwards == backwards);
}
template <class... V>
std::vector<char> bytes_of(const std::vector<V>&... values) {
  std::vector<char> all;
  (all.insert(all.end(), reinterpret_cast<const char*>(values.data()), reinterpret_cast<const char*>(values.data() + values.size())),
   ...);
  return all;
}

}  // namespace distsetup
