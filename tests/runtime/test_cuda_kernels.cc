// The CUDA kernels, run on the CPU (tests/support/cuda_emulation.h), against the CPU's own kernels on the same numbers: every result
// within rounding, in place where programs use them so, and with the same bits whichever way the threads of a block are taken.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "model/rope.h"
#include "runtime/emulated.h"
#include "runtime/kernels/cpu/kernels.h"
#include "runtime/values.h"
#include "weights/nf4.h"

#include "runtime/kernels/cuda/kernels.cu"
#include "runtime/kernels/cuda/kernels_embedding.cu"
#include "runtime/kernels/cuda/kernels_families.cu"
#include "runtime/kernels/cuda/kernels_loss.cu"
#include "runtime/kernels/cuda/kernels_nf4.cu"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using cpu::Store;

TEMPLATE_TEST_CASE("cuda: matrices out of nf4 have the CPU's bits", "[cuda_kernels]", float, Bf16, F16) {
  const int64_t numel = GENERATE(1, 7, 64, 130, 8 * 1000, 257 * 129, 64 * 700);
  const bool is_aligned = GENERATE(true, false);
  const std::vector<float> weights = random_values<float>(numel, 1);
  Nf4Writer writer(numel);
  writer.add(weights);
  const std::vector<uint8_t> bytes = writer.finish();
  const Nf4Record record = nf4_record(numel);
  REQUIRE(int64_t(bytes.size()) == record.num_bytes);
  std::vector<float> expected(size_t(numel), 0.0f);
  read_nf4_blocks(bytes.data(), record, 0, record.num_scales, expected.data());
  std::vector<TestType> rounded(size_t(numel), TestType{});
  if constexpr (kIs16Bit<TestType>)
    cpu::cast(expected.data(), rounded.data(), numel);
  else
    rounded = expected;
  const size_t first = is_aligned ? 0 : 1;
  same_in_both_orders([&] {
    std::vector<TestType> found(size_t(numel) + first, TestType{});
    cuda::dequantize_nf4(kElement<TestType>, bytes.data(), record, found.data() + first, nullptr);
    const std::vector<TestType> matrix(found.begin() + long(first), found.end());
    CHECK(bytes_of(matrix) == bytes_of(rounded));
    return bytes_of(matrix);
  });
}

TEMPLATE_TEST_CASE("cuda: rms_norm and its backward", "[cuda_kernels]", float, Bf16, F16) {
  const int64_t T = 7, H = GENERATE(3, 30, 257, 1000, 2056);
  const bool with_residual = GENERATE(true, false);
  const bool accumulate = with_residual;
  const float offset = with_residual ? 1 : 0;
  const auto x = random_values<TestType>(T * H, 1), w = random_values<TestType>(H, 2), dh = random_values<TestType>(T * H, 3),
             residual = random_values<TestType>(T * H, 4), g0 = random_values<TestType>(H, 5);
  std::vector<TestType> h(x.size()), dx(x.size()), gw = g0;
  std::vector<float> r(T), ws(H);
  cpu::rms_norm(x.data(), w.data(), h.data(), r.data(), T, H, {1e-5f, offset});
  cpu::rms_norm_backward(dh.data(), x.data(), r.data(), w.data(), with_residual ? residual.data() : nullptr, dx.data(), gw.data(),
                         ws.data(), T, H, offset, accumulate ? Store::kAdd : Store::kSet);
  same_in_both_orders([&] {
    std::vector<TestType> h2(x.size()), gw2 = g0;
    std::vector<float> r2(T);
    std::vector<TestType> dx2 = with_residual ? residual : dh;  // in place of the residual, or of dh
    cuda::rms_norm(kElement<TestType>, x.data(), w.data(), h2.data(), r2.data(), T, H, 1e-5f, offset, nullptr);
    CHECK(difference(h2, h) < kClose<TestType>);
    CHECK(difference(r2, r) < 3e-6);
    cuda::rms_norm_backward(kElement<TestType>, with_residual ? dh.data() : dx2.data(), x.data(), r2.data(), w.data(),
                            with_residual ? dx2.data() : nullptr, dx2.data(), gw2.data(), T, H, offset, accumulate, nullptr);
    CHECK(difference(dx2, dx) < kClose<TestType>);
    CHECK(difference(gw2, gw) < kClose<TestType>);
    return bytes_of(h2, r2, dx2, gw2);
  });
}

