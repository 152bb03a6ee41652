// The CUDA kernels of mixtures of experts, run on the CPU, against the CPU's own on the same numbers (as test_cuda_kernels.cc).
#include <algorithm>
#include <random>
#include <set>

#include "plan/expert_rules.h"
#include "runtime/emulated.h"
#include "runtime/kernels/cpu/experts.h"
#include "runtime/kernels/cpu/kernels.h"

#include "runtime/kernels/cuda/kernels_experts.cu"
#include "runtime/kernels/cuda/kernels_router.cu"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

// k different experts for each of T tokens, the last expert for none of them.
std::vector<int64_t> random_choice(int64_t T, int64_t num_experts, int64_t k, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<int64_t> choice;
  for (int64_t t = 0; t < T; ++t) {
    std::set<int64_t> of_token;
    while (int64_t(of_token.size()) < k) of_token.insert(int64_t(engine() % unsigned(num_experts - 1)));
    std::vector<int64_t> some(of_token.begin(), of_token.end());
    std::shuffle(some.begin(), some.end(), engine);
    choice.insert(choice.end(), some.begin(), some.end());
  }
  return choice;
}

struct Sizes {
  int64_t T, num_experts, k;
};
struct RouterCase {
  int64_t num_experts, k, groups = 1, groups_chosen = 1;
};

TEMPLATE_TEST_CASE("cuda: a router's choice and its gradient", "[cuda_kernels][experts][all]", float, Bf16) {
  const RouterCase shape = GENERATE(RouterCase{6, 2}, RouterCase{128, 8}, RouterCase{40, 3, 4, 2}, RouterCase{300, 12, 100, 7});
  const auto score = GENERATE(RouterScore::kSoftmax, RouterScore::kSigmoid);
  const bool normalized = GENERATE(true, false);
  Router r{score, shape.num_experts, shape.k, shape.groups, shape.groups_chosen, normalized, 1.5f};
  const int64_t T = 9, E = r.num_experts, k = r.k;
  auto logits = random_values<TestType>(T * E, 1);
  std::fill_n(logits.begin(), E, TestType{});  // all alike: the first ones
  const auto bias = random_values<TestType>(E, 2, 0.1f), before = random_values<TestType>(T * E, 3);
  const auto dweights = random_values<float>(T * k, 4);
  const bool has_bias = score == RouterScore::kSigmoid;
  std::vector<float> weights(static_cast<size_t>(T * k));
  std::vector<int64_t> choice(T * k);
  std::vector<TestType> dlogits(T * E), added(T * E), above(E, TestType{}), above2 = above;
  cpu::route<TestType>(logits.data(), has_bias ? bias.data() : nullptr, weights.data(), choice.data(), T, r);
  cpu::route_backward<TestType>(dweights.data(), logits.data(), choice.data(), nullptr, dlogits.data(), T, r);
  cpu::route_backward<TestType>(dweights.data(), logits.data(), choice.data(), before.data(), added.data(), T, r);
  cpu::count_above_share<TestType>(choice.data(), above.data(), T * k, E, true);
  same_in_both_orders([&] {
    std::vector<float> weights2(weights.size());
    std::vector<int64_t> choice2(choice.size());
    std::vector<TestType> dlogits2(dlogits.size()), added2 = before;
    cuda::route(kElement<TestType>, logits.data(), has_bias ? bias.data() : nullptr, weights2.data(), choice2.data(), T, r, nullptr);
    CHECK(choice2 == choice);
    CHECK(difference(weights2, weights) < 3e-6);
    cuda::route_backward(kElement<TestType>, dweights.data(), logits.data(), choice.data(), nullptr, dlogits2.data(), T, r, nullptr);
    CHECK(difference(dlogits2, dlogits) < kClose<TestType>);
    cuda::route_backward(kElement<TestType>, dweights.data(), logits.data(), choice.data(), added2.data(), added2.data(), T, r,
                         nullptr);
    CHECK(difference(added2, added) < kClose<TestType>);
    above2.assign(above2.size(), TestType{});
    cuda::count_above_share(kElement<TestType>, choice.data(), above2.data(), T * k, E, true, nullptr);
    CHECK(difference(above2, above) < kClose<TestType>);
    return bytes_of(weights2, choice2, dlogits2, added2, above2);
  });
}

