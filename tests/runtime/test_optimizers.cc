// Optimizers beside AdamW: against plain loops, bitsandbytes' numbers and, resumed, against themselves.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <sstream>

#include "plan/layout_ranges.h"
#include "plan/optimizer.h"
#include "runtime/device/cpu_device.h"
#include "runtime/optim/block_codes.h"
#include "runtime/optim/optimizer.h"

namespace distsetup {
namespace {

// A shard with a buffer for whatever an optimizer keeps.
struct Shard {
  TrainPlan train;
  std::vector<float> master, gradient;
  std::map<std::string, std::vector<char>> buffers;
  std::unique_ptr<Device> device = make_cpu_device();
  std::unique_ptr<Optimizer> optimizer;

  Shard(TrainPlan of, const std::vector<DecayRange>& ranges, size_t numel) : train(std::move(of)), master(numel), gradient(numel) {
    for (const OptimizerBuffer& b : optimizer_buffers(train, int64_t(numel)))
      buffers[b.name].assign(size_t(b.numel * size_bytes(b.dtype)), 0);
    const OptimizerMemory memory = {master.data(), gradient.data(),
                                    [this](const std::string& name) { return buffers.at(name).data(); }, int64_t(numel)};
    optimizer = make_optimizer(train, ranges, memory, *device);
  }
  float* state(const char* name) { return reinterpret_cast<float*>(buffers.at(name).data()); }
  const uint8_t* codes(const char* name) { return reinterpret_cast<const uint8_t*>(buffers.at(name).data()); }
};

TrainPlan train_with(const std::string& optimizer) {
  TrainPlan train;
  train.optimizer = optimizer;
  return train;
}

const std::vector<DecayRange> kRanges = {{0, 3, false}, {3, 10, true}, {12, 15, true}};  // 10, 11: of nobody
constexpr size_t kNumel = 15;

// Five steps beside `update(i, gradient, decay, rate)`, which returns the parameter.
template <class Update>
void follow(Shard& shard, Update&& update) {
  std::vector<double> expected(kNumel);
  for (size_t i = 0; i < kNumel; ++i) expected[i] = shard.master[i] = float(std::sin(double(i)));
  constexpr double kClip = 0.5;
  for (int64_t step = 1; step <= 5; ++step) {
    const double rate = 1e-2 / double(step);
    for (size_t i = 0; i < kNumel; ++i) shard.gradient[i] = float(std::cos(double(i) + double(step)));
    const std::vector<float> gradient = shard.gradient;
    shard.optimizer->step(step, rate, kClip);
    for (const DecayRange& r : kRanges)
      for (auto i = size_t(r.begin); i < size_t(r.end); ++i)
        expected[i] = update(i, expected[i], double(gradient[i]) * kClip, r.decay ? shard.train.weight_decay : 0.0, rate);
  }
  for (size_t i = 0; i < kNumel; ++i) {
    INFO("element " << i);
    CHECK(shard.master[i] == Approx(expected[i]).epsilon(1e-5));
  }
}

TEST_CASE("SGD adds the decay to the gradient, and with momentum keeps a sum of gradients", "[optim]") {
  for (const double momentum : {0.0, 0.9}) {
    TrainPlan train = train_with("sgd");
    train.momentum = momentum;
    Shard shard(train, kRanges, kNumel);
    CHECK(shard.buffers.size() == (momentum == 0 ? 0 : 1));
    std::vector<double> sum(kNumel);
    follow(shard, [&](size_t i, double p, double g, double decay, double rate) {
      sum[i] = momentum * sum[i] + g + decay * p;
      return p - rate * sum[i];
    });
    if (momentum > 0) CHECK(shard.state("momentum_buffer")[10] == 0.0f);
  }
}

TEST_CASE("Lion moves by the sign of a mean, and updates its moment with the other rate", "[optim]") {
  TrainPlan train = train_with("lion");
  train.beta2 = 0.99;
  Shard shard(train, kRanges, kNumel);
  std::vector<double> moment(kNumel);
  follow(shard, [&](size_t i, double p, double g, double decay, double rate) {
    const double direction = train.beta1 * moment[i] + (1 - train.beta1) * g;
    moment[i] = train.beta2 * moment[i] + (1 - train.beta2) * g;
    return p * (1 - rate * decay) - rate * (direction > 0 ? 1 : -1);
  });
  CHECK(shard.state("exp_avg")[11] == 0.0f);
  for (float& g : shard.gradient) g = 0;
  for (float* m = shard.state("exp_avg"); m < shard.state("exp_avg") + kNumel; ++m) *m = 0;
  const std::vector<float> before = shard.master;
  shard.train.weight_decay = 0;
  shard.optimizer->step(6, 0.5, 1.0);
  for (const size_t i : {0, 1, 2}) CHECK(shard.master[i] == before[i]);  // a sign of nothing
}

std::vector<std::string> oracle_lines() {
  const char* source = std::getenv("DISTSETUP_SOURCE");
  REQUIRE(source != nullptr);
  std::ifstream file(std::string(source) + "/tests/data/adamw_8bit.txt");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::vector<float> floats_of(const std::string& line) {
  std::vector<float> out;
  std::istringstream words(line);
  for (std::string word; words >> word;) out.push_back(std::bit_cast<float>(uint32_t(std::stoul(word, nullptr, 16))));
  return out;
}

std::string hex(const uint8_t* bytes, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += fmt::format("{:02x}", bytes[i]);
  return out;
}

TEST_CASE("8-bit AdamW has the codes, scales and parameters of bitsandbytes", "[optim]") {
  const std::vector<std::string> lines = oracle_lines();
  constexpr size_t kSteps = 4, kLinesOfStep = 5, kElements = 512;
  REQUIRE(lines.size() == 2 + kSteps * kLinesOfStep);
  for (const bool is_signed : {true, false}) {
    const std::vector<float> expected = floats_of(lines[is_signed ? 0 : 1]);
    CHECK(std::equal(expected.begin(), expected.end(), code_values(is_signed).begin(), code_values(is_signed).end()));
  }
  Shard shard(train_with("adamw_8bit"), {{0, kElements, true}}, kElements);
  for (size_t i = 0; i < kElements; ++i) shard.master[i] = float(int64_t(i * 37 % 201) - 100) / 1024;
  for (size_t step = 1; step <= kSteps; ++step) {
    for (size_t i = 0; i < kElements; ++i) {
      shard.gradient[i] = float(int64_t((i * 7919 + step * 104729) % 2001) - 1000) / 4096;
      if (i < 256 / step) shard.gradient[i] /= 64;
    }
    shard.optimizer->step(int64_t(step), 0.01, 1.0);
    const std::string* of = &lines[2 + (step - 1) * kLinesOfStep];
    INFO("step " << step);
    CHECK(hex(shard.codes("exp_avg"), kElements) == of[0]);
    CHECK(hex(shard.codes("exp_avg_sq"), kElements) == of[2]);
    for (size_t b = 0; b < 2; ++b) {
      CHECK(shard.state("exp_avg_scales")[b] == Approx(floats_of(of[1])[b]).epsilon(1e-6));
      CHECK(shard.state("exp_avg_sq_scales")[b] == Approx(floats_of(of[3])[b]).epsilon(1e-6));
    }
    const std::vector<float> expected = floats_of(of[4]);
    for (size_t i = 0; i < kElements; ++i) REQUIRE(std::fabs(shard.master[i] - expected[i]) <= 2e-7f);
  }
}

TEST_CASE("8-bit AdamW leaves what no range has, across blocks and in a short last one", "[optim]") {
  constexpr int64_t kElements = 700;
  const std::vector<DecayRange> ranges = {{0, 250, true}, {260, 511, false}, {511, 600, true}, {640, 690, false}};
  Shard shard(train_with("adamw_8bit"), ranges, kElements);
  for (size_t i = 0; i < kElements; ++i) shard.master[i] = 1, shard.gradient[i] = 0.5f;
  shard.optimizer->step(1, 0.25, 1.0);
  std::vector<float> moment(kElements);
  dequantize_blocks(shard.codes("exp_avg"), shard.state("exp_avg_scales"), kElements, true, moment.data());
  for (int64_t i = 0; i < kElements; ++i) {
    const auto in = std::find_if(ranges.begin(), ranges.end(), [i](const DecayRange& r) { return i >= r.begin && i < r.end; });
    INFO("element " << i);
    const double expected = in == ranges.end() ? 1 : (in->decay ? 1 - 0.25 * shard.train.weight_decay : 1) - 0.25;
    REQUIRE(shard.master[size_t(i)] == Approx(expected).epsilon(1e-6));
    REQUIRE((moment[size_t(i)] == 0.0f) == (in == ranges.end()));
  }
}

// What a checkpoint holds are the values; blocks whose largest value is negative have no code for it.
TEST_CASE("values that codes stand for are stood for by codes again, exactly", "[optim]") {
  uint64_t state = 1;
  const auto random = [&state] {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return float(int64_t(state >> 33)) / float(1u << 30) - 1;
  };
  constexpr int64_t kElements = 256 * 400 + 77;
  std::vector<float> values(kElements), again(kElements);
  for (const bool is_signed : {true, false}) {
    for (int64_t i = 0; i < kElements; ++i) {
      const float x = random() * std::exp2(float(i / 256 % 60) - 50);
      values[size_t(i)] = (is_signed ? x * std::fabs(random()) : x * x) * float(i / 256 % 5 != 0);
    }
    std::vector<uint8_t> codes(kElements);
    std::vector<float> scales((kElements + 255) / 256);
    requantize_blocks(values.data(), kElements, is_signed, codes.data(), scales.data());
    dequantize_blocks(codes.data(), scales.data(), kElements, is_signed, values.data());
    requantize_blocks(values.data(), kElements, is_signed, codes.data(), scales.data());
    dequantize_blocks(codes.data(), scales.data(), kElements, is_signed, again.data());
    int64_t wrong = 0;
    for (size_t i = 0; i < size_t(kElements); ++i) wrong += values[i] != again[i];
    INFO((is_signed ? "signed" : "unsigned"));
    CHECK(wrong == 0);
    CHECK(std::count(values.begin(), values.end(), 0.0f) < kElements / 3);
  }
}

TEST_CASE("bytes of an optimizer follow from what it keeps", "[optim]") {
  TrainPlan train;
  CHECK(optimizer_bytes(train, 1000) == 8000);
  CHECK(update_bytes_per_parameter(train) == 28);
  CHECK(stored_states(train) == std::vector<std::string>{"", ".exp_avg", ".exp_avg_sq"});
  train = train_with("adamw_8bit");
  CHECK(optimizer_bytes(train, 1000) == 2 * (1000 + 4 * 4));
  CHECK(stored_bytes(train, 1000) == 12000);
  CHECK(optimizers_with(stored_states(train)) == "adamw or adamw_8bit");
  train = train_with("lion");
  CHECK(optimizer_bytes(train, 1000) == 4000);
  CHECK(optimizers_with(stored_states(train)) == "lion");
  train = train_with("sgd");
  CHECK(optimizer_bytes(train, 1000) == 0);
  CHECK(optimizer_words(train).empty());
  CHECK(optimizers_with(stored_states(train)) == "sgd without momentum");
  train.momentum = 0.5;
  CHECK(stored_states(train) == std::vector<std::string>{"", ".momentum_buffer"});
}

}  // namespace
}  // namespace distsetup