TEMPLATE_TEST_CASE("cuda: qk_norm and its backward", "[cuda_kernels]", float, Bf16, F16) {
  const Heads heads = GENERATE(Heads{3, 1, 10}, Heads{4, 2, 64}, Heads{2, 2, 250});
  const bool accumulate = GENERATE(true, false);
  const float offset = accumulate ? 1 : 0;
  const int64_t T = 5, D = heads.size, n = heads.num_q + heads.num_kv;
  const auto qkv = random_values<TestType>(T * heads.packed_row(), 1), wq = random_values<TestType>(D, 2),
             wk = random_values<TestType>(D, 3), dqk = random_values<TestType>(T * heads.row(), 4),
             before = random_values<TestType>(T * heads.packed_row(), 5), g0 = random_values<TestType>(D, 6);
  std::vector<TestType> qk(T * heads.row()), dqkv = before, gwq = g0, gwk = g0;
  std::vector<float> r(T * n), ws(2 * D);
  cpu::qk_norm(qkv.data(), wq.data(), wk.data(), qk.data(), r.data(), T, heads, {1e-6f, offset});
  cpu::qk_norm_backward(dqk.data(), qkv.data(), r.data(), wq.data(), wk.data(), dqkv.data(), gwq.data(), gwk.data(), ws.data(),
                        ws.data() + D, T, heads, offset, accumulate ? Store::kAdd : Store::kSet);
  same_in_both_orders([&] {
    std::vector<TestType> qk2(qk.size()), dqkv2 = before, gwq2 = g0, gwk2 = g0;
    std::vector<float> r2(r.size());
    cuda::qk_norm(kElement<TestType>, qkv.data(), wq.data(), wk.data(), qk2.data(), r2.data(), T, heads, 1e-6f, offset, nullptr);
    CHECK(difference(qk2, qk) < kClose<TestType>);
    CHECK(difference(r2, r) < 3e-6);
    cuda::qk_norm_backward(kElement<TestType>, dqk.data(), qkv.data(), r2.data(), wq.data(), wk.data(), dqkv2.data(), gwq2.data(),
                           gwk2.data(), T, heads, offset, accumulate, nullptr);
    CHECK(difference(dqkv2, dqkv) < kClose<TestType>);  // v columns: as they were
    CHECK(difference(gwq2, gwq) < kClose<TestType>);
    CHECK(difference(gwk2, gwk) < kClose<TestType>);
    return bytes_of(qk2, r2, dqkv2, gwq2, gwk2);
  });
}

TEMPLATE_TEST_CASE("cuda: rope, forward and back", "[cuda_kernels]", float, Bf16, F16) {
  const int64_t T = 10, S = 5, num_heads = 3, D = GENERATE(2, 10, 64), R = D > 2 ? D / 2 / 2 * 2 : D, stride = 4 * D;
  const float direction = GENERATE(1.f, -1.f);
  std::vector<float> cos(S * R / 2), sin(cos.size());
  Geometry g;
  g.head_size = R;
  cpu::rope_tables(cos.data(), sin.data(), own_positions(S), rope_frequencies(g, false, S).per_pair, 1);
  const auto rows = random_values<TestType>(T * stride, 1);
  auto expected = rows, found = rows;
  cpu::rope(expected.data(), cos.data(), sin.data(), T, S, num_heads, D, R, stride, direction);
  cuda::rope(kElement<TestType>, found.data(), cos.data(), sin.data(), T, S, num_heads, D, R, stride, direction, nullptr, nullptr);
  CHECK(difference(found, expected) < kClose<TestType>);
  const std::vector<int64_t> positions = {0, 1, 2, 0, 0, 1, 0, 1, 2, 3};  // of documents
  expected = found = rows;
  cpu::rope(expected.data(), cos.data(), sin.data(), T, S, num_heads, D, R, stride, direction, 0, positions.data());
  cuda::rope(kElement<TestType>, found.data(), cos.data(), sin.data(), T, S, num_heads, D, R, stride, direction, positions.data(),
             nullptr);
  CHECK(difference(found, expected) < kClose<TestType>);
}

TEMPLATE_TEST_CASE("cuda: learned positions of documents", "[cuda_kernels]", float, Bf16, F16) {
  const int64_t T = 7, P = 5, H = GENERATE(3, 64);
  const std::vector<int64_t> positions = {0, 1, 2, 0, 1, 2, 3};
  const auto y = random_values<TestType>(T * H, 1), w = random_values<TestType>(P * H, 2);
  auto expected = y, found = y;
  for (int64_t i = 0; i < T * H; ++i)
    from_float(to_float(y[size_t(i)]) + to_float(w[size_t(positions[size_t(i / H)] * H + i % H)]), &expected[size_t(i)]);
  cuda::position_add_at(kElement<TestType>, found.data(), w.data(), positions.data(), T, H, nullptr);
  CHECK(bytes_of(found) == bytes_of(expected));
}

