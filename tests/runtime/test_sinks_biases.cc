// Attention's sinks, experts' biases and the clipped gate: the CPU's kernels against the formulas in double, and the CUDA kernels, run
// on the CPU, against those.
#include <algorithm>
#include <cmath>

#include "runtime/emulated.h"
#include "runtime/kernels/cpu/experts.h"
#include "runtime/kernels/cpu/kernels.h"
#include "runtime/kernels/cpu/sinks_biases.h"

#include "runtime/kernels/cuda/kernels_sinks_biases.cu"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

template <class E>
double value(const std::vector<E>& v, int64_t i) {
  return double(to_float(v[size_t(i)]));
}

TEMPLATE_TEST_CASE("sinks take their share of each head's softmax, and their gradient is its slope", "[sinks_biases]", float, Bf16) {
  const int64_t B = 2, S = 6, T = B * S, A = 3, D = GENERATE(8, 40);
  const auto raw = random_values<TestType>(T * A * D, 1), datt = random_values<TestType>(T * A * D, 2);
  const auto lse = random_values<float>(T * A, 3, 2.0f);
  const auto sinks = random_values<TestType>(A, 4, 2.0f);
  std::vector<TestType> att = raw, dsinks = random_values<TestType>(A, 5);
  const std::vector<TestType> before = dsinks;
  std::vector<float> with = lse;
  cpu::head_sinks<TestType>(att.data(), with.data(), sinks.data(), 0, T, A, D);
  cpu::head_sinks_backward<TestType>(datt.data(), att.data(), with.data(), sinks.data(), dsinks.data(), 0, A, T, A, D, true);
  std::vector<double> slope(size_t(A), 0.0);
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t a = 0; a < A; ++a) {
      const int64_t row = t * A + a;
      const double l = double(lse[size_t(row)]), s = value(sinks, a), sum = std::exp(l) + std::exp(s);
      CHECK(with[size_t(row)] == Approx(std::log(sum)).margin(1e-5));
      for (int64_t i = row * D; i < (row + 1) * D; ++i) {
        CHECK(value(att, i) == Approx(value(raw, i) * std::exp(l) / sum).margin(kClose<TestType>));
        slope[size_t(a)] -= value(datt, i) * value(raw, i) * std::exp(l) * std::exp(s) / (sum * sum);  // of att by the sink
      }
    }
  }
  for (int64_t a = 0; a < A; ++a) CHECK(value(dsinks, a) - value(before, a) == Approx(slope[size_t(a)]).margin(20 * kClose<TestType>));

  const int64_t pieces = GENERATE(1, 2);
  const auto place = [&](int64_t t, int64_t a) {  // as CUDA's attention leaves them
    const int64_t length = S / pieces, position = t % S;
    return ((position / length * B + t / S) * A + a) * length + position % length;
  };
  same_in_both_orders([&] {
    std::vector<TestType> att2 = raw, dsinks2 = before;
    std::vector<float> lse2(lse.size());
    for (int64_t t = 0; t < T; ++t)
      for (int64_t a = 0; a < A; ++a) lse2[size_t(place(t, a))] = lse[size_t(t * A + a)];
    cuda::head_sinks(kElement<TestType>, att2.data(), lse2.data(), sinks.data(), {B, S, A, pieces}, D, nullptr);
    cuda::head_sinks_backward(kElement<TestType>, datt.data(), att2.data(), lse2.data(), sinks.data(), dsinks2.data(),
                              {B, S, A, pieces}, D, true, nullptr);
    CHECK(difference(att2, att) < kClose<TestType>);
    CHECK(difference(dsinks2, dsinks) < 10 * kClose<TestType>);
    for (int64_t t = 0; t < T; ++t)
      for (int64_t a = 0; a < A; ++a) CHECK(lse2[size_t(place(t, a))] == Approx(with[size_t(t * A + a)]).margin(1e-5));
    return bytes_of(att2, dsinks2, lse2);
  });
}

