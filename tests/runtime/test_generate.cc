// Generating: what a decoder reads token by token against whole sequences through the engine; choosing a token.
#include <cmath>
#include <map>
#include <vector>

#include "runtime/comm/gloo.h"
#include "runtime/family_cases.h"
#include "runtime/generate/decoder.h"
#include "runtime/generate/next_token.h"
#include "runtime/kernels/cpu/bf16.h"
#include "runtime/tiny.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

constexpr int64_t kTokens = 45;  // one stretch of Decoder::kPromptRows and some single ones

// The logits of every row, in fp32, as the loss sees them.
std::vector<float> rows_of(const Call& loss) {
  const Argument& z = loss.reads[0];
  std::vector<float> out(static_cast<size_t>(numel(z)));
  for (size_t i = 0; i < out.size(); ++i) {
    const float raw = z.dtype == Dtype::kBf16 ? to_float(static_cast<const Bf16*>(z.data)[i]) : static_cast<const float*>(z.data)[i];
    const double value = static_cast<double>(raw) * loss.attributes->multiplier, cap = loss.attributes->soft_cap;
    out[i] = static_cast<float>(cap > 0 ? cap * std::tanh(value / cap) : value);
  }
  return out;
}

void check_decoder(Geometry geometry, Dtype precision, double tolerance) {
  if (geometry.learned_positions > 0) geometry.learned_positions = 2 * kTokens;
  tiny::TinyOptions options;
  options.geometry = geometry;
  options.global_batch = 1;
  options.sequence_length = kTokens;
  options.precision = precision;
  const Plan plan = tiny::tiny_plan(options);
  const auto device = make_cpu_device();
  const auto communicator = make_self_communicator(plan.mesh);
  std::vector<float> expected;
  EngineOptions watching;
  watching.watch = [&](const Step& step, const Call& call) {
    if (step.kernel == "cross_entropy") expected = rows_of(call);
  };
  Engine engine(plan, *device, *communicator, watching);
  engine.initialize_parameters();
  for (size_t i = 0; i < engine.master().size(); ++i) engine.master()[i] *= 5;  // so that logits differ from each other
  engine.load();
  std::vector<int64_t> ids, targets(kTokens, 1);
  for (int64_t i = 0; i < kTokens; ++i) ids.push_back((7 * i * i + 3 * i + 1) % geometry.vocabulary);
  engine.evaluate({ids, targets, kTokens});

  Decoder decoder(plan, kTokens);
  const ShardState state = decoder.state();
  REQUIRE(state.master.size() == engine.master().size());
  std::copy(engine.master().begin(), engine.master().end(), state.master.begin());
  decoder.load();
  const auto check = [&](std::span<const int64_t> read, int64_t last) {
    const std::span<const float> logits = decoder.read(read);
    REQUIRE(logits.size() == static_cast<size_t>(geometry.vocabulary));
    double furthest = 0, largest = 0;
    for (int64_t v = 0; v < geometry.vocabulary; ++v) {
      const double want = static_cast<double>(expected[static_cast<size_t>(last * geometry.vocabulary + v)]);
      furthest = std::max(furthest, std::fabs(static_cast<double>(logits[static_cast<size_t>(v)]) - want));
      largest = std::max(largest, std::fabs(want));
    }
    INFO("row " << last << " largest " << largest);
    CHECK(furthest <= tolerance * std::max(1.0, largest));
  };
  const std::span<const int64_t> all = ids;
  check(all.first(3), 2);
  check(all.subspan(3, 35), 37);  // 32 at once, then 3
  for (int64_t t = 38; t < kTokens; ++t) check(all.subspan(static_cast<size_t>(t), 1), t);
  CHECK(decoder.num_tokens() == kTokens);
}

TEST_CASE("generate: reading token by token is reading the whole sequence, for every family", "[generate]") {
  check_decoder(tiny::odd_geometry(), Dtype::kF32, 1e-4);
  for (const tiny::FamilyCase& family : tiny::families()) {
    INFO(family.name);
    check_decoder(family.geometry, Dtype::kF32, 1e-4);
  }
}

TEST_CASE("generate: the same in bf16", "[generate]") { check_decoder(tiny::of("llama"), Dtype::kBf16, 3e-2); }

TEST_CASE("generate: a token is chosen by temperature, top_k and top_p", "[generate]") {
  const std::vector<float> logits = {1, 3, 2, -1, 3};
  std::mt19937_64 random(1);
  CHECK(next_token(logits, {}, random) == 1);  // the first of the likeliest
  const auto shares = [&](const Sampling& sampling) {
    std::map<int64_t, double> counts;
    for (int i = 0; i < 20000; ++i) counts[next_token(logits, sampling, random)] += 1.0 / 20000;
    return counts;
  };
  const double sum = std::exp(1.0) + 2 * std::exp(3.0) + std::exp(2.0) + std::exp(-1.0);
  std::map<int64_t, double> found = shares({1, 0, 1});
  CHECK(found[1] == Approx(std::exp(3.0) / sum).margin(0.02));
  CHECK(found[2] == Approx(std::exp(2.0) / sum).margin(0.02));
  CHECK(found[0] == Approx(std::exp(1.0) / sum).margin(0.02));
  found = shares({0.5, 3, 1});
  CHECK(found.size() == 3);
  CHECK(found[2] == Approx(std::exp(4.0) / (2 * std::exp(6.0) + std::exp(4.0))).margin(0.02));
  CHECK(shares({1, 0, 0.5}).size() == 2);
  CHECK(shares({1, 0, 0.1}).size() == 1);
  const std::vector<float> broken = {1, std::nanf(""), 2};
  CHECK_THROWS_AS(next_token(broken, {}, random), std::domain_error);
}

}  // namespace
}  // namespace distsetup
