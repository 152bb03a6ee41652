// Kernels of models whose matrices several ranks share, against those of one rank: the ranks' parts of the vocabulary and of the
// tokens are cut from whole operands, run one after the other, and put together again. Padding is NaN: nothing may read it.
#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/engine/cpu_kernels.h"
#include "runtime/engine/ops.h"
#include "runtime/engine/threads.h"
#include "runtime/values.h"

namespace distsetup {
namespace {

template <class E>
constexpr double kClose = kIsBf16<E>    ? 8e-3
                          : kIs16Bit<E> ? 1.1e-3
                                        : 1e-6;  // one unit in the last of 8 bits, and of 11
template <class E>
constexpr Dtype kDtype = kIsBf16<E>    ? Dtype::kBf16
                         : kIs16Bit<E> ? Dtype::kF16
                                       : Dtype::kF32;

template <class E>
std::vector<E> not_numbers(int64_t n) {
  std::vector<E> values(static_cast<size_t>(n));
  for (E& v : values) from_float(std::nanf(""), &v);
  return values;
}
template <class E>
bool same_bits(const std::vector<E>& a, const std::vector<E>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(E)) == 0);
}

template <class E>
Argument operand(std::vector<E>& values, std::vector<int64_t> shape) {
  const Dtype dtype = std::is_same_v<E, int64_t> ? Dtype::kI64 : std::is_same_v<E, double> ? Dtype::kF64 : kDtype<E>;
  const Argument a{values.data(), std::move(shape), dtype};
  REQUIRE(numel(a) == int64_t(values.size()));
  return a;
}
template <class E>
OpContext rank_of(int tp, int tp_index, int64_t vocabulary, int64_t S = 1) {
  OpContext x;
  x.S = S;
  x.compute = kDtype<E>;
  x.tp = tp, x.tp_index = tp_index, x.vocabulary = vocabulary;
  return x;
}
void run(const std::string& kernel, const OpContext& context, const OpAttributes& attributes, std::vector<Argument> reads,
         std::vector<Argument> writes, bool accumulate = false) {
  Call call;
  call.context = &context, call.attributes = &attributes, call.accumulate = accumulate;
  call.reads = std::move(reads), call.writes = std::move(writes);
  REQUIRE(cpu_kernels().bind(kernel, call).empty());
  call.function(call);
}

// How tp ranks share a vocabulary.
struct Shares {
  int tp;
  int64_t vocabulary;
  int64_t rows() const { return (vocabulary + tp - 1) / tp; }
  int64_t real(int p) const { return std::clamp<int64_t>(vocabulary - p * rows(), 0, rows()); }
};
Shares any_shares() { return GENERATE(Shares{2, 64}, Shares{2, 257}, Shares{3, 257}, Shares{4, 257}, Shares{4, 5}, Shares{4, 1100}); }

TEMPLATE_TEST_CASE("shared: looked-up rows add up to the whole embedding, its gradient falls apart", "[shared]", float, Bf16, F16) {
  const Shares s = any_shares();
  const bool accumulate = GENERATE(true, false);
  const int64_t T = 90, H = 70, V = s.vocabulary, rows = s.rows();
  OpAttributes attributes;
  attributes.multiplier = accumulate ? 2.5 : 1;
  std::vector<int64_t> ids;
  for (int64_t t = 0; t < T; ++t) ids.push_back((t * t + t / 7) % V);
  ids[0] = V - 1;
  auto w = random_values<TestType>(V * H, 1), dy = random_values<TestType>(T * H, 2), g = random_values<TestType>(V * H, 3);
  const auto before = g;
  std::vector<TestType> y(T * H), sum(T * H), together;
  const OpContext alone = rank_of<TestType>(1, 0, 0);
  run("embedding_forward", alone, attributes, {operand(ids, {T}), operand(w, {V, H})}, {operand(y, {T, H})});
  run("embedding_backward", alone, attributes, {operand(ids, {T}), operand(dy, {T, H})}, {operand(g, {V, H})}, accumulate);
  for (int p = 0; p < s.tp; ++p) {
    const OpContext rank = rank_of<TestType>(s.tp, p, V);
    const int64_t real = s.real(p) * H, begin = p * rows * H;
    auto table = not_numbers<TestType>(rows * H), part = table;
    std::vector<TestType> gradient(rows * H);
    if (real > 0) std::copy_n(w.begin() + begin, real, table.begin());
    if (real > 0) std::copy_n(before.begin() + begin, real, gradient.begin());
    part.resize(T * H);
    run("embedding_forward", rank, attributes, {operand(ids, {T}), operand(table, {rows, H})}, {operand(part, {T, H})});
    for (int64_t i = 0; i < T * H; ++i) from_float(to_float(sum[i]) + to_float(part[i]), &sum[i]);
    run("embedding_backward", rank, attributes, {operand(ids, {T}), operand(dy, {T, H})}, {operand(gradient, {rows, H})}, accumulate);
    together.insert(together.end(), gradient.begin(), gradient.begin() + real);
    for (size_t i = size_t(real); i < gradient.size(); ++i) CHECK(to_float(gradient[i]) == 0.f);
  }
  CHECK(same_bits(sum, y));
  CHECK(same_bits(together, g));
}

