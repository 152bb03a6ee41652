// Steps that change nothing because their loss is not finite or a spike: what is decided, that all ranks decide it alike, and that a
// run goes on as if the step had never been.
#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "runtime/monitor/step_guard.h"
#include "tiny.h"

using namespace distsetup;
using namespace distsetup::tiny;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
using Answer = StepGuard::Answer;

GuardPlan guard(std::string_view on_nan, std::string_view on_spike, double factor = 2, int64_t max_skips = 3) {
  return {std::string(on_nan), std::string(on_spike), factor, max_skips};
}

struct Seen {
  std::vector<std::vector<float>> parameters;
  std::vector<double> losses;
  std::vector<float> moments;  // of all ranks, by rank
  bool operator==(const Seen&) const = default;
};

// Parameters and what the optimizer keeps, as far as this rank has them.
std::vector<float> states_of(Engine& engine) {
  std::vector<float> all(engine.master().begin(), engine.master().end());
  for (const StateValues& state : engine.optimizer_states()) all.insert(all.end(), state.values.begin(), state.values.end());
  return all;
}

// Six steps; the third is refused. `poisoned`: rank whose activations become NaN in it, -1: none does.
Seen six_steps(const Plan& plan, int poisoned, std::atomic<int>& not_finite) {
  Seen seen;
  std::vector<std::vector<float>> moments(static_cast<size_t>(plan.mesh.world()));
  run_ranks(plan.mesh, [&](Communicator& communicator) {
    const auto device = make_cpu_device();
    bool is_poisoned = false;
    EngineOptions options;
    Engine* running = nullptr;
    options.watch = [&](const Step& step, const Call& call) {
      if (!is_poisoned || running->steps_done() != 2 || step.program_op->kind != OpKind::kNorm || call.reads[0].dtype != Dtype::kF32)
        return;
      static_cast<float*>(call.reads[0].data)[0] = std::nanf("");
    };
    is_poisoned = communicator.rank() == poisoned;
    options.takes_update = [&](const StepStats& stats) {
      if (!std::isfinite(stats.loss)) ++not_finite;
      return running->steps_done() != 2;
    };
    Engine engine(plan, *device, communicator, options);
    running = &engine;
    engine.initialize_parameters();
    engine.load();
    const int index = data_index(plan.mesh, communicator.rank());
    for (int64_t s = 0; s < 6; ++s) {
      const Batch batch = rank_batch(plan, global_batch(plan, s), index);
      const std::vector<float> before = states_of(engine);
      const StepStats stats = engine.step({batch.ids, batch.targets, batch.valid, 1e-2});
      const bool is_same = states_of(engine) == before;
      if (is_same != (s == 2) || stats.is_updated != (s != 2)) throw std::runtime_error("step " + std::to_string(s));
      if (communicator.rank() == 0 && s != 2) seen.losses.push_back(stats.loss);
    }
    moments[static_cast<size_t>(communicator.rank())] = states_of(engine);
    if (engine.writes_checkpoint()) collect(plan.model, engine, engine.master(), seen.parameters);
  });
  for (const auto& mine : moments) seen.moments.insert(seen.moments.end(), mine.begin(), mine.end());
  return seen;
}

}  // namespace

TEST_CASE("a loss or a norm that is not finite stops the run or skips the step") {
  StepGuard stops(guard(kStop, kIgnore));
  CHECK(stops.judge(2, 1).answer == Answer::kTake);
  CHECK(stops.judge(kNaN, 1).answer == Answer::kStop);
  CHECK(stops.last().why == "the loss is nan");
  CHECK(stops.judge(2, std::numeric_limits<double>::infinity()).answer == Answer::kStop);
  CHECK(stops.last().why == "the gradient norm is inf");
  CHECK(stops.history() == LossHistory{});

  StepGuard skips(guard(kSkip, kIgnore));
  for (int round = 0; round < 4; ++round) {
    CHECK(skips.judge(kNaN, kNaN).answer == Answer::kSkip);
    CHECK(skips.judge(1, kNaN).answer == Answer::kSkip);
    CHECK(skips.judge(1, 1).answer == Answer::kTake);
  }
  CHECK(skips.history() == LossHistory{{}, 8, 0});
  CHECK(skips.judge(kNaN, 1).answer == Answer::kSkip);
  CHECK(skips.judge(kNaN, 1).answer == Answer::kSkip);
  CHECK(skips.judge(kNaN, 1).answer == Answer::kStop);
  CHECK(skips.last().why == "the loss is nan, and so 3 steps in a row would be skipped");
}