TEMPLATE_TEST_CASE("biases of experts: of their rows, and of tokens with the weights of their choices", "[sinks_biases]", float,
                   Bf16) {
  // Experts 2 to 4 of 6 are this rank's; the last of 9 rows is none.
  const std::vector<int64_t> starts = {0, 3, 3, 8};
  const int64_t N = 9, all = 6, first = 2, own = 3, n = GENERATE(5, 300);
  const auto rows = random_values<TestType>(N * n, 1), bias = random_values<TestType>(all * n, 2);
  const auto before = random_values<TestType>(all * n, 3);
  std::vector<TestType> added = rows, gradient = before;
  for (int64_t e = 0; e < own; ++e)
    for (int64_t row = starts[size_t(e)]; row < starts[size_t(e) + 1]; ++row)
      cpu::add_bias_row<TestType>(added.data() + row * n, bias.data() + (first + e) * n, n);
  for (int64_t e = 0; e < own; ++e)
    cpu::sum_rows<TestType>(rows.data(), starts[size_t(e)], starts[size_t(e) + 1], gradient.data() + (first + e) * n, n, 0, n, true);
  CHECK(value(added, 7 * n + 1) == Approx(value(rows, 7 * n + 1) + value(bias, 4 * n + 1)).margin(kClose<TestType>));
  CHECK(value(gradient, 2 * n) - value(before, 2 * n) ==
        Approx(value(rows, 0) + value(rows, n) + value(rows, 2 * n)).margin(4 * kClose<TestType>));

  const int64_t T = 7, k = 2;
  std::vector<int64_t> choice;
  for (int64_t i = 0; i < T * k; ++i) choice.push_back((i * 5 + i / 4) % (all - 1));  // the last expert gets none
  const auto weights = random_values<float>(T * k, 5), dweights = random_values<float>(T * k, 6);
  const auto x = random_values<TestType>(T * n, 7), dy = random_values<TestType>(T * n, 8);
  std::vector<TestType> y(x.size()), gb(bias.size(), TestType{});
  for (int64_t t = 0; t < T; ++t)
    cpu::routed_bias_row<TestType>(x.data() + t * n, weights.data() + t * k, choice.data() + t * k, bias.data(), y.data() + t * n, n,
                                   k);
  cpu::routed_bias_gradient<TestType>(dy.data(), weights.data(), choice.data(), gb.data(), T, n, k, all, 0, n, false);
  std::vector<double> sums(size_t(all * n), 0.0);
  for (int64_t i = 0; i < T * k; ++i)
    for (int64_t j = 0; j < n; ++j) sums[size_t(choice[size_t(i)] * n + j)] += double(weights[size_t(i)]) * value(dy, i / k * n + j);
  for (int64_t i = 0; i < all * n; ++i) CHECK(value(gb, i) == Approx(sums[size_t(i)]).margin(4 * kClose<TestType>));
  const double expected =
      value(x, 0) + double(weights[0]) * value(bias, choice[0] * n) + double(weights[1]) * value(bias, choice[1] * n);
  CHECK(value(y, 0) == Approx(expected).margin(4 * kClose<TestType>));

  same_in_both_orders([&] {
    std::vector<TestType> added2 = rows, gradient2 = before, y2 = x, gb2(gb.size());
    std::vector<float> dweights2 = dweights;
    cuda::grouped_bias_add(kElement<TestType>, added2.data(), bias.data() + first * n, starts.data(), N, own, n, nullptr);
    cuda::grouped_bias_backward(kElement<TestType>, rows.data(), starts.data(), gradient2.data(), first, own, all, n, true, nullptr);
    cuda::routed_bias_add(kElement<TestType>, y2.data(), weights.data(), choice.data(), bias.data(), y2.data(), T, n, k, nullptr);
    cuda::routed_bias_backward(kElement<TestType>, dy.data(), weights.data(), choice.data(), bias.data(), dweights2.data(), gb2.data(),
                               T, n, k, all, false, nullptr);
    CHECK(difference(added2, added) < kClose<TestType>);
    CHECK(difference(gradient2, gradient) < kClose<TestType>);
    CHECK(difference(y2, y) < kClose<TestType>);
    CHECK(difference(gb2, gb) < kClose<TestType>);
    for (int64_t i = 0; i < T * k; ++i) {
      const float dot = cpu::dot<TestType>(dy.data() + i / k * n, bias.data() + choice[size_t(i)] * n, n);
      CHECK(dweights2[size_t(i)] == Approx(dweights[size_t(i)] + dot).margin(1e-4));
    }
    return bytes_of(added2, gradient2, y2, gb2, dweights2);
  });
}

