// The trainer's own kernels against plain double-precision loops written from the formulas, in fp32 and bf16, at sizes that are not
// multiples of anything, and at the edges: ignored targets, huge logits, gradients that add, outputs over inputs.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "model/rope.h"
#include "runtime/engine/cpu_kernels.h"
#include "runtime/engine/ops.h"
#include "runtime/engine/threads.h"
#include "runtime/kernels/cpu/kernels.h"

namespace distsetup {
namespace {

using cpu::Store;
using Doubles = std::vector<double>;

template <class E>
std::vector<E> round_to(const Doubles& values) {
  std::vector<E> out(values.size());
  for (size_t i = 0; i < values.size(); ++i) from_float(float(values[i]), &out[i]);
  return out;
}
template <class E>
Doubles widen(const std::vector<E>& values) {
  Doubles out;
  for (const E& v : values) out.push_back(to_float(v));
  return out;
}
// Random values that E holds exactly, so that the reference sees what the kernel sees.
template <class E>
std::vector<E> random_values(size_t n, unsigned seed, double scale = 1.0) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(0, scale);
  Doubles values(n);
  for (double& v : values) v = normal(engine);
  return round_to<E>(values);
}
// Largest difference over the largest magnitude of the reference.
template <class E>
double error(const std::vector<E>& found, const Doubles& expected) {
  REQUIRE(found.size() == expected.size());
  double largest = 0, difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const double d = std::abs(double(to_float(found[i])) - expected[i]);
    difference = std::isfinite(d) ? std::max(difference, d) : std::numeric_limits<double>::infinity();
  }
  return difference / largest;
}
template <class E>
constexpr double tolerance() {
  return std::is_same_v<E, float> ? 2e-6 : 5e-3;  // bf16: half a unit in the last of 8 bits is 0.002
}
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

Geometry with_head_size(int64_t D) {
  Geometry g;
  g.head_size = D;
  return g;
}

struct NormReference {
  Doubles dx, gw, h, r;
};
NormReference norm_reference(const Doubles& x, const Doubles& w, const Doubles& dh, int64_t T, int64_t H, double epsilon) {
  NormReference out{Doubles(size_t(T * H)), Doubles(size_t(H)), Doubles(size_t(T * H)), Doubles(size_t(T))};
  for (int64_t t = 0; t < T; ++t) {
    double squares = 0, dot = 0;
    for (int64_t j = 0; j < H; ++j) squares += x[t * H + j] * x[t * H + j];
    const double r = 1 / std::sqrt(squares / double(H) + epsilon);
    for (int64_t j = 0; j < H; ++j) dot += dh[t * H + j] * w[j] * x[t * H + j];
    for (int64_t j = 0; j < H; ++j) {
      out.h[t * H + j] = x[t * H + j] * r * w[j];
      out.gw[j] += dh[t * H + j] * x[t * H + j] * r;
      out.dx[t * H + j] = r * dh[t * H + j] * w[j] - x[t * H + j] * r * r * r * dot / double(H);
    }
    out.r[t] = r;
  }
  return out;
}

TEMPLATE_TEST_CASE("rms_norm and its backward follow the formula", "[kernels]", float, Bf16, F16) {
  const int64_t T = 7, H = GENERATE(1, 3, 64, 250, 257, 1000);
  const auto x = random_values<TestType>(T * H, 1), w = random_values<TestType>(H, 2), dh = random_values<TestType>(T * H, 3),
             residual = random_values<TestType>(T * H, 4), before = random_values<TestType>(H, 5);
  const NormReference expected = norm_reference(widen(x), widen(w), widen(dh), T, H, 1e-5);
  std::vector<TestType> h(T * H), dx(T * H), gw = before;
  std::vector<float> r(T), ws(H, std::nanf(""));
  cpu::rms_norm(x.data(), w.data(), h.data(), r.data(), T, H, {1e-5f, 0});
  CHECK(error(h, expected.h) < tolerance<TestType>());
  CHECK(error(r, expected.r) < 2e-6);

  cpu::rms_norm_backward<TestType>(dh.data(), x.data(), r.data(), w.data(), nullptr, dx.data(), gw.data(), ws.data(), T, H, 0,
                                   Store::kSet);
  // At H = 1 the true dx is nothing but epsilon: compare with the size of its two terms.
  if (H > 1) CHECK(error(dx, expected.dx) < tolerance<TestType>());
  CHECK(error(gw, expected.gw) < tolerance<TestType>());

  gw = before;
  dx = residual;  // the output over the residual, as the schedule binds it
  cpu::rms_norm_backward(dh.data(), x.data(), r.data(), w.data(), dx.data(), dx.data(), gw.data(), ws.data(), T, H, 0, Store::kAdd);
  Doubles with_residual = expected.dx, sum = expected.gw;
  for (int64_t i = 0; i < T * H; ++i) with_residual[i] += to_float(residual[i]);
  for (int64_t j = 0; j < H; ++j) sum[j] += to_float(before[j]);
  CHECK(error(dx, with_residual) < tolerance<TestType>());
  CHECK(error(gw, sum) < 2 * tolerance<TestType>());
}

