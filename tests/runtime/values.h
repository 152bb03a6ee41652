// Operands for tests of kernels: random values in fp32, bf16 and fp16, and how far two results are apart.
#pragma once
#include <algorithm>
#include <cmath>
#include <random>
#include <type_traits>
#include <vector>

#include "runtime/kernels/cpu/bf16.h"

#include <catch2/catch.hpp>

namespace distsetup {

template <class E>
constexpr bool kIsBf16 = std::is_same_v<E, Bf16>;
template <class E>
constexpr bool kIs16Bit = sizeof(E) == 2;

template <class E>
std::vector<E> random_values(int64_t n, unsigned seed, float scale = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<E> values(static_cast<size_t>(n));
  for (E& v : values) from_float(normal(engine), &v);
  return values;
}

// Largest difference over the largest magnitude.
template <class E>
double difference(const std::vector<E>& found, const std::vector<E>& expected) {
  REQUIRE(found.size() == expected.size());
  double largest = 1e-30, worst = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, std::abs(double(to_float(expected[i]))));
    const double d = std::abs(double(to_float(found[i])) - double(to_float(expected[i])));
    worst = d <= 1e30 ? std::max(worst, d) : 1e30;  // NaN too
  }
  return worst / largest;
}

}  // namespace distsetup