TEST_CASE("a spike is a loss above a multiple of the median of those that were taken") {
  for (const std::string_view policy : {kNote, kSkip, kStop}) {
    CAPTURE(policy);
    StepGuard spikes(guard(kStop, policy));
    for (size_t i = 0; i < kLeastLosses; ++i) CHECK(spikes.judge(i == 3 ? 100 : 3, 1).answer == Answer::kTake);  // too few to judge
    CHECK(spikes.judge(6, 1).why.empty());
    CHECK(spikes.judge(6.1, 1).answer == (policy == kNote ? Answer::kTake : policy == kSkip ? Answer::kSkip : Answer::kStop));
    CHECK(spikes.last().usual == 3);
    CHECK(spikes.last().why == "the loss is 6.1000, more than 2 times 3.0000, the median of the last 17");
    CHECK(spikes.history().recent.size() == (policy == kNote ? 18 : 17));
  }
  StepGuard window(guard(kStop, kSkip));
  for (size_t i = 0; i < 3 * kSpikeWindow; ++i) window.judge(1 + static_cast<double>(i) / 1000, 1);
  CHECK(window.history().recent.size() == kSpikeWindow);
  CHECK(window.history().recent.front() > 1.12);
  StepGuard restored(guard(kStop, kSkip));
  restored.restore(window.history());
  for (const double loss : {1.2, 5.0, 1.3, 2.5, 2.3}) {
    const Answer answer = window.judge(loss, 1).answer;
    CHECK(restored.judge(loss, 1).answer == answer);
  }
  CHECK(restored.history() == window.history());
}

TEST_CASE("a step that is refused leaves every bit of the states, and what follows does not know of it", "[engine]") {
  struct Case {
    const char* name;
    Sharding sharding;
    int replicate, shard, tp, pp;
    int64_t accumulation;
  };
  const auto c = GENERATE(Case{"one rank", Sharding::kDdp, 1, 1, 1, 1, 2}, Case{"ddp", Sharding::kDdp, 2, 1, 1, 1, 1},
                          Case{"zero1", Sharding::kZero1, 1, 2, 1, 1, 2}, Case{"zero2", Sharding::kZero2, 1, 2, 1, 1, 4},
                          Case{"zero3", Sharding::kZero3, 1, 2, 1, 1, 2}, Case{"hybrid", Sharding::kZero3, 2, 2, 1, 1, 1},
                          Case{"pipeline", Sharding::kZero1, 1, 1, 1, 2, 4});
  TinyOptions o;
  o.sharding = c.sharding;
  o.replicate = c.replicate;
  o.shard = c.shard;
  o.tp = c.tp;
  o.pp = c.pp;
  o.accumulation = c.accumulation;
  INFO(c.name);
  const Plan plan = tiny_plan(o);
  std::atomic<int> none = 0, not_finite = 0;
  const Seen clean = six_steps(plan, -1, none), poisoned = six_steps(plan, plan.mesh.world() - 1, not_finite);
  CHECK(none == 0);
  CHECK(not_finite == plan.mesh.world());  // every rank sees that the loss is not finite
  CHECK(clean == poisoned);
}

TEST_CASE("where a loss that is not finite began is said alike on every rank") {
  TinyOptions o;
  o.sharding = Sharding::kZero3;
  o.shard = 2;
  const Plan plan = tiny_plan(o);
  std::vector<std::string> losses(2), gradients(2), nothing(2);
  run_ranks(plan.mesh, [&](Communicator& communicator) {
    const auto rank = static_cast<size_t>(communicator.rank());
    const auto device = make_cpu_device();
    Engine engine(plan, *device, communicator);
    std::vector<float> gradient(static_cast<size_t>(engine.layout().shard_numel), 0.5f);
    const auto ask = [&](const StepStats& stats) {
      return origin_of_nan(communicator, stats, {int64_t(10 * rank), -1, int64_t(10 * rank + 1)}, engine.layout(), engine.place(),
                           gradient);
    };
    StepStats stats;
    stats.loss = kNaN;
    stats.own_loss = rank == 1 ? kNaN : 1;
    losses[rank] = ask(stats);
    stats.loss = stats.own_loss = 1;
    nothing[rank] = ask(stats);
    stats.gradient_norm = kNaN;
    if (rank == 1) {
      const UnitLayout& head = engine.layout().units.back();
      const std::vector<Box> boxes = boxes_of(engine.layout(), head, head.parameters.back(), engine.place());
      gradient[static_cast<size_t>(boxes.at(0).shard_offset)] = std::nanf("");
    }
    gradients[rank] = ask(stats);
  });
  CHECK(losses == std::vector<std::string>(2, "; it began on rank 1, windows 10, 11 of the training data"));
  CHECK(nothing == std::vector<std::string>(2, ""));
  CHECK(gradients == std::vector<std::string>(2, "; every rank's loss is finite; on rank 1 the gradient is not in lm_head.weight"));
}