TEMPLATE_TEST_CASE("qk_norm norms each q and k head and leaves v alone", "[kernels]", float, Bf16, F16) {
  const Heads heads{3, 2, 10};
  const int64_t T = 5, D = heads.size, n = 5;
  const auto qkv = random_values<TestType>(T * heads.packed_row(), 1), dqk = random_values<TestType>(T * heads.row(), 2),
             wq = random_values<TestType>(D, 3), wk = random_values<TestType>(D, 4),
             start = random_values<TestType>(T * heads.packed_row(), 5);
  std::vector<TestType> qk(T * heads.row()), dqkv = start, gq(D), gk(D);
  std::vector<float> r(T * n), wsq(D), wsk(D);
  cpu::qk_norm(qkv.data(), wq.data(), wk.data(), qk.data(), r.data(), T, heads, {1e-6f, 0});
  cpu::qk_norm_backward(dqk.data(), qkv.data(), r.data(), wq.data(), wk.data(), dqkv.data(), gq.data(), gk.data(), wsq.data(),
                        wsk.data(), T, heads, 0, Store::kSet);
  Doubles expected_qk(qk.size()), expected_dqkv = widen(start), expected_gq(D), expected_gk(D);
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t i = 0; i < n; ++i) {
      Doubles x(D), dh(D);
      for (int64_t j = 0; j < D; ++j) {
        x[j] = to_float(qkv[t * heads.packed_row() + i * D + j]);
        dh[j] = to_float(dqk[t * heads.row() + i * D + j]);
      }
      const NormReference one = norm_reference(x, widen(i < 3 ? wq : wk), dh, 1, D, 1e-6);
      for (int64_t j = 0; j < D; ++j) {
        expected_qk[t * heads.row() + i * D + j] = one.h[j];
        expected_dqkv[t * heads.packed_row() + i * D + j] = one.dx[j];
        (i < 3 ? expected_gq : expected_gk)[j] += one.gw[j];
      }
    }
  }
  CHECK(error(qk, expected_qk) < tolerance<TestType>());
  CHECK(error(dqkv, expected_dqkv) < tolerance<TestType>());  // v columns: as they were
  CHECK(error(gq, expected_gq) < tolerance<TestType>());
  CHECK(error(gk, expected_gk) < tolerance<TestType>());
  const auto once = gq;
  cpu::qk_norm_backward(dqk.data(), qkv.data(), r.data(), wq.data(), wk.data(), dqkv.data(), gq.data(), gk.data(), wsq.data(),
                        wsk.data(), T, heads, 0, Store::kAdd);
  for (double& v : expected_gq) v *= 2;
  CHECK(error(gq, expected_gq) < 2 * tolerance<TestType>());
  CHECK(std::memcmp(once.data(), gq.data(), D * sizeof(TestType)) != 0);
}

TEMPLATE_TEST_CASE("rope rotates pairs j and j + D/2 by the position's angle and its backward undoes it", "[kernels]", float, Bf16,
                   F16) {
  const int64_t S = 5, T = 2 * S, D = GENERATE(2, 6, 64, 600), heads = 3, stride = 5 * D;
  const auto start = random_values<TestType>(T * stride, 1);
  std::vector<float> cos(S * D / 2), sin(S * D / 2);
  cpu::rope_tables(cos.data(), sin.data(), own_positions(S), rope_frequencies(with_head_size(D), false, S).per_pair, 1);
  auto rows = start;
  cpu::rope(rows.data(), cos.data(), sin.data(), T, S, heads, D, D, stride, 1.f);
  Doubles expected = widen(start);
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t n = 0; n < heads; ++n) {
      for (int64_t j = 0; j < D / 2; ++j) {
        const double angle = double(t % S) * std::pow(10000.0, -2.0 * double(j) / double(D));
        const double a = to_float(start[t * stride + n * D + j]), b = to_float(start[t * stride + n * D + j + D / 2]);
        expected[t * stride + n * D + j] = a * std::cos(angle) - b * std::sin(angle);
        expected[t * stride + n * D + j + D / 2] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  }
  CHECK(error(rows, expected) < tolerance<TestType>());
  cpu::rope(rows.data(), cos.data(), sin.data(), T, S, heads, D, D, stride, -1.f);
  CHECK(error(rows, widen(start)) < 2 * tolerance<TestType>());
}

