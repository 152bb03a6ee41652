// The CUDA kernels of ring attention, run on the CPU: attention over pieces of the keys, joined, is attention over all of them; parts
// of rows are added where they belong.
#include <algorithm>
#include <cmath>

#include "runtime/emulated.h"

#include "runtime/kernels/cuda/kernels_ring.cu"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

// What a query of scores and values over some keys gives, in double.
struct OfKeys {
  std::vector<double> att;
  double lse = 0;
};
OfKeys attended(const std::vector<double>& scores, const std::vector<std::vector<double>>& values, size_t begin, size_t end) {
  double sum = 0;
  OfKeys r{std::vector<double>(values[0].size(), 0.0)};
  for (size_t j = begin; j < end; ++j) sum += std::exp(scores[j]);
  for (size_t j = begin; j < end; ++j)
    for (size_t i = 0; i < r.att.size(); ++i) r.att[i] += std::exp(scores[j]) / sum * values[j][i];
  r.lse = std::log(sum);
  return r;
}

TEMPLATE_TEST_CASE("what attended to pieces of the keys is joined to what attends to all", "[cp]", float, Bf16, F16) {
  const int64_t B = 2, S = 6, A = 3, T = B * S, D = GENERATE(8, 40), first = GENERATE(0, 3), length = GENERATE(3, 6);
  if (first + length > S) return;
  const cuda::SequenceRows of{S, first, length};
  const auto row_of = [&](int64_t t) { return t % S < first || t % S >= first + length ? -1 : t / S * length + t % S - first; };
  const auto place = [&](int64_t t, int64_t a) { return ((t % S / (S / 2) * B + t / S) * A + a) * (S / 2) + t % (S / 2); };
  constexpr size_t kKeys = 7, kBefore = 4;  // the other 3 are the part's
  const auto random = random_values<float>(T * A * int64_t(kKeys) * (D + 1), 3);
  std::vector<float> before(size_t(T * A * D)), before_lse(size_t(T * A)), part_lse(size_t(B * length * A));
  std::vector<TestType> part(size_t(B * length * A * D));
  std::vector<double> joined(before.size()), joined_lse(before_lse.size());
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t a = 0; a < A; ++a) {
      std::vector<double> scores(kKeys);
      std::vector<std::vector<double>> values(kKeys, std::vector<double>(size_t(D)));
      for (size_t j = 0; j < kKeys; ++j) {
        const size_t at = size_t((t * A + a) * int64_t(kKeys) + int64_t(j)) * size_t(D + 1);
        scores[j] = 4 * double(random[at]);
        for (size_t i = 0; i < size_t(D); ++i) values[j][i] = double(random[at + 1 + i]);
      }
      const OfKeys old = attended(scores, values, 0, kBefore), added = attended(scores, values, kBefore, kKeys),
                   all = row_of(t) < 0 ? old : attended(scores, values, 0, kKeys);
      before_lse[size_t(place(t, a))] = float(old.lse);
      joined_lse[size_t(place(t, a))] = all.lse;
      for (int64_t i = 0; i < D; ++i) {
        before[size_t((t * A + a) * D + i)] = float(old.att[size_t(i)]);
        joined[size_t((t * A + a) * D + i)] = all.att[size_t(i)];
        if (row_of(t) >= 0) from_float(float(added.att[size_t(i)]), &part[size_t((row_of(t) * A + a) * D + i)]);
      }
      if (row_of(t) >= 0) part_lse[size_t((t / S * A + a) * length + t % S - first)] = float(added.lse);
    }
  }
  same_in_both_orders([&] {
    std::vector<float> sum = before, sum_lse = before_lse, lse(before_lse.size(), NAN);
    std::vector<TestType> att(before.size());
    cuda::merge_attended(kElement<TestType>, before.data(), before_lse.data(), part.data(), part_lse.data(), of, kElement<TestType>,
                         att.data(), lse.data(), {B, S, A, 2}, D, nullptr);
    cuda::merge_attended(kElement<TestType>, sum.data(), sum_lse.data(), part.data(), part_lse.data(), of, cuda::Element::kF32,
                         sum.data(), sum_lse.data(), {B, S, A, 2}, D, nullptr);  // in place
    for (size_t i = 0; i < joined.size(); ++i) {
      CHECK(double(sum[i]) == Approx(joined[i]).margin(2 * kClose<TestType>));
      CHECK(double(to_float(att[i])) == Approx(joined[i]).margin(3 * kClose<TestType>));
    }
    for (size_t i = 0; i < lse.size(); ++i) CHECK(double(lse[i]) == Approx(joined_lse[i]).margin(1e-5));
    CHECK(lse == sum_lse);
    return bytes_of(sum, sum_lse, lse, att);
  });
  if (length < S) return;
  std::vector<float> sum(before.size(), NAN), lse(before_lse.size(), NAN);  // nothing before: the part alone
  cuda::merge_attended(kElement<TestType>, nullptr, nullptr, part.data(), part_lse.data(), of, cuda::Element::kF32, sum.data(),
                       lse.data(), {B, S, A, 2}, D, nullptr);
  for (size_t i = 0; i < sum.size(); ++i) CHECK(double(sum[i]) == Approx(double(to_float(part[i]))).margin(1e-6));
}

TEMPLATE_TEST_CASE("rows of a part are added to those that they are, and the others are kept", "[cp]", float, Bf16, F16) {
  const int64_t B = 2, S = 6, T = B * S, n = GENERATE(5, 300), stride = n + 7, first = 2, length = 3;
  const bool has_before = GENERATE(false, true);
  const auto part = random_values<TestType>(B * length * n, 1);
  const auto before = random_values<float>(T * n, 2);
  const auto untouched = random_values<TestType>(T * stride, 3);
  same_in_both_orders([&] {
    std::vector<TestType> out = untouched;
    std::vector<float> sum = before;
    cuda::add_part(kElement<TestType>, has_before ? before.data() : nullptr, n, part.data(), {S, first, length}, kElement<TestType>,
                   out.data(), stride, T, n, nullptr);
    cuda::add_part(kElement<TestType>, has_before ? sum.data() : nullptr, n, part.data(), {S, first, length}, cuda::Element::kF32,
                   sum.data(), n, T, n, nullptr);
    for (int64_t t = 0; t < T; ++t) {
      const int64_t at = t % S - first;
      for (int64_t i = 0; i < n; ++i) {
        double value = has_before ? double(before[size_t(t * n + i)]) : 0.0;
        if (at >= 0 && at < length) value += double(to_float(part[size_t((t / S * length + at) * n + i)]));
        CHECK(double(sum[size_t(t * n + i)]) == Approx(value).margin(1e-6));
        CHECK(double(to_float(out[size_t(t * stride + i)])) == Approx(value).margin(2 * kClose<TestType>));
      }
      for (int64_t i = n; i < stride; ++i) CHECK(to_float(out[size_t(t * stride + i)]) == to_float(untouched[size_t(t * stride + i)]));
    }
    return bytes_of(out, sum);
  });
}

}  // namespace
}  // namespace distsetup
