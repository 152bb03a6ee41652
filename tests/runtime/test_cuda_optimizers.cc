// The CUDA kernels of optimizers, run on the CPU (tests/support/cuda_emulation.h), against what the CPU does.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "plan/optimizer.h"
#include "runtime/engine/ops.h"
#include "runtime/optim/block_codes.h"
#include "runtime/optim/own_optimizers.h"
#include "runtime/values.h"
#include "support/cuda_emulation.h"

#include "runtime/kernels/cuda/kernels_optimizer.cu"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

struct Moment {
  std::vector<uint8_t> codes;
  std::vector<float> scales;
  explicit Moment(int64_t n) : codes(size_t(n)), scales(size_t((n + kScaleBlock - 1) / kScaleBlock)) {}
  bool operator==(const Moment&) const = default;
};
struct State {
  std::vector<float> parameters;
  Moment first, second;
  bool operator==(const State&) const = default;
};

// Three steps by `update`.
template <class Update>
State after_steps(int64_t n, const std::vector<UpdateRange>& ranges, const Update& update) {
  State s = {random_values<float>(n, 1), Moment(n), Moment(n)};
  for (int step = 1; step <= 3; ++step) {
    const std::vector<float> gradients = random_values<float>(n, 1 + step);
    AdamW8bitUpdate u;
    u.parameters = s.parameters.data();
    u.gradients = gradients.data();
    u.first = {s.first.codes.data(), s.first.scales.data(), code_values(true).data()};
    u.second = {s.second.codes.data(), s.second.scales.data(), code_values(false).data()};
    u.n = n;
    u.ranges = ranges.data();
    u.num_ranges = int64_t(ranges.size());
    u.clip = 0.5f, u.keep = 0.75f, u.rate = 0.125f, u.correction2 = 0.5f, u.epsilon = 1e-8f;
    u.beta1 = 0.875f, u.rest1 = 0.125f, u.beta2 = 0.9375f, u.rest2 = 0.0625f;
    update(u);
  }
  return s;
}

TEST_CASE("cuda: 8-bit AdamW has the CPU's codes, over more ranges than a launch takes", "[cuda_kernels]") {
  const int64_t n = GENERATE(5, 256, 3000, 20011);
  std::vector<UpdateRange> ranges;
  for (int64_t begin = 0; begin + 3 < n; begin += 100 + begin % 37) ranges.push_back({begin, std::min(n, begin + 90), begin % 3 == 0});
  INFO(n << " elements, " << ranges.size() << " ranges");
  const State expected = after_steps(n, ranges, update_adamw_8bit_on_host);
  CHECK(std::count(expected.parameters.begin(), expected.parameters.end(), 0.0f) < n);
  for (const bool reversed : {false, true}) {
    cuda_emulation::reversed = reversed;
    const State found = after_steps(n, ranges, [](const AdamW8bitUpdate& u) { cuda::adamw_8bit(u, nullptr); });
    CHECK(found == expected);
  }
  cuda_emulation::reversed = false;
}

TEST_CASE("cuda: more ranges in one block than a launch takes are refused", "[cuda_kernels]") {
  std::vector<UpdateRange> ranges;
  for (int64_t begin = 0; begin < 256; begin += 4) ranges.push_back({begin, begin + 2, true});
  const auto run = [](const AdamW8bitUpdate& u) { cuda::adamw_8bit(u, nullptr); };
  CHECK_THROWS_WITH(after_steps(256, ranges, run), Catch::Contains("more ranges"));
}

TEST_CASE("cuda: Lion moves as on the CPU", "[cuda_kernels]") {
  const int64_t n = GENERATE(1, 255, 5000);
  const std::vector<float> gradients = random_values<float>(n, 1);
  std::vector<float> p = random_values<float>(n, 2), m = random_values<float>(n, 3), p2 = p, m2 = m;
  LionUpdate u;
  u.gradients = gradients.data();
  u.n = n;
  u.clip = 0.5f, u.keep = 0.75f, u.rate = 0.125f, u.beta1 = 0.875f, u.rest1 = 0.125f, u.beta2 = 0.9375f, u.rest2 = 0.0625f;
  u.parameters = p.data(), u.moments = m.data();
  update_lion_on_host(u);
  u.parameters = p2.data(), u.moments = m2.data();
  cuda::lion(u, nullptr);
  CHECK(p2 == p);
  CHECK(m2 == m);
  CHECK(p != random_values<float>(n, 2));
}

TEST_CASE("cuda: AdamW, from any element on", "[cuda_kernels]") {
  const int64_t n = GENERATE(1, 5, 1027, 40000), first = GENERATE(0, 1);
  const auto p0 = random_values<float>(n + first, 1), g = random_values<float>(n + first, 2), m0 = random_values<float>(n + first, 3);
  std::vector<float> v0 = random_values<float>(n + first, 4);
  for (float& v : v0) v *= v;
  AdamWUpdate u;
  u.n = n;
  u.clip = 0.5f, u.keep = 0.99f, u.rate = 0.125f, u.correction2 = 0.75f, u.epsilon = 1e-8f, u.rest1 = 0.1f, u.rest2 = 0.05f;
  u.gradients = g.data() + first;
  std::vector<float> p = p0, m = m0, v = v0, p2 = p0, m2 = m0, v2 = v0;
  u.parameters = p.data() + first, u.first = m.data() + first, u.second = v.data() + first;
  update_adamw_on_host(u);
  u.parameters = p2.data() + first, u.first = m2.data() + first, u.second = v2.data() + first;
  cuda::adamw(u, nullptr);
  CHECK(difference(p2, p) < 1e-6);
  CHECK(difference(m2, m) < 1e-6);
  CHECK(difference(v2, v) < 1e-6);
  CHECK(difference(p, p0) > 1e-3);
}

}  // namespace
}  // namespace distsetup
