// fp16 with a loss scale: the type itself, training that stays near fp32, and steps that are left out because a gradient overflows, on
// every rank alike, as torch's own scaler leaves them out.
#include <ATen/ATen.h>
#include <c10/util/Half.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "plan/check_job.h"
#include "runtime/device/meter.h"
#include "runtime/engine/threads.h"
#include "runtime/expert_cases.h"
#include "runtime/kernels/cpu/bf16.h"
#include "runtime/oracle.h"
#include "runtime/tiny.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using namespace tiny;

TEST_CASE("fp16 rounds as libtorch does, over its whole range", "[fp16]") {
  const auto rounded = [](float value) {
    F16 out;
    from_float(value, &out);
    return out.bits;
  };
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const c10::Half half(uint16_t(bits), c10::Half::from_bits());
    const float value = to_float(F16{uint16_t(bits)});
    if (std::isnan(static_cast<float>(half))) {
      CHECK((std::isnan(value) && (rounded(value) & 0x7c00u) == 0x7c00u && (rounded(value) & 0x3ffu) != 0));
      continue;
    }
    if (value != static_cast<float>(half) || rounded(value) != bits) FAIL("bits " << bits << ": " << value);
    // Numbers between this one and its neighbours, ties among them.
    for (const float factor : {0.99951171875f, 0.999755859375f, 1.000244140625f, 1.00048828125f, 1.0003f}) {
      const float between = value * factor;
      if (rounded(between) != c10::Half(between).x) FAIL("value " << between << ": " << rounded(between));
    }
  }
  std::mt19937 random(1);
  for (int n = 0; n < 1000000; ++n) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isnan(value) && rounded(value) != c10::Half(value).x) FAIL("value " << value);
  }
}

struct Way {
  const char* name;
  Sharding sharding;
  int replicate = 1, shard = 1, tp = 1, cp = 1, pp = 1;
};
TinyOptions options_of(const Way& way) {
  TinyOptions o;
  o.sharding = way.sharding;
  o.replicate = way.replicate, o.shard = way.shard, o.tp = way.tp, o.cp = way.cp, o.pp = way.pp;
  if (way.tp > 1) o.geometry.num_heads = o.geometry.num_kv_heads = 2, o.geometry.hidden = 20, o.geometry.feed_forward = 38;
  o.precision = Dtype::kF16;
  return o;
}
const std::vector<Way> kWays = {
    {"one rank", Sharding::kDdp},      {"ddp", Sharding::kDdp, 2},           {"zero1", Sharding::kZero1, 1, 2},
    {"zero2", Sharding::kZero2, 1, 4}, {"zero3", Sharding::kZero3, 1, 2},    {"hybrid", Sharding::kZero3, 2, 2},
    {"tp", Sharding::kZero3, 1, 2, 2}, {"cp", Sharding::kZero2, 1, 1, 1, 2}, {"pp", Sharding::kZero1, 1, 1, 1, 1, 2}};

TEST_CASE("fp16 stays within half a percent of fp32 under every strategy, poisoned and computed again", "[fp16][all]") {
  const Way way = GENERATE(from_range(kWays));
  const int64_t accumulation = way.pp > 1 ? 4 : way.shard > 1 ? 2 : 1;
  TinyOptions o = options_of(way);
  o.accumulation = accumulation;
  const RunResult run = train(tiny_plan(o), 20);
  o.precision = Dtype::kF32;
  const RunResult exact = train(tiny_plan(o), 20);
  o.precision = Dtype::kF16;
  INFO(way.name << ", accumulation " << accumulation);
  CHECK(run.losses.back() < 0.8 * run.losses.front());
  CHECK(difference(run.losses, exact.losses) < 5e-3);
  CHECK(difference(run.norms, exact.norms) < 5e-2);
  o.recompute = Recompute::kFull;
  CHECK(train(tiny_plan(o), 20, {.poison = true}) == run);
}