TEMPLATE_TEST_CASE("a clipped gate and its gradient, on both sides of the limit", "[sinks_biases]", float, Bf16) {
  const ClippedGate of{1.5f, 1.702f};
  const int64_t N = 3, F = GENERATE(13, 300);
  const std::vector<int64_t> order = {2, 0, 1};
  auto gu = random_values<TestType>(N * 2 * F, 1, 2.0f);
  const auto dm = random_values<TestType>(N * F, 2);
  const auto weights = random_values<float>(N, 3);
  std::vector<TestType> m(N * F), dgu(N * 2 * F);
  std::vector<float> dweights(N);
  int64_t clipped = 0, plain = 0;
  for (int64_t row = 0; row < N; ++row) {
    const auto place = size_t(order[size_t(row)]);
    cpu::clipped_swiglu_row<TestType>(gu.data() + row * 2 * F, weights[place], m.data() + row * F, F, of);
    dweights[place] = cpu::clipped_swiglu_row_backward<TestType>(dm.data() + row * F, gu.data() + row * 2 * F, weights[place],
                                                                 dgu.data() + row * 2 * F, F, of);
    const auto limit = double(of.limit), weight = double(weights[place]);
    const auto f = [&](double gate, double up) {
      const double g = std::min(gate, limit), u = std::clamp(up, -limit, limit);
      return (u + 1) * g / (1 + std::exp(-double(of.alpha) * g));
    };
    double of_weight = 0;
    for (int64_t i = row * F; i < (row + 1) * F; ++i) {
      const double g = value(gu, 2 * i), u = value(gu, 2 * i + 1), d = value(dm, i), h = 1e-6;
      of_weight += d * f(g, u);
      CHECK(value(m, i) == Approx(weight * f(g, u)).margin(4 * kClose<TestType>));
      if (std::fabs(g - limit) < 1e-4 || std::fabs(std::fabs(u) - limit) < 1e-4) continue;  // a corner
      CHECK(value(dgu, 2 * i) == Approx(weight * d * (f(g + h, u) - f(g - h, u)) / (2 * h)).margin(8 * kClose<TestType>));
      CHECK(value(dgu, 2 * i + 1) == Approx(weight * d * (f(g, u + h) - f(g, u - h)) / (2 * h)).margin(8 * kClose<TestType>));
      (g > limit || std::fabs(u) > limit ? clipped : plain) += 1;
    }
    CHECK(dweights[place] == Approx(of_weight).margin(1e-3));
  }
  CHECK(clipped > 3);
  CHECK(plain > 3);
  same_in_both_orders([&] {
    std::vector<TestType> m2(m.size()), dgu2 = gu;  // over its input
    std::vector<float> dweights2(dweights.size());
    cuda::clipped_swiglu(kElement<TestType>, gu.data(), weights.data(), {order.data()}, m2.data(), N, F, of, nullptr);
    cuda::clipped_swiglu_backward(kElement<TestType>, dm.data(), dgu2.data(), weights.data(), {order.data()}, dgu2.data(),
                                  dweights2.data(), N, F, of, nullptr);
    CHECK(difference(m2, m) < kClose<TestType>);
    CHECK(difference(dgu2, dgu) < kClose<TestType>);
    CHECK(difference(dweights2, dweights) < 1e-4);
    return bytes_of(m2, dgu2, dweights2);
  });
}

}  // namespace
}  // namespace distsetup