TEMPLATE_TEST_CASE("cuda: swiglu and its backward over its input", "[cuda_kernels]", float, Bf16, F16) {
  const int64_t T = 6, F = GENERATE(1, 37, 300, 2064);
  const auto gu = random_values<TestType>(T * 2 * F, 1), dm = random_values<TestType>(T * F, 2);
  std::vector<TestType> m(T * F), m2(T * F), dgu(gu.size()), dgu2 = gu;
  cpu::swiglu(gu.data(), m.data(), T, F);
  cpu::swiglu_backward(dm.data(), gu.data(), dgu.data(), T, F);
  cuda::swiglu(kElement<TestType>, gu.data(), m2.data(), T, F, nullptr);
  cuda::swiglu_backward(kElement<TestType>, dm.data(), dgu2.data(), dgu2.data(), T, F, nullptr);
  CHECK(difference(m2, m) < kClose<TestType>);
  CHECK(difference(dgu2, dgu) < kClose<TestType>);
}

TEMPLATE_TEST_CASE("cuda: cross entropy over its logits, with ignored targets", "[cuda_kernels][all]", float, Bf16, F16) {
  struct Shape {
    int64_t T, V;
  };
  const Shape shape = GENERATE(Shape{9, 53}, Shape{3, 1000}, Shape{3, 4104}, Shape{1030, 3});  // more rows than blocks
  const int64_t T = shape.T, V = shape.V;
  const auto z = random_values<TestType>(T * V, 1);
  std::vector<int64_t> target;
  for (int64_t t = 0; t < T; ++t) target.push_back(t % 4 == 2 ? -1 : t * 7 % V);
  std::vector<TestType> dz(z.size());
  const double scale = 1.0 / double(T), before = 0.25;
  double loss = before;
  cpu::cross_entropy(z.data(), target.data(), dz.data(), &loss, T, V, scale);
  const auto run = [&] {
    std::vector<TestType> dz2 = z;
    std::vector<double> loss2 = {before};
    cuda::cross_entropy(kElement<TestType>, dz2.data(), target.data(), dz2.data(), loss2.data(), T, V, &scale, 1, 0, nullptr);
    CHECK(loss2[0] == Approx(loss).epsilon(1e-6));
    CHECK(difference(dz2, dz) < kClose<TestType>);
    return bytes_of(dz2, loss2);
  };
  if (T < 100)
    same_in_both_orders(run);
  else
    run();
}

TEST_CASE("cuda: cross entropy of huge, infinite and undefined logits", "[cuda_kernels]") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const double one = 1;
  const std::vector<int64_t> target = {1};
  for (const auto& z : {std::vector<float>{1e30f, -1e30f, 0}, std::vector<float>{-inf, 3, 4}}) {
    std::vector<float> dz(3), dz2(3);
    double loss = 0, loss2 = 0;
    cpu::cross_entropy(z.data(), target.data(), dz.data(), &loss, 1, 3, 1.0);
    cuda::cross_entropy(cuda::Element::kF32, z.data(), target.data(), dz2.data(), &loss2, 1, 3, &one, 1, 0, nullptr);
    CHECK(loss2 == Approx(loss));
    CHECK(difference(dz2, dz) < 3e-6);
  }
  for (const auto& z : {std::vector<float>{nan, 0, 0}, std::vector<float>{0, 0, nan}, std::vector<float>{-inf, nan, -inf},
                        std::vector<float>{inf, 0, 0}}) {  // the step has to stop
    std::vector<float> dz(3);
    double loss = 0;
    cuda::cross_entropy(cuda::Element::kF32, z.data(), target.data(), dz.data(), &loss, 1, 3, &one, 1, 0, nullptr);
    CHECK_FALSE(std::isfinite(loss));
  }
}