TEMPLATE_TEST_CASE("swiglu and its backward follow the formula, in place too", "[kernels]", float, Bf16, F16) {
  const int64_t T = 4, F = GENERATE(1, 177, 256, 300);
  auto gu = random_values<TestType>(T * 2 * F, 1, 2.0);
  from_float(95.f, &gu[0]);  // far into both tails
  from_float(-95.f, &gu[2 * F]);
  const auto dm = random_values<TestType>(T * F, 2);
  std::vector<TestType> m(T * F);
  cpu::swiglu(gu.data(), m.data(), T, F);
  auto dgu = gu;
  cpu::swiglu_backward(dm.data(), dgu.data(), dgu.data(), T, F);
  Doubles expected_m(T * F), expected_dgu(T * 2 * F);
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t j = 0; j < F; ++j) {
      const double g = to_float(gu[t * 2 * F + j]), u = to_float(gu[t * 2 * F + F + j]), d = to_float(dm[t * F + j]), s = sigmoid(g);
      expected_m[t * F + j] = g * s * u;
      expected_dgu[t * 2 * F + j] = d * u * (s + g * s * (1 - s));
      expected_dgu[t * 2 * F + F + j] = d * g * s;
    }
  }
  CHECK(error(m, expected_m) < tolerance<TestType>());
  CHECK(error(dgu, expected_dgu) < tolerance<TestType>());
}

TEMPLATE_TEST_CASE("cross_entropy: loss, gradient over the logits, ignored targets, huge logits", "[kernels]", float, Bf16, F16) {
  const int64_t T = 6, V = GENERATE(2, 256, 257, 1000);
  const double scale = 1.0 / 37;
  auto z = random_values<TestType>(T * V, 1, 3.0);
  for (int64_t j = 0; j < V; ++j) from_float(to_float(z[2 * V + j]) * 1e3f, &z[2 * V + j]);  // exp of it overflows
  std::vector<int64_t> target = {0, V - 1, V / 2, -1, 1, -1};
  Doubles expected(T * V);
  double expected_loss = 1.5;
  for (int64_t t = 0; t < T; ++t) {
    if (target[t] < 0) continue;
    double largest = -1e300, sum = 0;
    for (int64_t j = 0; j < V; ++j) largest = std::max<double>(largest, to_float(z[t * V + j]));
    for (int64_t j = 0; j < V; ++j) sum += std::exp(to_float(z[t * V + j]) - largest);
    for (int64_t j = 0; j < V; ++j) {
      expected[t * V + j] = (std::exp(to_float(z[t * V + j]) - largest) / sum - (j == target[t] ? 1.0 : 0.0)) * scale;
    }
    expected_loss += (largest + std::log(sum) - to_float(z[t * V + target[t]])) * scale;
  }
  double loss = 1.5;  // added to
  auto dz = z;
  cpu::cross_entropy(dz.data(), target.data(), dz.data(), &loss, T, V, scale);
  CHECK(error(dz, expected) < tolerance<TestType>());
  CHECK(loss == Approx(expected_loss).epsilon(1e-6));
  for (int64_t j = 0; j < V; ++j) CHECK(to_float(dz[3 * V + j]) == 0.f);

  std::vector<TestType> apart(T * V);
  double again = 1.5;
  cpu::cross_entropy(z.data(), target.data(), apart.data(), &again, T, V, scale);
  CHECK(again == loss);
  CHECK(std::memcmp(apart.data(), dz.data(), dz.size() * sizeof(TestType)) == 0);
}

