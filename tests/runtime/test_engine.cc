// The executor: gradients against autograd, losses against a plain training loop, and every strategy against the one-rank run.
#include "plan/check_job.h"
#include "plan/expand.h"
#include "runtime/as_one_rank.h"
#include "runtime/comm/tracing.h"
#include "runtime/device/cpu_device.h"
#include "runtime/oracle.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using namespace tiny;

std::vector<std::vector<float>> initial_units(const Plan& plan) {
  std::vector<std::vector<float>> units;
  Plan one = plan;
  const auto device = make_cpu_device();
  const auto self = make_self_communicator(one.mesh);
  Engine engine(one, *device, *self);
  engine.initialize_parameters();
  collect(plan.model, engine, engine.master(), units);
  return units;
}

Geometry variant_of(const std::string& which) {
  Geometry g = odd_geometry();
  g.tied_embeddings = which == "tied" || which == "all";
  g.qkv_bias = which == "qkv bias" || which == "all";
  g.qk_norm = which == "qk-norm" || which == "all";
  if (which == "square") {
    g.hidden = 32;
    g.num_heads = g.num_kv_heads = 4;
    g.head_size = 8;
    g.feed_forward = 64;
    g.vocabulary = 64;
  }
  return g;
}

TEST_CASE("gradients equal autograd's in fp32", "[engine]") {
  const auto which = GENERATE(as<std::string>{}, "plain", "tied", "qkv bias", "qk-norm", "all", "square");
  const int64_t accumulation = GENERATE(1, 4);
  const auto recompute = GENERATE(Recompute::kNone, Recompute::kSelective, Recompute::kKeepAttention, Recompute::kFull);
  INFO(which << ", accumulation " << accumulation << ", recompute " << name(recompute));
  TinyOptions o;
  o.geometry = variant_of(which);
  o.accumulation = accumulation;
  o.recompute = recompute;
  Plan plan = tiny_plan(o);
  plan.train.grad_clip = 0;  // the engine's gradient is then the bare one
  const RunResult run = train(plan, 1);
  const oracle::Model model(plan.model, initial_units(plan));
  std::vector<std::vector<float>> expected;
  const double loss = model.gradients(global_batch(plan, 0), plan.train.sequence_length, expected);
  CHECK(run.losses[0] == Approx(loss).epsilon(1e-6));
  CHECK(difference(run.gradients, expected) < 2e-6);
}

TEST_CASE("losses, norms and parameters follow a plain training loop", "[engine]") {
  const auto which = GENERATE(as<std::string>{}, "plain", "all");
  TinyOptions o;
  o.geometry = variant_of(which);
  const Plan plan = tiny_plan(o);
  oracle::Model model(plan.model, initial_units(plan));
  oracle::Model::Moments moments;
  std::vector<double> losses, norms;
  for (int64_t s = 0; s < plan.train.steps; ++s) {
    const auto [loss, norm] = model.step(global_batch(plan, s), plan, s + 1, learning_rate(plan.train, s), moments);
    losses.push_back(loss);
    norms.push_back(norm);
  }
  const RunResult run = train(plan, plan.train.steps);
  CHECK(run.losses.back() < 0.8 * run.losses.front());
  CHECK(difference(run.losses, losses) < 1e-5);
  CHECK(difference(run.norms, norms) < 1e-4);
  std::vector<std::vector<float>> parameters;
  for (size_t u = 0; u < model.parameters.size(); ++u) {
    parameters.emplace_back();
    for (const at::Tensor& t : model.parameters[u])
      parameters.back().insert(parameters.back().end(), t.data_ptr<float>(), t.data_ptr<float>() + t.numel());
  }
  CHECK(difference(run.parameters, parameters) < 1e-4);
}