TEMPLATE_TEST_CASE("cuda: embedding and its backward, rows of one id in order", "[cuda_kernels][all]", float, Bf16, F16) {
  struct Shape {
    int64_t T, V, H;
  };
  const Shape shape = GENERATE(Shape{300, 7, 30}, Shape{5, 3, 2100}, Shape{600, 9, 520}, Shape{1, 1, 1});
  const int64_t T = shape.T, V = shape.V, H = shape.H;
  const bool accumulate = GENERATE(true, false);
  std::vector<int64_t> ids;
  for (int64_t t = 0; t < T; ++t) ids.push_back(t * t % 5 % V);
  const auto w = random_values<TestType>(V * H, 1), dy = random_values<TestType>(T * H, 2), g0 = random_values<TestType>(V * H, 3);
  std::vector<TestType> y(T * H), gw = g0;
  cpu::embedding_forward(ids.data(), w.data(), y.data(), T, H);
  cpu::embedding_backward(ids.data(), dy.data(), gw.data(), T, V, H, accumulate ? Store::kAdd : Store::kSet);
  same_in_both_orders([&] {
    std::vector<TestType> y2(T * H), gw2 = g0;
    cuda::embedding_forward(kElement<TestType>, ids.data(), w.data(), y2.data(), T, H, 1, {}, nullptr);
    cuda::embedding_backward(kElement<TestType>, ids.data(), dy.data(), gw2.data(), T, V, H, 1, {}, accumulate, nullptr);
    CHECK(bytes_of(y2) == bytes_of(y));
    CHECK(difference(gw2, gw) < kClose<TestType>);
    return bytes_of(y2, gw2);
  });
}

TEMPLATE_TEST_CASE("cuda: biases", "[cuda_kernels][all]", float, Bf16, F16) {
  const int64_t T = 70, H = GENERATE(1, 33, 104, 16400);
  const bool accumulate = GENERATE(true, false);
  const auto x = random_values<TestType>(T * H, 1), b = random_values<TestType>(H, 2);
  auto expected = x, found = x, gb = b, gb2 = b;
  std::vector<float> ws(H);
  cpu::bias_add(expected.data(), b.data(), T, H);
  cuda::bias_add(kElement<TestType>, found.data(), b.data(), T, H, nullptr);
  CHECK(difference(found, expected) < kClose<TestType>);
  cpu::bias_backward(x.data(), gb.data(), ws.data(), T, H, accumulate ? Store::kAdd : Store::kSet);
  cuda::bias_backward(kElement<TestType>, x.data(), gb2.data(), T, H, accumulate, nullptr);
  CHECK(difference(gb2, gb) < kClose<TestType>);
}

TEMPLATE_TEST_CASE("cuda: casts round as the CPU's", "[cuda_kernels]", Bf16, F16) {
  auto from = random_values<float>(300, 1);
  from[7] = std::numeric_limits<float>::infinity();
  from[8] = 1.00390625f;                                                              // half way: to even
  from[9] = 65519.9f, from[10] = 65520, from[11] = -0x1.8p-24f, from[12] = 0x1p-25f;  // of fp16 the largest and the smallest
  std::vector<TestType> to(from.size()), to2(from.size());
  cpu::cast(from.data(), to.data(), int64_t(from.size()));
  cuda::cast(kElement<TestType>, from.data(), to2.data(), int64_t(from.size()), nullptr);
  CHECK(bytes_of(to2) == bytes_of(to));
}

TEMPLATE_TEST_CASE("cuda: chunks are summed in the order of ranks", "[cuda_kernels]", float, Bf16, F16) {
  const int64_t size = GENERATE(1, 2, 5), stride = 300, n = 290;
  const bool accumulate = GENERATE(true, false);
  const auto own = random_values<TestType>(n, 1), received = random_values<TestType>(std::max<int64_t>(1, size - 1) * stride, 2);
  const auto before = random_values<float>(n, 3);
  for (int64_t index = 0; index < size; ++index) {
    auto target = before, target2 = before;
    cpu::sum_chunks(target.data(), own.data(), received.data(), size, index, stride, n, accumulate ? Store::kAdd : Store::kSet);
    cuda::sum_chunks(kElement<TestType>, target2.data(), own.data(), received.data(), size, index, stride, n, accumulate, nullptr);
    CHECK(difference(target2, target) < 3e-7);
  }
}

TEST_CASE("cuda: sums of squares add up over ranges", "[cuda_kernels]") {
  const auto x = random_values<float>(300000, 1);
  double large = 0;  // more elements than threads
  cuda::sum_of_squares(x.data(), int64_t(x.size()), &large, /*accumulate=*/false, nullptr);
  CHECK(large == Approx(cpu::sum_of_squares(x.data(), int64_t(x.size()))).epsilon(1e-5));
  same_in_both_orders([&] {
    std::vector<double> sum = {5.0};
    double expected = 0;
    for (const int64_t n : {0, 5, 1000}) {
      cuda::sum_of_squares(x.data(), n, sum.data(), /*accumulate=*/n > 0, nullptr);
      expected += cpu::sum_of_squares(x.data(), n);
    }
    CHECK(sum[0] == Approx(expected).epsilon(1e-5));
    return bytes_of(sum);
  });
}