struct Seen {
  double loss_scale = 0, loss = 0, norm = 0;
  bool is_updated = true, is_overflow = false, is_same = false;  // is_same: states are as before
  bool operator==(const Seen& o) const {
    return loss_scale == o.loss_scale && loss == o.loss && is_updated == o.is_updated && is_overflow == o.is_overflow &&
           is_same == o.is_same && (norm == o.norm || (!std::isfinite(norm) && !std::isfinite(o.norm)));
  }
};
// What each rank sees of each step. `hurt`: step in which the last rank's part of the loss is multiplied by 1e9; -1: none.
std::vector<std::vector<Seen>> watched_run(const Plan& plan, int64_t steps, int64_t hurt) {
  std::vector<std::vector<Seen>> by_rank(size_t(plan.mesh.world()));
  run_ranks(plan.mesh, [&](Communicator& communicator) {
    const auto device = make_cpu_device();
    EngineOptions options;
    Engine* running = nullptr;
    const bool is_last = communicator.rank() + 1 == communicator.world();
    double given = 0;
    options.watch = [&](const Step& step, const Call& call) {
      if (!is_last || hurt < 0 || running->steps_done() != hurt || !step.kernel.starts_with("cross_entropy")) return;
      for (const Argument& a : call.reads) {
        if (a.dtype != Dtype::kF64) continue;
        auto* const scale = static_cast<double*>(a.data);
        if (given == 0) given = *scale;
        *scale = 1e9 * given;
        return;
      }
    };
    Engine engine(plan, *device, communicator, options);
    running = &engine;
    engine.initialize_parameters();
    engine.load();
    for (int64_t s = 0; s < steps; ++s) {
      const Batch batch = rank_batch(plan, global_batch(plan, s), data_index(plan.mesh, communicator.rank()));
      const std::vector<float> before(engine.master().begin(), engine.master().end());
      const StepStats stats = engine.step({batch.ids, batch.targets, batch.valid, 1e-2, batch.reference, batch.positions});
      const bool is_same = std::equal(before.begin(), before.end(), engine.master().begin());
      // Of a step that is hurt the loss is the rank's own matter.
      by_rank[size_t(communicator.rank())].push_back(
          {stats.loss_scale, s == hurt ? 0 : stats.loss, stats.gradient_norm, stats.is_updated, stats.is_overflow, is_same});
    }
  });
  return by_rank;
}

TEST_CASE("an overflow is skipped on all ranks alike, and halves the scale", "[fp16]") {
  const Way way = GENERATE(from_range(kWays));
  TinyOptions o = options_of(way);
  o.accumulation = way.pp > 1 ? 4 : 2;
  Plan plan = tiny_plan(o);
  plan.precision.loss_scale.hysteresis = 1;
  plan.precision.loss_scale.window = 4;
  INFO(way.name);

  const auto hurt = watched_run(plan, 8, 3);
  for (const auto& rank : hurt) CHECK((rank == hurt.front()));
  for (size_t s = 0; s < 8; ++s) {
    INFO("step " << s);
    CHECK(hurt.front()[s].is_overflow == (s == 3));
    CHECK(hurt.front()[s].is_same == (s == 3));
    CHECK(hurt.front()[s].loss_scale == (s <= 3 ? 65536 : 32768));
  }

  plan.precision.loss_scale.initial_power = 40;  // gradients overflow until it is small enough
  const auto large = watched_run(plan, 30, -1);
  for (const auto& rank : large) CHECK((rank == large.front()));
  int64_t skipped = 0;
  double scale = std::ldexp(1.0, 40);
  for (const Seen& step : large.front()) {
    CHECK(step.loss_scale == scale);
    CHECK(step.is_overflow == step.is_same);
    CHECK(std::isfinite(step.loss));
    if (!step.is_overflow) break;
    ++skipped;
    scale /= 2;
  }
  CHECK((skipped >= 8 && skipped < 26));
}

TEST_CASE("an overflow at the smallest scale, or at a fixed one, ends the run", "[fp16]") {
  Plan plan = tiny_plan(options_of({"one rank", Sharding::kDdp}));
  plan.precision.loss_scale.initial_power = 40;
  plan.precision.loss_scale.hysteresis = 2;
  plan.precision.loss_scale.minimum = int64_t{1} << 39;
  CHECK_THROWS_WITH(watched_run(plan, 8, -1),
                    Catch::Contains("step 3: the gradient overflows fp16 although the loss scale is 5.49756e+11"));
  plan.precision.loss_scale = {int64_t{1} << 40, 16, 1000, 2, 1};
  CHECK_THROWS_WITH(watched_run(plan, 8, -1), Catch::Contains("step 1: loss "));
  plan.precision.loss_scale.fixed = 512;
  const auto fixed = watched_run(plan, 8, -1);
  for (const Seen& step : fixed.front()) CHECK((step.loss_scale == 512 && step.is_updated));
}