TEST_CASE("cross_entropy: a logit that is not a number reaches the loss", "[kernels]") {
  std::vector<float> z(300, 0.f);
  z[77] = std::nanf("");
  const int64_t target = 3;
  double loss = 0;
  cpu::cross_entropy(z.data(), &target, z.data(), &loss, 1, 300, 1.0);
  CHECK(std::isnan(loss));
}

TEMPLATE_TEST_CASE("embedding: rows out, gradients of equal ids add up", "[kernels]", float, Bf16, F16) {
  const int64_t T = 400, V = 9, H = 300;
  std::vector<int64_t> ids(T);
  for (int64_t t = 0; t < T; ++t) ids[t] = (t * t + t / 7) % (V - 1);  // id V - 1 never occurs
  const auto w = random_values<TestType>(V * H, 1), dy = random_values<TestType>(T * H, 2), before = random_values<TestType>(V * H, 3);
  std::vector<TestType> y(T * H);
  cpu::embedding_forward(ids.data(), w.data(), y.data(), T, H);
  Doubles expected(V * H);
  for (int64_t t = 0; t < T; ++t) {
    CHECK(std::memcmp(&y[t * H], &w[ids[t] * H], H * sizeof(TestType)) == 0);
    for (int64_t j = 0; j < H; ++j) expected[ids[t] * H + j] += to_float(dy[t * H + j]);
  }
  auto g = before;
  cpu::embedding_backward(ids.data(), dy.data(), g.data(), T, V, H, Store::kSet);
  CHECK(error(g, expected) < tolerance<TestType>());
  g = before;
  cpu::embedding_backward(ids.data(), dy.data(), g.data(), T, V, H, Store::kAdd);
  for (int64_t i = 0; i < V * H; ++i) expected[i] += to_float(before[i]);
  CHECK(error(g, expected) < tolerance<TestType>());
}

TEMPLATE_TEST_CASE("bias: added to every row, its gradient is the column sum", "[kernels]", float, Bf16, F16) {
  const int64_t T = 33, H = 301;
  const auto x = random_values<TestType>(T * H, 1), b = random_values<TestType>(H, 2);
  auto y = x, g = b;
  std::vector<float> ws(H);
  cpu::bias_add(y.data(), b.data(), T, H);
  cpu::bias_backward(x.data(), g.data(), ws.data(), T, H, Store::kAdd);
  Doubles expected = widen(x), sum = widen(b);
  for (int64_t i = 0; i < T * H; ++i) {
    expected[i] += to_float(b[i % H]);
    sum[i % H] += to_float(x[i]);
  }
  CHECK(error(y, expected) < tolerance<TestType>());
  CHECK(error(g, sum) < tolerance<TestType>());
}

TEMPLATE_TEST_CASE("sum_chunks adds members in ascending order and reads nothing beyond n", "[kernels]", float, Bf16, F16) {
  const int64_t size = GENERATE(1, 2, 4), stride = 320, n = 301;
  Doubles all(size * stride);
  const auto chunks = random_values<TestType>(size * stride, 1);
  std::vector<std::vector<float>> results;
  for (int64_t index = 0; index < size; ++index) {
    std::vector<TestType> own(chunks.begin() + index * stride, chunks.begin() + (index + 1) * stride), received;
    for (int64_t k = 1; k < size; ++k) {
      const int64_t p = (index + k) % size;
      received.insert(received.end(), chunks.begin() + p * stride, chunks.begin() + (p + 1) * stride);
    }
    const auto poison = [&](std::vector<TestType>& v) {
      for (size_t i = 0; i < v.size(); ++i) {
        if (int64_t(i) % stride >= n) from_float(std::nanf(""), &v[i]);
      }
    };
    poison(own);
    poison(received);
    std::vector<float> target(n, 2.f);
    cpu::sum_chunks(target.data(), own.data(), received.data(), size, index, stride, n, Store::kAdd);
    Doubles expected(n, 2.0);
    for (int64_t p = 0; p < size; ++p) {
      for (int64_t i = 0; i < n; ++i) expected[i] += to_float(chunks[p * stride + i]);
    }
    CHECK(error(target, expected) < 1e-6);
    cpu::sum_chunks(target.data(), own.data(), received.data(), size, index, stride, n, Store::kSet);
    results.push_back(target);
  }
  for (const auto& other : results) CHECK(other == results[0]);  // the same bits wherever the sum is formed
}