TEMPLATE_TEST_CASE("cuda: rows of experts, there and back", "[cuda_kernels][experts][all]", float, Bf16) {
  const Sizes of = GENERATE(Sizes{5, 4, 1}, Sizes{60, 6, 2}, Sizes{700, 9, 3}, Sizes{3, 70, 60});
  const int64_t T = of.T, num_experts = of.num_experts, k = of.k, N = T * k, H = GENERATE(5, 64);
  const std::vector<int64_t> choice = random_choice(T, num_experts, k, 3);
  std::vector<int64_t> order(N), place(N), starts(num_experts + 1), order2(N), place2(N), starts2(num_experts + 1);
  cpu::sort_experts(choice.data(), order.data(), place.data(), starts.data(), N, num_experts, N, N);
  const auto x = random_values<TestType>(T * H, 1), rows = random_values<TestType>(N * H, 2),
             addend = random_values<TestType>(T * H, 3);
  std::vector<TestType> y(N * H), back(T * H), added(T * H);
  cpu::permute<TestType>(x.data(), order.data(), y.data(), 0, N, H, k);
  cpu::unpermute<TestType>(rows.data(), place.data(), nullptr, back.data(), 0, T, H, k);
  cpu::unpermute<TestType>(rows.data(), place.data(), addend.data(), added.data(), 0, T, H, k);
  same_in_both_orders([&] {
    cuda::sort_experts(choice.data(), order2.data(), place2.data(), starts2.data(), N, num_experts, N, N, nullptr);
    CHECK(order2 == order);
    CHECK(place2 == place);
    CHECK(starts2 == starts);
    std::vector<TestType> y2(y.size()), back2(back.size()), added2 = addend;
    cuda::permute(kElement<TestType>, x.data(), order.data(), y2.data(), N, H, k, nullptr);
    cuda::unpermute(kElement<TestType>, rows.data(), place.data(), nullptr, back2.data(), T, H, k, nullptr);
    cuda::unpermute(kElement<TestType>, rows.data(), place.data(), added2.data(), added2.data(), T, H, k, nullptr);
    CHECK(bytes_of(y2) == bytes_of(y));
    CHECK(bytes_of(back2) == bytes_of(back));
    CHECK(bytes_of(added2) == bytes_of(added));
    std::vector<int32_t> ends(static_cast<size_t>(num_experts));
    cuda::to_int32(starts.data() + 1, 1, ends.data(), num_experts, nullptr);
    for (int64_t e = 0; e < num_experts; ++e) CHECK(ends[size_t(e)] == starts[size_t(e) + 1] - 1);
    std::vector<TestType> g = random_values<TestType>(num_experts * 40, 9), cleared = g;
    for (int64_t e = 0; e < num_experts; ++e)
      if (starts[size_t(e)] == starts[size_t(e) + 1]) std::fill_n(cleared.begin() + e * 40, 40, TestType{});
    cuda::clear_idle(kElement<TestType>, starts.data(), g.data(), 40, num_experts, nullptr);
    CHECK(bytes_of(g) == bytes_of(cleared));
    return bytes_of(order2, place2, starts2, y2, back2, added2);
  });
}

TEMPLATE_TEST_CASE("cuda: rows of experts with a capacity", "[cuda_kernels][experts][all]", float, Bf16) {
  const Sizes of = GENERATE(Sizes{5, 4, 1}, Sizes{60, 6, 2}, Sizes{700, 9, 3}, Sizes{3, 70, 60});
  const double capacity = GENERATE(0.3, 1.0);
  const int64_t T = of.T, num_experts = of.num_experts, k = of.k, N = T * k, H = GENERATE(5, 64);
  const int64_t most = capacity_rows(capacity, N, num_experts), R = sorted_rows(capacity, N, num_experts);
  const std::vector<int64_t> choice = random_choice(T, num_experts, k, 3);
  std::vector<int64_t> order(R), place(N), starts(num_experts + 1);
  cpu::sort_experts(choice.data(), order.data(), place.data(), starts.data(), N, num_experts, most, R);
  const auto x = random_values<TestType>(T * H, 1), rows = random_values<TestType>(R * H, 2);
  const auto weights = random_values<float>(N, 4);
  std::vector<TestType> y(R * H), back(T * H);
  cpu::permute<TestType>(x.data(), order.data(), y.data(), 0, R, H, k);
  cpu::unpermute<TestType>(rows.data(), place.data(), nullptr, back.data(), 0, T, H, k);
  same_in_both_orders([&] {
    std::vector<int64_t> order2(R, 7), place2(N), starts2(num_experts + 1);
    cuda::sort_experts(choice.data(), order2.data(), place2.data(), starts2.data(), N, num_experts, most, R, nullptr);
    CHECK(order2 == order);
    CHECK(place2 == place);
    CHECK(starts2 == starts);
    std::vector<TestType> y2(y.size()), back2(back.size());
    cuda::permute(kElement<TestType>, x.data(), order.data(), y2.data(), R, H, k, nullptr);
    cuda::unpermute(kElement<TestType>, rows.data(), place.data(), nullptr, back2.data(), T, H, k, nullptr);
    CHECK(bytes_of(y2) == bytes_of(y));
    CHECK(bytes_of(back2) == bytes_of(back));
    std::vector<float> sent(size_t(R), 9.0f), returned(size_t(N), 0.0f);
    cuda::sort_weights(weights.data(), order.data(), sent.data(), R, nullptr);
    cuda::unsort_weights(sent.data(), order.data(), returned.data(), R, nullptr);
    for (int64_t i = 0; i < N; ++i) CHECK(returned[size_t(i)] == (place[size_t(i)] < 0 ? 0.0f : weights[size_t(i)]));
    return bytes_of(order2, place2, starts2, y2, back2, returned);
  });
}

