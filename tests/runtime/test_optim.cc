// Learning rate, first values, AdamW and clipping: as pure functions and against plain loops.
#include <cmath>
#include <limits>
#include <set>

#include "plan/layout_ranges.h"
#include "runtime/device/cpu_device.h"
#include "runtime/optim/initialize.h"
#include "runtime/optim/learning_rate.h"
#include "runtime/optim/optimizer.h"
#include "runtime/optim/own_optimizers.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

TrainPlan schedule_of(int64_t steps, int64_t warmup) {
  TrainPlan t;
  t.steps = steps;
  t.warmup_steps = warmup;
  t.learning_rate = 3e-4;
  t.min_learning_rate = 3e-5;
  return t;
}

TEST_CASE("learning rate: reaches the peak with the last warm-up step and the minimum with the last step", "[optim]") {
  const TrainPlan t = schedule_of(100, 10);
  CHECK(learning_rate(t, 0) == Approx(3e-5));
  CHECK(learning_rate(t, 9) == 3e-4);
  CHECK(learning_rate(t, 99) == 3e-5);
  CHECK(learning_rate(t, 5000) == 3e-5);
  CHECK(learning_rate(t, 54) == Approx(3e-5 + 0.5 * 2.7e-4));  // half way between steps 9 and 99
  CHECK(learning_rate(schedule_of(1, 0), 0) == 3e-4);
  CHECK(learning_rate(schedule_of(10, 10), 9) == 3e-4);
  CHECK(learning_rate(schedule_of(10, 0), 0) == 3e-4);
}

TEST_CASE("regression 36: the scheduler is not silently constant", "[optim]") {
  for (const int64_t warmup : {0, 1, 10, 50}) {
    std::set<double> values;
    for (int64_t s = 0; s < 200; ++s) values.insert(learning_rate(schedule_of(200, warmup), s));
    CHECK(values.size() > 140);
  }
}

TEST_CASE("regression 42: a cosine never rises after the warm-up", "[optim]") {
  for (const int64_t steps : {2, 3, 17, 400}) {
    for (const int64_t warmup : {int64_t(0), int64_t(1), steps / 3, steps}) {
      const TrainPlan t = schedule_of(steps, warmup);
      for (int64_t s = 1; s < 2 * steps; ++s) {
        INFO("steps " << steps << " warmup " << warmup << " step " << s);
        if (s < warmup)
          CHECK(learning_rate(t, s) > learning_rate(t, s - 1));
        else
          CHECK(learning_rate(t, s) <= learning_rate(t, s - 1));
      }
    }
  }
}

TEST_CASE("learning rate: each schedule at its corners", "[optim]") {
  using enum LearningRateSchedule;
  const auto of = [](LearningRateSchedule schedule, int64_t warmup, int64_t decay = 0, double factor = 0) {
    TrainPlan t = schedule_of(100, warmup);
    t.lr_schedule = schedule;
    t.lr_decay_steps = decay;
    t.lr_decay_factor = factor;
    return t;
  };
  const TrainPlan linear = of(kLinear, 10);
  CHECK(learning_rate(linear, 9) == 3e-4);
  CHECK(learning_rate(linear, 9 + 13) == Approx(3e-5 + 2.7e-4 * 78 / 91));
  CHECK(learning_rate(linear, 99) == Approx(3e-5 + 2.7e-4 / 91));
  CHECK(learning_rate(linear, 100) == learning_rate(linear, 99));
  const TrainPlan constant = of(kConstant, 10);
  CHECK(learning_rate(constant, 0) == Approx(3e-5));
  for (const int64_t s : {9, 50, 99, 1000}) CHECK(learning_rate(constant, s) == 3e-4);
  const TrainPlan wsd = of(kWsd, 10, 20);
  for (const int64_t s : {9, 50, 80}) CHECK(learning_rate(wsd, s) == 3e-4);
  CHECK(learning_rate(wsd, 81) == Approx(3e-4 - 2.7e-4 / 20));
  CHECK(learning_rate(wsd, 99) == Approx(3e-5 + 2.7e-4 / 20));
  const TrainPlan root = of(kInverseSqrt, 4);
  CHECK(learning_rate(root, 3) == 3e-4);
  CHECK(learning_rate(root, 15) == Approx(1.5e-4));
  CHECK(learning_rate(root, 63) == Approx(3e-4 / 4));
  CHECK(learning_rate(of(kInverseSqrt, 1), 99) == 3e-5);  // a tenth of the peak is reached, and is the least
  CHECK(learning_rate(of(kInverseSqrt, 0), 99) == Approx(3e-4 * std::sqrt(10000.0 / 10099)));
  const TrainPlan steps = of(kStep, 0, 30, 0.5);
  CHECK(learning_rate(steps, 29) == 3e-4);
  CHECK(learning_rate(steps, 30) == Approx(1.5e-4));
  CHECK(learning_rate(steps, 99) == Approx(3e-4 / 8));
  CHECK(learning_rate(of(kStep, 0, 10, 0.1), 99) == 3e-5);
}