TEST_CASE("bf16 rounds to nearest even and keeps infinities and NaN", "[kernels]") {
  const auto rounded = [](uint32_t bits) {
    Bf16 out;
    from_float(std::bit_cast<float>(bits), &out);
    return out.bits;
  };
  CHECK(rounded(0x3f808000) == 0x3f80);  // tie to even
  CHECK(rounded(0x3f818000) == 0x3f82);
  CHECK(rounded(0x3f808001) == 0x3f81);
  CHECK(rounded(0x7f800000) == 0x7f80);
  CHECK((rounded(0x7fffffff) & 0x7fff) > 0x7f80);  // NaN, not a carry into the sign
  std::vector<float> from(1000, 1.00390625f);
  std::vector<Bf16> to(1000);
  cpu::cast(from.data(), to.data(), 1000);
  CHECK(to[999].bits == 0x3f80);
}

TEST_CASE("sum_of_squares is exact to fp32 rounding and shows NaN", "[kernels]") {
  const auto x = random_values<float>(100003, 1);
  double expected = 0;
  for (float v : x) expected += double(v) * v;
  CHECK(cpu::sum_of_squares(x.data(), 100003) == Approx(expected).epsilon(1e-7));
  auto bad = x;
  bad[50000] = std::nanf("");
  CHECK(std::isnan(cpu::sum_of_squares(bad.data(), 100003)));
}

// Runs a program's kernel on operands of the given shapes, which start as random numbers, and returns everything it wrote.
struct Operands {
  std::vector<std::vector<float>> floats;
  std::vector<int64_t> ids;
  double scale = 0.5, loss = 0;
};
std::vector<std::vector<float>> run_kernel(const std::string& kernel, const std::vector<std::vector<int64_t>>& reads,
                                           const std::vector<std::vector<int64_t>>& writes, const OpContext& context,
                                           int num_threads) {
  set_compute_threads(num_threads);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  Operands o;
  const auto make = [&](const std::vector<int64_t>& shape) {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    std::vector<float>& values = o.floats.emplace_back(size_t(n));
    for (float& v : values) v = normal(random);
    return Argument{values.data(), shape, Dtype::kF32};
  };
  o.floats.reserve(reads.size() + writes.size());
  for (int64_t t = 0; t < context.T; ++t) o.ids.push_back(int64_t(random() % 50));
  Call call;
  call.context = &context;
  OpAttributes attributes;
  attributes.epsilon = 1e-5;
  if (kernel.find("attention") != std::string::npos) attributes.window = 40, attributes.soft_cap = 3;
  call.attributes = &attributes;
  const bool is_loss = kernel == "cross_entropy", takes_ids = kernel.rfind("embedding", 0) == 0;
  for (const auto& shape : reads) call.reads.push_back(make(shape));
  for (const auto& shape : writes) call.writes.push_back(make(shape));
  if (takes_ids) call.reads.insert(call.reads.begin(), {o.ids.data(), {context.T}, Dtype::kI64});
  if (is_loss) {
    call.reads.push_back({o.ids.data(), {context.T}, Dtype::kI64});
    call.reads.push_back({&o.scale, {1}, Dtype::kF64});
    call.writes.push_back({&o.loss, {1}, Dtype::kF64});
  }
  REQUIRE(cpu_kernels().bind(kernel, call).empty());
  call.function(call);
  o.floats.erase(o.floats.begin(), o.floats.begin() + long(reads.size()));
  o.floats.push_back({float(o.loss)});
  set_compute_threads(1);
  return o.floats;
}

TEST_CASE("attention with a window is refused where heads are too large, not run without it", "[kernels]") {
  OpContext x;
  x.T = x.S = 8, x.B = 1, x.a = x.kv = 1, x.d = cpu::kMostHeadSize + 8;
  OpAttributes attributes;
  attributes.window = 4;
  std::vector<float> qkv(size_t(x.T * 3 * x.d)), att(size_t(x.T * x.d)), lse(size_t(x.T));
  Call call;
  call.context = &x;
  call.attributes = &attributes;
  call.reads = {{qkv.data(), {x.T, 3 * x.d}, Dtype::kF32}};
  call.writes = {{att.data(), {x.T, x.d}, Dtype::kF32}, {lse.data(), {x.T, 1}, Dtype::kF32}};
  CHECK(cpu_kernels().bind("attention", call) ==
        "attention with a window, a soft cap or over several ranks takes head sizes up to 512, this model's is 520");
  CHECK(call.function == nullptr);
}