TEMPLATE_TEST_CASE("shared: each rank adds the positions of its own tokens", "[shared]", float, Bf16, F16) {
  const int tp = GENERATE(2, 3, 4);
  const bool accumulate = GENERATE(true, false);
  const int64_t T = 36, S = 9, P = 12, H = 37, own = T / tp;  // parts begin and end within sequences
  auto w = random_values<TestType>(P * H, 1), start = random_values<TestType>(T * H, 2), dy = random_values<TestType>(T * H, 3);
  auto y = start;
  auto gradient = [&](const OpContext& x, std::vector<TestType> rows) {
    std::vector<TestType> g(P * H);
    run("position_backward", x, {}, {operand(rows, {int64_t(rows.size()) / H, H})}, {operand(g, {P, H})}, accumulate);
    return g;
  };
  const OpContext alone = rank_of<TestType>(1, 0, 0, S);
  run("position_add", alone, {}, {operand(y, {T, H}), operand(w, {P, H})}, {operand(y, {T, H})});
  const auto g = gradient(alone, dy);
  std::vector<TestType> together;
  std::vector<float> sum(P * H), expected(P * H);
  for (int p = 0; p < tp; ++p) {
    const OpContext rank = rank_of<TestType>(tp, p, 0, S);
    std::vector<TestType> part(start.begin() + p * own * H, start.begin() + (p + 1) * own * H);
    run("position_add", rank, {}, {operand(part, {own, H}), operand(w, {P, H})}, {operand(part, {own, H})});
    together.insert(together.end(), part.begin(), part.end());
    const auto mine = gradient(rank, {dy.begin() + p * own * H, dy.begin() + (p + 1) * own * H});
    for (int64_t i = 0; i < P * H; ++i) sum[i] += to_float(mine[i]);
  }
  for (int64_t i = 0; i < P * H; ++i) expected[i] = to_float(g[i]);
  CHECK(same_bits(together, y));
  CHECK(difference(sum, expected) < kClose<TestType>);
}