TEST_CASE("scales and skipped steps are those of torch's scaler on a model of public operators", "[fp16]") {
  TinyOptions o = options_of({"one rank", Sharding::kDdp});
  Plan plan = tiny_plan(o);
  plan.precision.loss_scale = {0, 26, 3, 1, 1};
  const int64_t steps = 30;
  const auto found = watched_run(plan, steps, -1).front();

  std::vector<std::vector<float>> units;
  {
    const auto device = make_cpu_device();
    const auto self = make_self_communicator(plan.mesh);
    Engine engine(plan, *device, *self);
    engine.initialize_parameters();
    collect(plan.model, engine, engine.master(), units);
  }
  oracle::Model model(plan.model, units);
  model.compute = at::kHalf;
  oracle::Model::Moments moments;
  at::Tensor scale = at::full({1}, std::ldexp(1.0, 26), at::kFloat), growth = at::zeros({1}, at::kInt);
  int64_t updates = 0, skipped = 0, grown = 0, num_sure = 0;
  for (int64_t s = 0; s < steps; ++s) {
    INFO("step " << s);
    const double now = scale.item<double>();
    const Seen& ours = found[size_t(s)];
    const Batch batch = global_batch(plan, s);
    // The oracle's gradients, unscaled, at so many times the scale; true: they overflow.
    const auto overflows = [&](double times, std::vector<std::vector<float>>& g, double& loss) {
      const at::Tensor scaled_by = scale * times;
      g.clear();
      loss = model.gradients([&] { return model.loss(batch, plan.train.sequence_length) * scaled_by; }, g) / (now * times);
      at::Tensor found_inf = at::zeros({1}, at::kFloat);
      for (auto& unit : g) {
        std::vector<at::Tensor> tensors = {at::from_blob(unit.data(), {int64_t(unit.size())}, at::kFloat)};
        at::_amp_foreach_non_finite_check_and_unscale_(tensors, found_inf, scaled_by.reciprocal());
      }
      return found_inf.item<float>() != 0;
    };
    // Its products round otherwise than ours, so that a gradient at the very edge may overflow in one of both. Whether it does is
    // certain where it still would at half of the scale, or would not at twice as much.
    std::vector<std::vector<float>> g;
    double loss = 0;
    const bool surely_fits = !overflows(2, g, loss), surely_overflows = overflows(0.5, g, loss);
    if (surely_fits) CHECK_FALSE(ours.is_overflow);
    if (surely_overflows) CHECK(ours.is_overflow);
    num_sure += surely_fits || surely_overflows ? 1 : 0;
    CHECK(ours.loss_scale == now);
    CHECK(ours.loss == Approx(loss).epsilon(5e-3));
    at::_amp_update_scale_(scale, growth, at::full({1}, ours.is_overflow ? 1.0 : 0.0, at::kFloat), 2.0, 0.5, 3);
    skipped += ours.is_overflow ? 1 : 0;
    grown += scale.item<double>() > now ? 1 : 0;
    if (!ours.is_overflow) model.update(g, plan, ++updates, 1e-2, moments);
  }
  CHECK(num_sure >= 8);
  CHECK((skipped >= 5 && grown >= 2));
}

TEST_CASE("in fp16 nothing is allocated but what is declared", "[fp16]") {
  install_meter();
  set_compute_threads(1);
  TinyOptions o = options_of({"one rank", Sharding::kDdp});
  const auto what = GENERATE(as<std::string>(), "dense", "adapters", "mixtral", "glm4", "gpt_oss");
  INFO(what);
  if (what == "adapters")
    o.rank = 3, o.targets = {"q_proj", "down_proj"};
  else if (what != "dense")
    o.geometry = expert_geometry(what);
  const Plan plan = tiny_plan(o);
  const auto self = make_self_communicator(plan.mesh);
  CHECK(undeclared_bytes(plan, *self) == "");
}

TEST_CASE("experts train in fp16 as in fp32, also shared by ranks, poisoned and computed again", "[fp16][experts][all]") {
  const auto which = GENERATE(as<std::string>(), "mixtral", "qwen2", "glm4", "gpt_oss");
  struct ExpertWay {
    const char* name;
    Sharding sharding;
    int shard, ep, tp;
  };
  const auto way = GENERATE(ExpertWay{"one rank", Sharding::kDdp, 1, 1, 1}, ExpertWay{"zero3, ep 2", Sharding::kZero3, 2, 2, 1},
                            ExpertWay{"zero1, tp 2, ep 2", Sharding::kZero1, 1, 2, 2});
  TinyOptions o;
  o.geometry = expert_geometry(which);
  o.geometry.num_experts = 6, o.geometry.feed_forward = 38;
  if (which == "glm4") o.geometry.router_groups = 3;
  o.sharding = way.sharding, o.shard = way.shard, o.ep = way.ep, o.tp = way.tp;
  INFO(which << ", " << way.name);
  const RunResult exact = train(tiny_plan(o), 8);
  o.precision = Dtype::kF16;
  REQUIRE(check_job(tiny_plan(o)) == std::vector<std::string>{});
  const RunResult half = train(tiny_plan(o), 8);
  CHECK(half.losses.back() < half.losses.front());
  CHECK(difference(half.losses, exact.losses) < 1e-2);  // rounded scores choose another expert now and then
  o.recompute = Recompute::kFull;
  CHECK(train(tiny_plan(o), 8, {.poison = true}) == half);
}

TEST_CASE("adapters and preference pairs train in fp16 as in fp32", "[fp16]") {
  const bool has_pairs = GENERATE(false, true);
  TinyOptions o = options_of({"zero3", Sharding::kZero3, 1, 2});
  if (has_pairs)
    o.preference = PreferencePlan{};
  else
    o.rank = 3, o.targets = {"q_proj", "v_proj", "down_proj"};
  const RunResult half = train(tiny_plan(o), 12);
  o.precision = Dtype::kF32;
  const RunResult exact = train(tiny_plan(o), 12);
  CHECK(difference(half.losses, exact.losses) < (has_pairs ? 2e-2 : 2e-3));
}

}  // namespace
}  // namespace distsetup