TEMPLATE_TEST_CASE("cuda: layer_norm and its backward", "[cuda_kernels]", float, Bf16, F16) {
  const int64_t T = 7, H = GENERATE(3, 257, 1000);
  const bool with_residual = GENERATE(true, false);
  const auto x = random_values<TestType>(T * H, 1), w = random_values<TestType>(H, 2), b = random_values<TestType>(H, 3),
             dh = random_values<TestType>(T * H, 4), residual = random_values<TestType>(T * H, 5), g0 = random_values<TestType>(H, 6);
  const bool has_bias = GENERATE(true, false);
  const float offset = has_bias ? 0.0f : 1.0f;
  std::vector<TestType> h(x.size()), dx(x.size()), gw = g0, gb = g0;
  std::vector<float> mean(T), r(T), ws(2 * H);
  const Store store = with_residual ? Store::kAdd : Store::kSet;
  const auto if_bias = [&](auto* p) { return has_bias ? p : nullptr; };
  cpu::layer_norm(x.data(), w.data(), if_bias(b.data()), h.data(), mean.data(), r.data(), T, H, {1e-5f, offset});
  cpu::layer_norm_backward_weight(dh.data(), x.data(), mean.data(), r.data(), gw.data(), if_bias(gb.data()), ws.data(), T, H, 0, H,
                                  store);
  cpu::layer_norm_backward_input<TestType>(dh.data(), x.data(), mean.data(), r.data(), w.data(),
                                           with_residual ? residual.data() : nullptr, dx.data(), T, H, offset);
  same_in_both_orders([&] {
    std::vector<TestType> h2(x.size()), gw2 = g0, gb2 = g0, dx2 = with_residual ? residual : dh;
    std::vector<float> mean2(T), r2(T);
    cuda::layer_norm(kElement<TestType>, x.data(), w.data(), if_bias(b.data()), h2.data(), mean2.data(), r2.data(), T, H, 1e-5f,
                     offset, nullptr);
    CHECK(difference(h2, h) < kClose<TestType>);
    CHECK(difference(r2, r) < 3e-6);
    cuda::layer_norm_backward(kElement<TestType>, with_residual ? dh.data() : dx2.data(), x.data(), mean2.data(), r2.data(), w.data(),
                              with_residual ? dx2.data() : nullptr, dx2.data(), gw2.data(), if_bias(gb2.data()), T, H, offset,
                              with_residual, nullptr);
    CHECK(difference(dx2, dx) < 2 * kClose<TestType>);
    CHECK(difference(gw2, gw) < kClose<TestType>);
    CHECK(difference(gb2, gb) < kClose<TestType>);
    return bytes_of(h2, mean2, r2, dx2, gw2, gb2);
  });
}

TEMPLATE_TEST_CASE("cuda: norms over all heads and their backward", "[cuda_kernels]", float, Bf16, F16) {
  const Heads heads = GENERATE(Heads{3, 1, 10}, Heads{4, 2, 64});
  const bool accumulate = GENERATE(true, false);
  const int64_t T = 5, Q = heads.num_q * heads.size, K = heads.num_kv * heads.size;
  const auto qkv = random_values<TestType>(T * heads.packed_row(), 1), wq = random_values<TestType>(Q, 2),
             wk = random_values<TestType>(K, 3), dqk = random_values<TestType>(T * heads.row(), 4),
             before = random_values<TestType>(T * heads.packed_row(), 5), q0 = random_values<TestType>(Q, 6),
             k0 = random_values<TestType>(K, 7);
  std::vector<TestType> qk(T * heads.row()), dqkv = before, gwq = q0, gwk = k0;
  std::vector<float> r(2 * T), ws(Q + K);
  cpu::qk_norm_wide(qkv.data(), wq.data(), wk.data(), qk.data(), r.data(), T, heads, {1e-6f, 0});
  cpu::qk_norm_wide_backward(dqk.data(), qkv.data(), r.data(), wq.data(), wk.data(), dqkv.data(), gwq.data(), gwk.data(), ws.data(), T,
                             heads, 0, accumulate ? Store::kAdd : Store::kSet);
  same_in_both_orders([&] {
    std::vector<TestType> qk2(qk.size()), dqkv2 = before, gwq2 = q0, gwk2 = k0;
    std::vector<float> r2(r.size());
    cuda::qk_norm_wide(kElement<TestType>, qkv.data(), wq.data(), wk.data(), qk2.data(), r2.data(), T, heads, 1e-6f, nullptr);
    CHECK(difference(qk2, qk) < kClose<TestType>);
    cuda::qk_norm_wide_backward(kElement<TestType>, dqk.data(), qkv.data(), r2.data(), wq.data(), wk.data(), dqkv2.data(), gwq2.data(),
                                gwk2.data(), T, heads, accumulate, nullptr);
    CHECK(difference(dqkv2, dqkv) < kClose<TestType>);
    CHECK(difference(gwq2, gwq) < kClose<TestType>);
    CHECK(difference(gwk2, gwk) < kClose<TestType>);
    return bytes_of(qk2, r2, dqkv2, gwq2, gwk2);
  });
}