TEST_CASE("recompute policies and poisoned memory change no bit on one rank", "[engine]") {
  const auto precision = GENERATE(Dtype::kF32, Dtype::kBf16);
  const int64_t accumulation = GENERATE(1, 2, 4);
  TinyOptions o;
  o.precision = precision;
  o.accumulation = accumulation;
  o.geometry = variant_of("all");
  o.geometry.num_layers = 3;
  const RunResult plain = train(tiny_plan(o), 4);
  for (const Recompute recompute :
       {Recompute::kNone, Recompute::kSelective, Recompute::kKeepAttention, Recompute::kFull, Recompute::kEveryK}) {
    INFO(name(precision) << ", accumulation " << accumulation << ", recompute " << name(recompute));
    o.recompute = recompute;
    CHECK(train(tiny_plan(o), 4) == plain);
    RunResult poisoned = train(tiny_plan(o), 4, {.poison = true});
    CHECK(poisoned == plain);
  }
}

TEST_CASE("several reductions in flight change no bit", "[engine][all]") {
  struct Mesh {
    Sharding sharding;
    int replicate, shard, tp = 1, pp = 1;
  };
  const auto m = GENERATE(values<Mesh>({{Sharding::kZero1, 1, 2},
                                        {Sharding::kZero2, 1, 2},
                                        {Sharding::kZero3, 1, 4},
                                        {Sharding::kZero3, 2, 2},
                                        {Sharding::kZero3, 1, 2, 2},
                                        {Sharding::kZero2, 1, 2, 1, 2}}));
  const auto precision = GENERATE(Dtype::kF32, Dtype::kBf16);
  TinyOptions o;
  o.geometry.num_layers = 4;
  o.geometry.num_heads = 4, o.geometry.num_kv_heads = 2, o.geometry.feed_forward = 36;
  o.precision = precision;
  o.sharding = m.sharding, o.replicate = m.replicate, o.shard = m.shard, o.tp = m.tp, o.pp = m.pp;
  o.accumulation = 2;
  INFO(name(m.sharding) << " " << m.replicate << " x " << m.shard << " tp " << m.tp << " pp " << m.pp << " " << name(precision));
  const RunResult one = train(tiny_plan(o), 4);
  const int64_t bytes = compile_expanded(tiny_plan(o), Phase::kStep).live_peak_bytes;
  for (const int in_flight : {2, 8}) {
    o.reductions_in_flight = in_flight;
    CHECK(check_job(tiny_plan(o)) == std::vector<std::string>{});
    CHECK(train(tiny_plan(o), 4, {.poison = true}) == one);
    CHECK(compile_expanded(tiny_plan(o), Phase::kStep).live_peak_bytes >= bytes);
  }
}

TEST_CASE("an event may be waited for more than once", "[engine]") {
  TinyOptions o;
  o.sharding = Sharding::kZero3;
  o.shard = 2;
  const Plan plan = tiny_plan(o);
  Schedule twice = compile_expanded(plan, Phase::kStep);
  size_t first = 0;
  while (twice.instructions[first].waits.empty()) ++first;
  twice.instructions[first + 1].waits.push_back(twice.instructions[first].waits.front());
  REQUIRE(check_job(plan, {&twice, &twice}).empty());
  double expected = 0, loss = 0;
  for (double* to : {&expected, &loss}) {
    run_ranks(plan.mesh, [&](Communicator& communicator) {
      const auto device = make_cpu_device();
      const bool is_plain = to == &expected;
      Engine engine(plan, is_plain ? compile_expanded(plan, Phase::kStep) : twice, *device, communicator);
      engine.initialize_parameters();
      engine.load();
      const Batch batch = rank_batch(plan, global_batch(plan, 0), data_index(plan.mesh, communicator.rank()));
      const StepStats stats = engine.step({batch.ids, batch.targets, batch.valid, 1e-2});
      if (communicator.rank() == 0) *to = stats.loss;
    });
  }
  CHECK(loss == expected);
}

struct Strategy {
  const char* name;
  Sharding sharding;
  int replicate, shard;
  bool reshard;
};