template <Activation kF, class E>
void gate(const E* gu, E* m, int64_t F) {
  if constexpr (kF == Activation::kSilu)
    cpu::swiglu<E>(gu, m, 1, F);
  else
    cpu::gated_activation<kF, E>(gu, m, 1, F);
}
template <Activation kF, class E>
void gate_backward(const E* dm, const E* gu, E* dgu, int64_t F) {
  if constexpr (kF == Activation::kSilu)
    cpu::swiglu_backward<E>(dm, gu, dgu, 1, F);
  else
    cpu::gated_activation_backward<kF, E>(dm, gu, dgu, 1, F);
}
template <Activation kF, class E>
void check_weighted(int64_t F) {
  const int64_t T = 3, k = 2, N = T * k;
  const std::vector<int64_t> order = {4, 1, 0, 5, 2, 3};
  const auto gu = random_values<E>(N * 2 * F, 1), dm = random_values<E>(N * F, 2);
  const auto weights = random_values<float>(N, 3);
  std::vector<E> m(N * F), dgu(N * 2 * F), row(F);
  std::vector<float> dweights(N);
  for (int64_t i = 0; i < N; ++i) {
    const float weight = weights[size_t(order[size_t(i)])];
    gate<kF, E>(gu.data() + i * 2 * F, row.data(), F);
    dweights[size_t(order[size_t(i)])] = cpu::dot<E>(dm.data() + i * F, row.data(), F);
    cpu::scale_row<E>(row.data(), weight, m.data() + i * F, F);
    cpu::scale_row<E>(dm.data() + i * F, weight, row.data(), F);
    gate_backward<kF, E>(row.data(), gu.data() + i * 2 * F, dgu.data() + i * 2 * F, F);
  }
  same_in_both_orders([&] {
    std::vector<E> m2(m.size()), dgu2 = gu;  // over its input
    std::vector<float> dweights2(dweights.size());
    cuda::gated_weighted(kElement<E>, kF, gu.data(), weights.data(), {order.data()}, m2.data(), N, F, nullptr);
    cuda::gated_weighted_backward(kElement<E>, kF, dm.data(), dgu2.data(), weights.data(), {order.data()}, dgu2.data(),
                                  dweights2.data(), N, F, nullptr);
    CHECK(difference(m2, m) < kClose<E>);
    CHECK(difference(dgu2, dgu) < kClose<E>);
    CHECK(difference(dweights2, dweights) < 1e-2 * kClose<float> + kClose<E>);
    // The same rows, with weights in their order, and a last one that is none.
    const std::vector<int64_t> num_rows = {N - 1};
    std::vector<float> sorted(weights.size()), back(weights.size()), dsorted(weights.size(), 7.0f);
    cuda::sort_weights(weights.data(), order.data(), sorted.data(), N, nullptr);
    cuda::unsort_weights(sorted.data(), order.data(), back.data(), N, nullptr);
    CHECK(back == weights);
    std::vector<E> m3(m.size(), E{}), dgu3 = gu, m4 = m2, dgu4 = dgu2;
    cuda::gated_weighted(kElement<E>, kF, gu.data(), sorted.data(), {nullptr, num_rows.data()}, m3.data(), N, F, nullptr);
    cuda::gated_weighted_backward(kElement<E>, kF, dm.data(), dgu3.data(), sorted.data(), {nullptr, num_rows.data()}, dgu3.data(),
                                  dsorted.data(), N, F, nullptr);
    std::fill(m4.end() - F, m4.end(), E{});
    std::copy(gu.end() - 2 * F, gu.end(), dgu4.end() - 2 * F);
    CHECK(bytes_of(m3, dgu3) == bytes_of(m4, dgu4));
    for (int64_t i = 0; i < N; ++i) CHECK(dsorted[size_t(i)] == (i < N - 1 ? dweights2[size_t(order[size_t(i)])] : 7.0f));
    std::vector<int64_t> dropped = order;  // a last row that no choice has
    dropped.back() = -1;
    std::vector<E> m5(m.size(), E{}), dgu5 = gu;
    std::vector<float> dweights5(weights.size(), 7.0f);
    cuda::gated_weighted(kElement<E>, kF, gu.data(), weights.data(), {dropped.data()}, m5.data(), N, F, nullptr);
    cuda::gated_weighted_backward(kElement<E>, kF, dm.data(), dgu5.data(), weights.data(), {dropped.data()}, dgu5.data(),
                                  dweights5.data(), N, F, nullptr);
    CHECK(bytes_of(m5, dgu5) == bytes_of(m4, dgu4));
    CHECK(dweights5[size_t(order.back())] == 7.0f);
    return bytes_of(m2, dgu2, dweights2);
  });
}
TEMPLATE_TEST_CASE("cuda: activations of experts' rows times their weights", "[cuda_kernels][experts]", float, Bf16) {
  const int64_t F = GENERATE(13, 96, 2064);
  check_weighted<Activation::kSilu, TestType>(F);
  check_weighted<Activation::kGelu, TestType>(F);
  check_weighted<Activation::kGeluTanh, TestType>(F);
}