template <Activation kCpu, class E>
void check_activation(Activation f) {
  const int64_t T = 6, F = 300;
  const auto gu = random_values<E>(T * 2 * F, 1), dm = random_values<E>(T * F, 2);
  std::vector<E> m(T * F), d(T * 2 * F), m2 = m, d2 = gu;
  cpu::gated_activation<kCpu>(gu.data(), m.data(), T, F);
  cpu::gated_activation_backward<kCpu>(dm.data(), gu.data(), d.data(), T, F);
  cuda::gated_activation(kElement<E>, f, gu.data(), m2.data(), T, F, nullptr);
  cuda::gated_activation_backward(kElement<E>, f, dm.data(), d2.data(), d2.data(), T, F, nullptr);
  CHECK(difference(m2, m) < kClose<E>);
  CHECK(difference(d2, d) < kClose<E>);
  std::vector<E> y(T * F), dx(T * F), y2 = y, dx2(gu.begin(), gu.begin() + T * F);
  cpu::activation<kCpu>(gu.data(), y.data(), T * F);
  cpu::activation_backward<kCpu>(dm.data(), gu.data(), dx.data(), T * F);
  cuda::activation(kElement<E>, f, gu.data(), y2.data(), T * F, nullptr);
  cuda::activation_backward(kElement<E>, f, dm.data(), dx2.data(), dx2.data(), T * F, nullptr);
  CHECK(difference(y2, y) < kClose<E>);
  CHECK(difference(dx2, dx) < kClose<E>);
}

TEMPLATE_TEST_CASE("cuda: activations, gated or not, in place too", "[cuda_kernels]", float, Bf16, F16) {
  check_activation<Activation::kGelu, TestType>(Activation::kGelu);
  check_activation<Activation::kGeluTanh, TestType>(Activation::kGeluTanh);
  check_activation<Activation::kRelu, TestType>(Activation::kRelu);
  check_activation<Activation::kRelu2, TestType>(Activation::kRelu2);
  check_activation<Activation::kSilu, TestType>(Activation::kSilu);
}