// What tp ranks make of their columns of z [T, V].
template <class E>
struct SharedLoss {
  std::vector<double> loss;        // of each rank
  std::vector<std::vector<E>> dz;  // each rank's columns, padding included
  std::vector<std::vector<float>> stats;
};
template <class E>
SharedLoss<E> shared_loss(const Shares& s, const OpAttributes& attributes, const std::vector<E>& z, std::vector<int64_t> targets,
                          double before, double scale) {
  const int64_t T = int64_t(targets.size()), V = s.vocabulary, columns = s.rows();
  SharedLoss<E> result;
  std::vector<float> all_stats;
  for (int p = 0; p < s.tp; ++p) {
    auto& mine = result.dz.emplace_back(not_numbers<E>(T * columns));
    for (int64_t t = 0; t < T && s.real(p) > 0; ++t)
      std::copy_n(z.begin() + t * V + p * columns, s.real(p), mine.begin() + t * columns);
    auto& stats = result.stats.emplace_back(size_t(3 * T), std::nanf(""));
    run("cross_entropy_local", rank_of<E>(s.tp, p, V), attributes, {operand(mine, {T, columns}), operand(targets, {T})},
        {operand(stats, {T, 3})});
    all_stats.insert(all_stats.end(), stats.begin(), stats.end());
  }
  std::vector<double> scales = {scale};
  for (int p = 0; p < s.tp; ++p) {
    std::vector<double> loss = {before};
    const Argument z_and_dz = operand(result.dz[size_t(p)], {T, columns});
    run("cross_entropy_finish", rank_of<E>(s.tp, p, V), attributes,
        {z_and_dz, operand(targets, {T}), operand(all_stats, {s.tp * T, 3}), operand(scales, {1}), operand(loss, {1})},
        {z_and_dz, operand(loss, {1})});
    result.loss.push_back(loss[0]);
  }
  return result;
}

TEMPLATE_TEST_CASE("shared: loss and gradient of logits whose columns ranks share are those of whole rows", "[shared]", float, Bf16,
                   F16) {
  const Shares s = any_shares();
  OpAttributes attributes;
  const int kind = GENERATE(0, 1, 2, 3);
  if (kind & 1) attributes.multiplier = 0.5;
  if (kind & 2) attributes.soft_cap = 2;
  set_compute_threads(GENERATE(1, 3));
  const int64_t T = 160, V = s.vocabulary, columns = s.rows();
  const double scale = 1.0 / 37, before = 1.5;
  auto z = random_values<TestType>(T * V, 1, 3);
  for (int64_t j = 0; j < V; ++j) from_float(to_float(z[2 * V + j]) * 1e3f, &z[2 * V + j]);  // exp of it overflows
  std::vector<int64_t> targets;
  for (int64_t t = 0; t < T; ++t) targets.push_back(t % 5 == 3 ? -1 : (t * columns + t / 3) % V);
  targets[0] = V - 1, targets[2] = columns - 1;

  auto dz = z;
  std::vector<double> loss = {before}, scales = {scale};
  run("cross_entropy", rank_of<TestType>(1, 0, 0), attributes,
      {operand(dz, {T, V}), operand(targets, {T}), operand(scales, {1}), operand(loss, {1})},
      {operand(dz, {T, V}), operand(loss, {1})});
  const SharedLoss<TestType> found = shared_loss(s, attributes, z, targets, before, scale);
  set_compute_threads(1);

  auto together = dz;
  for (int p = 0; p < s.tp; ++p) {
    CHECK(found.loss[size_t(p)] == found.loss[0]);  // to the bit
    for (int64_t t = 0; t < T; ++t) {
      const TestType* row = &found.dz[size_t(p)][size_t(t * columns)];
      if (s.real(p) > 0) std::copy_n(row, s.real(p), together.begin() + t * V + p * columns);
      for (int64_t j = s.real(p); j < columns; ++j) REQUIRE(to_float(row[j]) == 0.f);
      for (int64_t j = 0; j < columns && targets[size_t(t)] < 0; ++j) REQUIRE(to_float(row[j]) == 0.f);
      if (s.real(p) > 0) continue;
      const float* stats = &found.stats[size_t(p)][size_t(3 * t)];
      REQUIRE((stats[0] == -std::numeric_limits<float>::infinity() && stats[1] == 0 && stats[2] == 0));
    }
  }
  CHECK(found.loss[0] == Approx(loss[0]).epsilon(1e-6));
  CHECK(difference(together, dz) < kClose<TestType>);
}

TEST_CASE("shared: a logit that is not a number reaches every rank's loss", "[shared]") {
  const Shares s{4, 5};
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    for (int64_t j = 0; j < s.vocabulary; ++j) {
      std::vector<float> z(5, 0.25f);
      z[size_t(j)] = bad;
      for (const double loss : shared_loss<float>(s, {}, z, {2}, 0, 1).loss) CHECK_FALSE(std::isfinite(loss));
    }
  }
}