TEST_CASE("cuda: where rows of a rank's experts begin, among those that come from all", "[cuda_kernels][experts]") {
  // Two ranks, four experts: rows 3 1 0 2 of the first, 0 2 5 1 of the second.
  const std::vector<int64_t> all = {0, 3, 4, 4, 6, 0, 0, 2, 7, 8};
  std::vector<int64_t> first(3), second(3);
  cuda::own_starts(all.data(), first.data(), 2, 4, 0, 2, nullptr);
  cuda::own_starts(all.data(), second.data(), 2, 4, 2, 2, nullptr);
  CHECK(first == std::vector<int64_t>{0, 3, 6});
  CHECK(second == std::vector<int64_t>{0, 5, 8});
}

TEMPLATE_TEST_CASE("cuda: rows times a sigmoid of their own", "[cuda_kernels][experts]", float, Bf16) {
  const int64_t T = 5, F = GENERATE(7, 300);
  const auto m = random_values<TestType>(T * F, 1), s = random_values<TestType>(T, 2), d = random_values<TestType>(T * F, 3);
  std::vector<TestType> y(m.size()), dm(m.size()), ds(s.size());
  for (int64_t t = 0; t < T; ++t) {
    const float factor = 1.0f / (1.0f + std::exp(-to_float(s[size_t(t)])));
    cpu::scale_row<TestType>(m.data() + t * F, factor, y.data() + t * F, F);
    cpu::scale_row<TestType>(d.data() + t * F, factor, dm.data() + t * F, F);
    from_float(cpu::dot<TestType>(d.data() + t * F, m.data() + t * F, F) * factor * (1 - factor), &ds[size_t(t)]);
  }
  same_in_both_orders([&] {
    std::vector<TestType> y2 = m, dm2 = d, ds2(ds.size());
    cuda::sigmoid_rows(kElement<TestType>, y2.data(), s.data(), y2.data(), T, F, nullptr);
    cuda::sigmoid_rows_backward(kElement<TestType>, dm2.data(), m.data(), s.data(), dm2.data(), ds2.data(), T, F, nullptr);
    CHECK(difference(y2, y) < kClose<TestType>);
    CHECK(difference(dm2, dm) < kClose<TestType>);
    CHECK(difference(ds2, ds) < 2 * kClose<TestType>);
    return bytes_of(y2, dm2, ds2);
  });
}