TEMPLATE_TEST_CASE("cuda: sums, learned positions, multipliers and capped logits", "[cuda_kernels]", float, Bf16, F16) {
  constexpr cuda::Element kOf = kElement<TestType>;
  const bool accumulate = GENERATE(true, false);
  const int64_t T = 10, S = 5, P = 8, H = 37, V = 41;
  const auto a = random_values<TestType>(T * H, 1), b = random_values<TestType>(T * H, 2), w = random_values<TestType>(P * H, 3);
  std::vector<TestType> c(T * H), c2 = b;
  cpu::add(a.data(), b.data(), c.data(), T * H);
  cuda::add(kOf, a.data(), c2.data(), c2.data(), T * H, nullptr);
  CHECK(difference(c2, c) == 0);
  auto y = a, y2 = a;
  cpu::position_add(y.data(), w.data(), T, own_positions(S), H);
  cuda::position_add(kOf, y2.data(), w.data(), T, own_positions(S), H, 0, nullptr);
  CHECK(difference(y2, y) == 0);
  auto g = w, g2 = w;
  cpu::position_backward(a.data(), g.data(), T, own_positions(S), H, 0, P, accumulate ? Store::kAdd : Store::kSet);
  cuda::position_backward(kOf, a.data(), g2.data(), T, own_positions(S), P, H, 0, accumulate, nullptr);
  CHECK(difference(g2, g) < kClose<TestType>);

  std::vector<int64_t> ids, target;
  for (int64_t t = 0; t < T; ++t) ids.push_back(t * t % P), target.push_back(t % 4 == 3 ? -1 : t * 7 % V);
  cpu::embedding_forward(ids.data(), w.data(), y.data(), T, H, 3.5f);
  cuda::embedding_forward(kOf, ids.data(), w.data(), y2.data(), T, H, 3.5f, {}, nullptr);
  CHECK(difference(y2, y) == 0);
  g = g2 = w;
  cpu::embedding_backward(ids.data(), a.data(), g.data(), T, P, H, accumulate ? Store::kAdd : Store::kSet, 3.5f);
  cuda::embedding_backward(kOf, ids.data(), a.data(), g2.data(), T, P, H, 3.5f, {}, accumulate, nullptr);
  CHECK(difference(g2, g) < kClose<TestType>);

  const auto z = random_values<TestType>(T * V, 4);
  std::vector<TestType> dz(T * V), dz2 = z;
  std::vector<double> rows(T);
  const double scale = 0.125;
  double loss = 0, loss2 = 0;
  cpu::cross_entropy_shaped(z.data(), target.data(), dz.data(), rows.data(), T, V, scale, 0.5f, 2.0f);
  for (const double row : rows) loss += row * scale;
  cuda::cross_entropy(kOf, dz2.data(), target.data(), dz2.data(), &loss2, T, V, &scale, 0.5f, 2.0f, nullptr);
  CHECK(loss2 == Approx(loss).epsilon(1e-5));
  CHECK(difference(dz2, dz) < kClose<TestType>);
}

TEMPLATE_TEST_CASE("cuda: embeddings and positions of a rank that has a part of them", "[cuda_kernels][all]", float, Bf16, F16) {
  constexpr cuda::Element kOf = kElement<TestType>;
  const bool accumulate = GENERATE(true, false);
  const VocabularyRange range = GENERATE(VocabularyRange{0, 4}, VocabularyRange{4, 7}, VocabularyRange{8, 8});
  const int64_t T = 300, V = 4, H = 37, S = 9, P = 12, own = 20;
  std::vector<int64_t> ids;
  for (int64_t t = 0; t < T; ++t) ids.push_back(t * t % 7);
  const auto w = random_values<TestType>(P * H, 1), dy = random_values<TestType>(T * H, 2);
  std::vector<TestType> y(T * H), gw = w;
  cpu::embedding_forward(ids.data(), w.data(), y.data(), T, H, 3.5f, range);
  cpu::embedding_backward(ids.data(), dy.data(), gw.data(), T, V, H, accumulate ? Store::kAdd : Store::kSet, 3.5f, range);
  same_in_both_orders([&] {
    std::vector<TestType> y2(T * H), gw2 = w;
    cuda::embedding_forward(kOf, ids.data(), w.data(), y2.data(), T, H, 3.5f, range, nullptr);
    cuda::embedding_backward(kOf, ids.data(), dy.data(), gw2.data(), T, V, H, 3.5f, range, accumulate, nullptr);
    CHECK(bytes_of(y2) == bytes_of(y));
    CHECK(difference(gw2, gw) < kClose<TestType>);
    return bytes_of(y2, gw2);
  });
  for (const int64_t first : {0, 5, 20, 27}) {
    std::vector<TestType> rows(dy.begin(), dy.begin() + own * H), rows2 = rows, g = w, g2 = w;
    cpu::position_add(rows.data(), w.data(), own, own_positions(S), H, first);
    cuda::position_add(kOf, rows2.data(), w.data(), own, own_positions(S), H, first, nullptr);
    CHECK(difference(rows2, rows) == 0);
    cpu::position_backward(dy.data(), g.data(), own, own_positions(S), H, 0, P, accumulate ? Store::kAdd : Store::kSet, first);
    cuda::position_backward(kOf, dy.data(), g2.data(), own, own_positions(S), P, H, first, accumulate, nullptr);
    CHECK(difference(g2, g) < kClose<TestType>);
  }
}