TEST_CASE("kernels give the same on one thread and on several", "[kernels]") {
  OpContext x;
  x.T = 1000, x.S = 250, x.B = 4, x.a = 4, x.kv = 2, x.d = 32;
  const int64_t T = x.T, H = 130, F = 96, V = 200, qkv = (x.a + 2 * x.kv) * x.d, qk = (x.a + x.kv) * x.d, n = x.a + x.kv;
  struct Case {
    std::string kernel;
    std::vector<std::vector<int64_t>> reads, writes;
  };
  const std::vector<Case> cases = {{"rms_norm", {{T, H}, {H}}, {{T, H}, {T}}},
                                   {"rms_norm_backward", {{T, H}, {T, H}, {T}, {H}, {T, H}}, {{T, H}, {H}, {H}}},
                                   {"rms_norm_backward_first", {{T, H}, {T, H}, {T}, {H}}, {{T, H}, {H}, {H}}},
                                   {"qk_norm", {{T, qkv}, {x.d}, {x.d}}, {{T, qk}, {T, n}}},
                                   {"rope", {{T, qkv}, {x.S, x.d / 2}, {x.S, x.d / 2}}, {{T, qkv}}},
                                   {"rope_backward", {{T, qkv}, {x.S, x.d / 2}, {x.S, x.d / 2}}, {{T, qkv}}},
                                   {"swiglu", {{T, 2 * F}}, {{T, F}}},
                                   {"swiglu_backward", {{T, F}, {T, 2 * F}}, {{T, 2 * F}}},
                                   {"cross_entropy", {{T, V}}, {{T, V}}},
                                   {"bias_add", {{T, H}, {H}}, {{T, H}}},
                                   {"layer_norm", {{T, H}, {H}, {H}}, {{T, H}, {T}, {T}}},
                                   {"layer_norm_backward", {{T, H}, {T, H}, {T}, {T}, {H}, {T, H}}, {{T, H}, {H}, {H}, {2 * H}}},
                                   {"layer_norm_no_bias", {{T, H}, {H}}, {{T, H}, {T}, {T}}},
                                   {"layer_norm_no_bias_backward_first", {{T, H}, {T, H}, {T}, {T}, {H}}, {{T, H}, {H}, {H}}},
                                   {"qk_norm_wide", {{T, qkv}, {x.a * x.d}, {x.kv * x.d}}, {{T, qk}, {T, 2}}},
                                   {"gelu", {{T, F}}, {{T, F}}},
                                   {"gelu_tanh_backward", {{T, F}, {T, F}}, {{T, F}}},
                                   {"geglu", {{T, 2 * F}}, {{T, F}}},
                                   {"geglu_tanh_backward", {{T, F}, {T, 2 * F}}, {{T, 2 * F}}},
                                   {"add", {{T, H}, {T, H}}, {{T, H}}},
                                   {"position_add", {{T, H}, {x.S, H}}, {{T, H}}},
                                   {"position_backward", {{T, H}}, {{x.S + 5, H}}},
                                   {"attention", {{T, qkv}}, {{T, x.a * x.d}, {T, x.a}}},
                                   {"attention_split", {{T, qk}, {T, qkv}}, {{T, x.a * x.d}, {T, x.a}}},
                                   {"attention_backward", {{T, x.a * x.d}, {T, qkv}, {T, x.a * x.d}, {T, x.a}}, {{T, qkv}}},
                                   {"embedding_forward", {{50, H}}, {{T, H}}},
                                   {"embedding_backward", {{T, H}}, {{50, H}}}};
  for (const Case& c : cases) {
    INFO(c.kernel);
    const auto one = run_kernel(c.kernel, c.reads, c.writes, x, 1), several = run_kernel(c.kernel, c.reads, c.writes, x, 3);
    REQUIRE(one.size() == several.size());
    const bool is_norm = c.kernel.rfind("rms_norm_backward", 0) == 0;  // one pass or two: the compiler may contract them differently
    for (size_t w = 0; w < one.size(); ++w) {
      if (!is_norm) CHECK(one[w] == several[w]);
      double worst = 0;
      for (size_t i = 0; i < one[w].size(); ++i) worst = std::max(worst, double(std::abs(one[w][i] - several[w][i])));
      CHECK(worst < 1e-4);
    }
  }
}

}  // namespace
}  // namespace distsetup