TEMPLATE_TEST_CASE("cuda: the load-balancing loss and its gradient", "[cuda_kernels][experts]", float, Bf16) {
  const Sizes of = GENERATE(Sizes{5, 6, 2}, Sizes{50, 300, 8});
  const int64_t T = of.T, E = of.num_experts, k = of.k;
  const auto logits = random_values<TestType>(T * E, 1), before = random_values<TestType>(T * E, 2);
  const std::vector<int64_t> choice = random_choice(T, E, k, 5);
  const double scale = 0.25, factor = 0.01;
  std::vector<double> sums(2 * E, 0.0);
  for (int layer = 0; layer < 2; ++layer) cpu::count_routes<TestType>(logits.data(), choice.data(), sums.data(), T, E, k);
  const double loss = 3 + cpu::balance_loss(sums.data(), E, k, factor * scale);
  std::vector<TestType> alone(T * E), added(T * E);
  cpu::balance_backward<TestType>(logits.data(), sums.data(), nullptr, alone.data(), T, E, k, factor * scale);
  cpu::balance_backward<TestType>(logits.data(), sums.data(), before.data(), added.data(), T, E, k, factor * scale);
  same_in_both_orders([&] {
    std::vector<double> sums2(2 * E, 0.0), loss2 = {3};
    for (int layer = 0; layer < 2; ++layer)
      cuda::count_routes(kElement<TestType>, logits.data(), choice.data(), sums2.data(), T, E, k, nullptr);
    for (int64_t e = 0; e < 2 * E; ++e) CHECK(sums2[size_t(e)] == Approx(sums[size_t(e)]).epsilon(1e-6));
    const std::vector<double> all = {1, 2, 3, 4, 50, 60, 70, 80};
    std::vector<double> of_both(4);
    cuda::sum_routes(all.data(), of_both.data(), 2, 2, nullptr);
    CHECK(of_both == std::vector<double>{51, 62, 73, 84});
    cuda::balance_loss(sums2.data(), &scale, loss2.data(), E, k, factor, nullptr);
    CHECK(loss2[0] == Approx(loss).epsilon(1e-9));
    std::vector<TestType> alone2(alone.size()), added2 = before;
    cuda::balance_backward(kElement<TestType>, logits.data(), sums.data(), &scale, nullptr, alone2.data(), T, E, k, factor, nullptr);
    cuda::balance_backward(kElement<TestType>, logits.data(), sums.data(), &scale, added2.data(), added2.data(), T, E, k, factor,
                           nullptr);
    CHECK(difference(alone2, alone) < 2 * kClose<TestType>);
    CHECK(difference(added2, added) < kClose<TestType>);
    return bytes_of(sums2, loss2, alone2, added2);
  });
}

TEMPLATE_TEST_CASE("cuda: the z-loss of a router and its gradient", "[cuda_kernels][experts]", float, Bf16) {
  const Sizes of = GENERATE(Sizes{5, 6, 2}, Sizes{50, 300, 8});
  const int64_t T = of.T, E = of.num_experts;
  const auto logits = random_values<TestType>(T * E, 1), before = random_values<TestType>(T * E, 2);
  const double scale = 0.25, factor = 0.1;
  const double loss = 3 + cpu::router_z_loss<TestType>(logits.data(), T, E, factor * scale);
  std::vector<TestType> alone(T * E), added(T * E);
  cpu::router_z_loss_backward<TestType>(logits.data(), nullptr, alone.data(), T, E, T, factor * scale);
  cpu::router_z_loss_backward<TestType>(logits.data(), before.data(), added.data(), T, E, T, factor * scale);
  same_in_both_orders([&] {
    std::vector<double> loss2 = {3};
    cuda::router_z_loss(kElement<TestType>, logits.data(), &scale, loss2.data(), T, E, factor, nullptr);
    CHECK(loss2[0] == Approx(loss).epsilon(1e-6));
    std::vector<TestType> alone2(alone.size()), added2 = before;
    cuda::router_z_loss_backward(kElement<TestType>, logits.data(), &scale, nullptr, alone2.data(), T, E, factor, nullptr);
    cuda::router_z_loss_backward(kElement<TestType>, logits.data(), &scale, added2.data(), added2.data(), T, E, factor, nullptr);
    CHECK(difference(alone2, alone) < 2 * kClose<TestType>);
    CHECK(difference(added2, added) < kClose<TestType>);
    return bytes_of(loss2, alone2, added2);
  });
}

}  // namespace
}  // namespace distsetup