TEST_CASE("every strategy on 1, 2 and 4 ranks trains as one rank does", "[engine]") {
  const auto s =
      GENERATE(Strategy{"ddp 2", Sharding::kDdp, 2, 1, true}, Strategy{"ddp 4", Sharding::kDdp, 4, 1, true},
               Strategy{"zero1 2", Sharding::kZero1, 1, 2, true}, Strategy{"zero1 4", Sharding::kZero1, 1, 4, true},
               Strategy{"zero2 2", Sharding::kZero2, 1, 2, true}, Strategy{"zero2 4", Sharding::kZero2, 1, 4, true},
               Strategy{"zero3 1", Sharding::kZero3, 1, 1, true}, Strategy{"zero3 2", Sharding::kZero3, 1, 2, true},
               Strategy{"zero3 4", Sharding::kZero3, 1, 4, true}, Strategy{"zero3 4, kept", Sharding::kZero3, 1, 4, false},
               Strategy{"hybrid 2 x 2", Sharding::kZero3, 2, 2, true}, Strategy{"hybrid zero1", Sharding::kZero1, 2, 2, true},
               Strategy{"hybrid zero2", Sharding::kZero2, 2, 2, true});
  const int64_t accumulation = GENERATE(1, 2);
  const std::string which = accumulation == 1 ? "plain" : "all";
  TinyOptions o;
  o.geometry = variant_of(which);
  o.steps = 8;
  o.sharding = s.sharding;
  o.replicate = s.replicate;
  o.shard = s.shard;
  o.reshard = s.reshard;
  o.accumulation = accumulation;
  INFO(s.name << ", " << which << ", accumulation " << accumulation);
  check_as_one_rank(o, {Recompute::kNone, Recompute::kFull});
}

TEST_CASE("bf16 ends within one percent of fp32 under every strategy", "[engine]") {
  const auto s = GENERATE(Strategy{"ddp 1", Sharding::kDdp, 1, 1, true}, Strategy{"ddp 2", Sharding::kDdp, 2, 1, true},
                          Strategy{"zero1 2", Sharding::kZero1, 1, 2, true}, Strategy{"zero2 4", Sharding::kZero2, 1, 4, true},
                          Strategy{"zero3 2", Sharding::kZero3, 1, 2, true}, Strategy{"hybrid 2 x 2", Sharding::kZero3, 2, 2, true});
  const int64_t accumulation = GENERATE(1, 2);
  TinyOptions o;
  o.geometry = variant_of("all");
  static const RunResult one = train(tiny_plan(o), 20);
  o.sharding = s.sharding;
  o.replicate = s.replicate;
  o.shard = s.shard;
  o.accumulation = accumulation;
  o.precision = Dtype::kBf16;
  INFO(s.name << ", accumulation " << accumulation);
  const RunResult run = train(tiny_plan(o), 20);
  CHECK(run.losses.back() < 0.8 * run.losses.front());
  CHECK(run.losses.back() == Approx(one.losses.back()).epsilon(0.01));
  CHECK(train(tiny_plan(o), 20, {.poison = true}) == run);
}

TEST_CASE("a loss that is not a number stops the step", "[engine]") {
  const Plan plan = tiny_plan({});
  const auto device = make_cpu_device();
  const auto self = make_self_communicator(plan.mesh);
  Engine engine(plan, *device, *self);
  engine.initialize_parameters();
  engine.master()[5] = std::nanf("");
  engine.load();
  const Batch batch = global_batch(plan, 0);
  CHECK_THROWS_AS(engine.step({batch.ids, batch.targets, batch.valid, 1e-3}), NonFiniteError);
  Batch bad = batch;
  bad.ids[3] = plan.model.vocabulary;
  CHECK_THROWS_AS(engine.step({bad.ids, bad.targets, bad.valid, 1e-3}), std::invalid_argument);
  bad.ids.pop_back();
  CHECK_THROWS_AS(engine.step({bad.ids, bad.targets, bad.valid, 1e-3}), std::invalid_argument);
}

}  // namespace
}  // namespace distsetup