TEMPLATE_TEST_CASE("cuda: cross entropy of columns that ranks share", "[cuda_kernels][all]", float, Bf16, F16) {
  struct Shape {
    int64_t size, T, V;
  };
  const Shape s =
      GENERATE(Shape{2, 9, 64}, Shape{3, 9, 257}, Shape{4, 9, 257}, Shape{4, 9, 5}, Shape{1, 1030, 3});  // more rows than blocks
  const LogitShape logits = GENERATE(LogitShape{1, 0}, LogitShape{0.5f, 2.0f});
  if (s.T > 100 && (logits.soft_cap > 0 || !std::is_same_v<TestType, float>)) return;  // slow here, and nothing new
  constexpr cuda::Element kOf = kElement<TestType>;
  const int64_t columns = (s.V + s.size - 1) / s.size;
  const auto z = random_values<TestType>(s.T * s.V, 1);
  std::vector<int64_t> target;
  for (int64_t t = 0; t < s.T; ++t) target.push_back(t % 4 == 2 ? -1 : t * 7 % s.V);
  const double scale = 1.0 / double(s.T);
  std::vector<TestType> dz(z.size());
  double whole = 0.25;
  cuda::cross_entropy(kOf, z.data(), target.data(), dz.data(), &whole, s.T, s.V, &scale, logits.multiplier, logits.soft_cap, nullptr);
  const auto run = [&] {
    std::vector<std::vector<TestType>> parts;
    std::vector<VocabularyRange> ranges;
    std::vector<float> all_stats(static_cast<size_t>(s.size * s.T * kLossStats), std::nanf(""));
    for (int64_t p = 0; p < s.size; ++p) {
      const int64_t begin = p * columns;
      ranges.push_back({begin, std::clamp(s.V, begin, begin + columns)});
      std::vector<TestType>& part = parts.emplace_back(static_cast<size_t>(s.T * columns));
      for (TestType& v : part) from_float(std::nanf(""), &v);  // padding
      for (int64_t i = 0; i < s.T * (ranges.back().end - begin); ++i) {
        const int64_t n = ranges.back().end - begin;
        part[i / n * columns + i % n] = z[i / n * s.V + begin + i % n];
      }
      float* const stats = all_stats.data() + p * s.T * kLossStats;
      cuda::cross_entropy_local(kOf, part.data(), target.data(), stats, s.T, columns, ranges.back(), logits, nullptr);
      std::vector<float> stats2(static_cast<size_t>(s.T * kLossStats));
      cpu::cross_entropy_local(part.data(), target.data(), stats2.data(), s.T, columns, ranges.back(), logits);
      for (int64_t i = 0; i < s.T * kLossStats; ++i) CHECK((stats[i] == stats2[i] || stats[i] == Approx(stats2[i]).epsilon(1e-5)));
    }
    std::vector<TestType> together = dz;
    std::vector<double> losses;
    for (int64_t p = 0; p < s.size; ++p) {
      std::vector<TestType>& part = parts[p];
      losses.push_back(0.25);
      cuda::cross_entropy_finish(kOf, part.data(), target.data(), all_stats.data(), s.size, part.data(), &losses.back(), s.T, columns,
                                 &scale, ranges[p], logits, nullptr);
      CHECK(losses.back() == losses.front());
      for (int64_t i = 0; i < s.T * columns; ++i) {
        const int64_t t = i / columns, j = ranges[p].begin + i % columns;
        if (j < ranges[p].end)
          together[t * s.V + j] = part[i];
        else
          REQUIRE(to_float(part[i]) == 0.0f);
      }
    }
    CHECK(losses[0] == Approx(whole).epsilon(1e-6));
    CHECK(difference(together, dz) < kClose<TestType>);
    return bytes_of(together, losses, all_stats);
  };
  if (s.T < 100)
    same_in_both_orders(run);
  else
    run();
}

TEMPLATE_TEST_CASE("cuda: partial sums of ranks, with an addend and in its place", "[cuda_kernels]", float, Bf16, F16) {
  const int64_t size = GENERATE(1, 2, 3, 4), n = 290;
  const auto own = random_values<TestType>(n, 1), received = random_values<TestType>(std::max<int64_t>(1, size - 1) * n, 2),
             addend = random_values<TestType>(n, 3);
  for (int64_t index = 0; index < size; ++index) {
    for (const bool has_addend : {true, false}) {
      auto target = own, target2 = addend;
      cpu::sum_partials<TestType>(own.data(), received.data(), has_addend ? addend.data() : nullptr, target.data(), size, index, n, n);
      cuda::sum_partials(kElement<TestType>, own.data(), received.data(), has_addend ? target2.data() : nullptr, target2.data(), size,
                         index, n, nullptr);
      CHECK(difference(target2, target) < 3e-7);
    }
  }
}

}  // namespace
}  // namespace distsetup