TEMPLATE_TEST_CASE("shared: partial sums are added in the order of ranks and rounded once", "[shared]", float, Bf16, F16) {
  const int64_t size = GENERATE(1, 2, 3, 4), n = 70001;  // several threads take parts
  const auto parts = random_values<TestType>(size * n, 1), addend = random_values<TestType>(n, 2);
  set_compute_threads(GENERATE(1, 3));
  for (const bool has_addend : {true, false}) {
    std::vector<TestType> expected(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      double sum = has_addend ? to_float(addend[i]) : 0;
      for (int64_t p = 0; p < size; ++p) sum += to_float(parts[p * n + i]);
      from_float(float(sum), &expected[i]);
    }
    std::vector<TestType> first;
    for (int64_t index = 0; index < size; ++index) {
      const std::vector<TestType> own(parts.begin() + index * n, parts.begin() + (index + 1) * n);
      std::vector<TestType> received;
      for (int64_t k = 1; k < size; ++k) {
        const int64_t p = (index + k) % size;
        received.insert(received.end(), parts.begin() + p * n, parts.begin() + (p + 1) * n);
      }
      auto target = not_numbers<TestType>(n), over_own = own, over_addend = addend;
      const Dtype dtype = kDtype<TestType>;
      const auto sum = [&](const TestType* mine, const TestType* more, TestType* to) {
        cpu_kernels().sum_partials(mine, size > 1 ? received.data() : nullptr, more, to, dtype, size, index, n);
      };
      sum(own.data(), has_addend ? addend.data() : nullptr, target.data());
      sum(over_own.data(), has_addend ? addend.data() : nullptr, over_own.data());
      CHECK(difference(target, expected) < (kIs16Bit<TestType> ? 4e-3 : 1e-6));
      CHECK(same_bits(over_own, target));
      if (has_addend) sum(own.data(), over_addend.data(), over_addend.data());
      if (has_addend) CHECK(same_bits(over_addend, target));
      if (index == 0) first = target;
      CHECK(same_bits(target, first));
    }
  }
  set_compute_threads(1);
}

TEST_CASE("loops over ranges run on several threads at once, and what one of them throws arrives", "[shared]") {
  set_compute_threads(2);
  std::atomic<int> begun = 0;
  std::array<std::atomic<int>, 10> visits{};
  parallel_ranges(int64_t(visits.size()), 1 << 20, [&](int64_t begin, int64_t end) {
    ++begun;
    for (const auto since = std::chrono::steady_clock::now(); begun < 2;)  // the other one is under way
      if (std::chrono::steady_clock::now() - since > std::chrono::seconds(30)) break;
    for (int64_t i = begin; i < end; ++i) ++visits[size_t(i)];
    parallel_ranges(4, 1 << 20, [&](int64_t first, int64_t last) { begun += first != 0 || last != 4 ? 100 : 0; });  // alone inside
  });
  CHECK(begun == 2);
  for (const std::atomic<int>& n : visits) CHECK(n == 1);
  CHECK_THROWS_WITH(parallel_ranges(2, 1 << 20,
                                    [](int64_t begin, int64_t) {
                                      if (begin > 0) throw std::runtime_error("the second half");
                                    }),
                    "the second half");
  set_compute_threads(1);
}

TEST_CASE("shared: bytes are copied, by several threads too", "[shared]") {
  const auto from = random_values<float>(300001, 1);
  std::vector<float> to(from.size());
  for (const int threads : {1, 3}) {
    set_compute_threads(threads);
    std::fill(to.begin(), to.end(), 0.f);
    cpu_kernels().copy(Stream::kCompute, to.data(), from.data(), int64_t(from.size()) * 4 - 4);
    CHECK(std::equal(to.begin(), to.end() - 1, from.begin()));
    CHECK(to.back() == 0.f);
  }
  set_compute_threads(1);
  cpu_kernels().copy(Stream::kCompute, to.data(), to.data(), 100);
  cpu_kernels().copy(Stream::kCompute, nullptr, from.data(), 0);
}

}  // namespace
}  // namespace distsetup