TEST_CASE("a gradient norm that is not finite is an error, not a clip factor of 1", "[optim]") {
  CHECK(clip_factor(0.5, 1.0) == 1.0);
  CHECK(clip_factor(4.0, 1.0) == Approx(0.25).epsilon(1e-6));
  CHECK(clip_factor(4.0, 0.0) == 1.0);
  CHECK_THROWS_AS(clip_factor(std::nan(""), 1.0), std::domain_error);
  CHECK_THROWS_AS(clip_factor(std::numeric_limits<double>::infinity(), 0.0), std::domain_error);
}

TEST_CASE("first values have the asked spread and depend on seed, name and element only", "[optim]") {
  const auto at = [](uint64_t seed, const char* name, int64_t i) {
    return initial_value(seed, name, ParameterDecl::Init::kNormal, i, 4);
  };
  CHECK(at(1, "a", 5) == at(1, "a", 5));
  CHECK(at(1, "a", 5) != at(2, "a", 5));
  CHECK(at(1, "a", 5) != at(1, "b", 5));
  CHECK(at(1, "a", 5) != at(1, "a", 6));
  double sum = 0, squares = 0, fourth = 0, neighbours = 0;
  const int64_t n = 200000;
  for (int64_t i = 0; i < n; ++i) {
    const double v = at(7, "w", i);
    sum += v;
    squares += v * v;
    fourth += v * v * v * v;
    neighbours += v * at(7, "w", i + 1);
  }
  CHECK(std::abs(sum / n) < 5 * 0.02 / std::sqrt(double(n)));
  CHECK(std::sqrt(squares / n) == Approx(0.02).epsilon(0.01));
  CHECK(fourth / n / std::pow(squares / n, 2) == Approx(3.0).epsilon(0.03));  // a normal's kurtosis
  CHECK(std::abs(neighbours / squares) < 0.01);
  const float scaled = initial_value(7, "w", ParameterDecl::Init::kScaledNormal, 3, 8);
  CHECK(scaled == Approx(at(7, "w", 3) / 4));
}

TEST_CASE("AdamW follows the paper, decay only where asked, clipping in the same pass", "[optim]") {
  TrainPlan train;
  const std::vector<DecayRange> ranges = {{0, 3, false}, {3, 10, true}, {12, 15, true}};  // 10, 11: padding
  std::vector<float> p(15), g(15), m(15), v(15);
  std::vector<double> P(15), M(15), V(15);
  for (size_t i = 0; i < 15; ++i) P[i] = p[i] = float(std::sin(double(i)));
  const std::unique_ptr<Device> device = make_cpu_device();
  const OptimizerMemory memory = {p.data(), g.data(), [&](const std::string& name) { return name == "exp_avg" ? m.data() : v.data(); },
                                  15};
  const bool is_own = GENERATE(false, true);  // that of GPUs, which leaves the gradient as it is
  const std::unique_ptr<Optimizer> adamw =
      is_own ? make_own_adamw(train, ranges, memory, device->kernels()) : make_optimizer(train, ranges, memory, *device);
  const double clip = 0.5;
  for (int64_t step = 1; step <= 5; ++step) {
    const double lr = 1e-2 / double(step);
    for (size_t i = 0; i < 15; ++i) g[i] = float(std::cos(double(i) + double(step)));
    const std::vector<float> gradient = g;
    adamw->step(step, lr, clip);
    CHECK((g == gradient) == is_own);
    for (const DecayRange& r : ranges) {
      for (int64_t j = r.begin; j < r.end; ++j) {
        const size_t i = size_t(j);
        const double grad = gradient[i] * clip;
        if (r.decay) P[i] -= lr * train.weight_decay * P[i];
        M[i] = train.beta1 * M[i] + (1 - train.beta1) * grad;
        V[i] = train.beta2 * V[i] + (1 - train.beta2) * grad * grad;
        const double m_hat = M[i] / (1 - std::pow(train.beta1, double(step))),
                     v_hat = V[i] / (1 - std::pow(train.beta2, double(step)));
        P[i] -= lr * m_hat / (std::sqrt(v_hat) + train.epsilon);
      }
    }
  }
  for (size_t i = 0; i < 15; ++i) CHECK(p[i] == Approx(P[i]).epsilon(1e-5));
  CHECK(m[10] == 0.f);  // padding is never touched
  CHECK(p[11] == float(std::sin(11.0)));
}

}  // namespace
}  // namespace distsetup
