// The CUDA kernels of preference pairs, run on the CPU, against the CPU's ops: through the same calls, on the same numbers.
#include <algorithm>
#include <vector>

#include "plan/preference_loss.h"
#include "runtime/engine/ops_preference.h"
#include "runtime/kernels/cpu/kernels.h"
#include "runtime/kernels/cuda/kernels.h"
#include "runtime/values.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

struct PairCase {
  int64_t B, rows, V;
  int ranks;
  PairLoss loss;
  const char* kernel;
};

std::vector<float> floats(const std::vector<double>& numbers) { return {numbers.begin(), numbers.end()}; }

TEST_CASE("cuda: preference pairs as on the CPU", "[cuda_kernels]") {
  const PairCase s = GENERATE(PairCase{2, 5, 7, 1, PairLoss::kSigmoid, "dpo_sigmoid"},
                              PairCase{4, 300, 9, 2, PairLoss::kHinge, "dpo_hinge"}, PairCase{6, 3, 40, 1, PairLoss::kIpo, "dpo_ipo"});
  const int64_t T = s.B * s.rows;
  INFO(s.kernel);
  OpContext context;
  context.T = T, context.S = s.rows, context.B = s.B, context.cp = s.ranks;
  OpAttributes attributes;
  attributes.beta = 0.2, attributes.label_smoothing = s.loss == PairLoss::kSigmoid ? 0.1 : 0;
  std::vector<float> z = random_values<float>(T * s.V, 1), stats(static_cast<size_t>(T * kLossStats));
  std::vector<int64_t> target;
  for (int64_t t = 0; t < T; ++t)
    target.push_back(t % 4 == 2 || t / s.rows >= s.B - 2 * (s.B > 4) ? -1 : t * 7 % s.V);  // the last pair fills up
  cpu::cross_entropy_local(z.data(), target.data(), stats.data(), T, s.V, {0, s.V}, {});
  struct Found {
    std::vector<double> logps, coefficients, numbers;
    std::vector<float> policy, dz, reference;
  };
  const auto empty = [&] {
    return Found{std::vector<double>(static_cast<size_t>(s.ranks * s.B * 2)),
                 std::vector<double>(static_cast<size_t>(s.B)),
                 std::vector<double>(kNumPreferenceNumbers, 0.5),
                 std::vector<float>(static_cast<size_t>(s.B)),
                 z,
                 std::vector<float>(static_cast<size_t>(s.B))};
  };
  std::vector<float> reference;
  for (int64_t b = 0; b < s.B; ++b) reference.push_back(-2.0f * float(s.ranks * s.rows) - float(b % 3));
  double scale = 0.25;
  Found cpu = empty(), gpu = empty();
  const auto call = [&](const char* kernel, std::vector<Argument> reads, std::vector<Argument> writes) {
    Call c;
    c.reads = std::move(reads), c.writes = std::move(writes), c.context = &context, c.attributes = &attributes;
    REQUIRE(bind_preference_op(kernel, c));
    c.function(c);
  };
  const Argument targets = {target.data(), {T}, Dtype::kI64}, all_stats = {stats.data(), {T, kLossStats}, Dtype::kF32};
  call("sequence_logps", {targets, all_stats}, {{cpu.logps.data(), {s.B, 2}, Dtype::kF64}});
  cuda::sequence_logps(target.data(), stats.data(), 1, gpu.logps.data(), T, s.B, nullptr);
  for (Found* found : {&cpu, &gpu})
    for (size_t i = size_t(2 * s.B); i < found->logps.size(); ++i)
      found->logps[i] = found->logps[i - size_t(2 * s.B)];  // another rank's rows
  call(s.kernel,
       {{cpu.logps.data(), {s.ranks * s.B, 2}, Dtype::kF64},
        {reference.data(), {s.B}, Dtype::kF32},
        {&scale, {1}, Dtype::kF64},
        {cpu.numbers.data(), {kNumPreferenceNumbers}, Dtype::kF64}},
       {{cpu.coefficients.data(), {s.B}, Dtype::kF64},
        {cpu.numbers.data(), {kNumPreferenceNumbers}, Dtype::kF64},
        {cpu.policy.data(), {s.B}, Dtype::kF32}});
  cuda::preference(gpu.logps.data(), reference.data(), &scale, {s.loss, attributes.beta, attributes.label_smoothing}, s.B, s.ranks,
                   true, gpu.coefficients.data(), gpu.numbers.data(), gpu.policy.data(), nullptr);
  call("logits_gradient", {{z.data(), {T, s.V}, Dtype::kF32}, targets, all_stats, {cpu.coefficients.data(), {s.B}, Dtype::kF64}},
       {{cpu.dz.data(), {T, s.V}, Dtype::kF32}});
  cuda::logits_gradient(cuda::Element::kF32, gpu.dz.data(), target.data(), stats.data(), 1, gpu.coefficients.data(), s.B,
                        gpu.dz.data(), T, s.V, {0, s.V}, {}, nullptr);
  call("reference_logps", {{cpu.logps.data(), {s.ranks * s.B, 2}, Dtype::kF64}}, {{cpu.reference.data(), {s.B}, Dtype::kF32}});
  cuda::reference_logps(gpu.logps.data(), s.B, s.ranks, gpu.reference.data(), nullptr);
  CHECK(cpu.reference == cpu.policy);
  CHECK(difference(gpu.reference, cpu.reference) < 1e-6);
  CHECK(difference(floats(gpu.logps), floats(cpu.logps)) < 1e-6);
  CHECK(difference(floats(gpu.coefficients), floats(cpu.coefficients)) < 1e-5);
  CHECK(difference(floats(gpu.numbers), floats(cpu.numbers)) < 1e-5);
  CHECK(difference(gpu.policy, cpu.policy) < 1e-6);
  CHECK(difference(gpu.dz, cpu.dz) < 1e-5);
  CHECK(std::any_of(cpu.dz.begin(), cpu.dz.end(), [](float v) { return v != 0; }));
}

}  // namespace
}  // namespace distsetup
