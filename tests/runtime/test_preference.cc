// Preference pairs: losses and gradients are autograd's, every mesh trains as one rank does, and what a pair costs is what TRL says.
#include "runtime/as_one_rank.h"
#include "runtime/kernels/preference.h"
#include "runtime/oracle.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using namespace tiny;
using at::Tensor;

PreferencePlan preference_of(const std::string& loss) {
  PreferencePlan p;
  p.loss = loss == "smoothed" ? "sigmoid" : loss;
  p.beta = loss == "hinge" ? 0.05 : 0.3;  // some pairs inside the hinge, some outside
  p.label_smoothing = loss == "smoothed" ? 0.2 : 0;
  return p;
}

Geometry even_geometry() {
  Geometry g = odd_geometry();
  g.num_heads = 4;
  g.num_kv_heads = 2;
  g.feed_forward = 36;
  return g;
}

// [B]: log-probabilities of the trained targets of each sequence together, and how many they are.
std::pair<Tensor, Tensor> sequence_logps(const oracle::Model& model, const Batch& batch, int64_t S) {
  const Tensor targets = oracle::Model::tokens(batch.targets, S), mask = targets.ge(0);
  const Tensor each = at::log_softmax(model.logits(batch, S).to(at::kDouble), -1).gather(-1, targets.clamp_min(0).unsqueeze(-1));
  return {(each.squeeze(-1) * mask).sum(-1), mask.sum(-1)};
}

// As TRL writes it down: log-ratios, their difference, and the mean over pairs.
Tensor preference_loss(const oracle::Model& model, const Batch& batch, const Plan& plan) {
  const PreferencePlan& p = plan.train.preference;
  const auto [logps, counts] = sequence_logps(model, batch, plan.train.sequence_length);
  const Tensor reference = at::empty({logps.size(0)}, at::kFloat);
  std::copy(batch.reference.begin(), batch.reference.end(), reference.data_ptr<float>());
  const Tensor ratios = (logps - reference.to(at::kDouble)).view({-1, 2}), averaged = ratios / counts.view({-1, 2});
  const Tensor margin = p.beta * (ratios.select(1, 0) - ratios.select(1, 1));
  if (p.loss == "hinge") return at::relu(1 - margin).mean();
  if (p.loss == "ipo") return (averaged.select(1, 0) - averaged.select(1, 1) - 1 / (2 * p.beta)).pow(2).mean();
  return (-at::log_sigmoid(margin) * (1 - p.label_smoothing) - at::log_sigmoid(-margin) * p.label_smoothing).mean();
}

std::vector<std::vector<float>> first_units(const Plan& plan) {
  std::vector<std::vector<float>> units;
  const auto device = make_cpu_device();
  const auto self = make_self_communicator(plan.mesh);
  Engine engine(plan, *device, *self);
  engine.initialize_parameters();
  collect(plan.model, engine, engine.master(), units);
  return units;
}

TEST_CASE("preference pairs: losses and gradients equal autograd's in fp32", "[preference]") {
  const auto loss = GENERATE(as<std::string>{}, "sigmoid", "smoothed", "hinge", "ipo");
  const int64_t accumulation = GENERATE(1, 4);
  TinyOptions o;
  o.preference = preference_of(loss);
  o.accumulation = accumulation;
  INFO(loss << ", accumulation " << accumulation);
  Plan plan = tiny_plan(o);
  plan.train.grad_clip = 0;
  const RunResult run = train(plan, 1);
  const oracle::Model model(plan.model, first_units(plan));
  const Batch batch = global_batch(plan, 0);
  std::vector<std::vector<float>> expected;
  const double value = model.gradients([&] { return preference_loss(model, batch, plan); }, expected);
  CHECK(run.losses[0] == Approx(value).epsilon(1e-6));
  CHECK(difference(run.gradients, expected) < 5e-6);
}

struct PairStrategy {
  std::string name;
  Sharding sharding;
  int replicate = 1, shard = 1, tp = 1, cp = 1, pp = 1;
  CpMethod method = CpMethod::kAllGather;
};

TEST_CASE("preference pairs: every mesh trains as one rank does", "[preference][all]") {
  const auto s =
      GENERATE(PairStrategy{"ddp 2", Sharding::kDdp, 2}, PairStrategy{"zero1 2", Sharding::kZero1, 1, 2},
               PairStrategy{"zero2 2", Sharding::kZero2, 1, 2}, PairStrategy{"zero3 2", Sharding::kZero3, 1, 2},
               PairStrategy{"hybrid 2 x 2", Sharding::kZero3, 2, 2}, PairStrategy{"tp 2", Sharding::kDdp, 1, 1, 2},
               PairStrategy{"zero3 2 x tp 2", Sharding::kZero3, 1, 2, 2}, PairStrategy{"cp 2", Sharding::kDdp, 1, 1, 1, 2},
               PairStrategy{"ring 4", Sharding::kZero3, 1, 1, 1, 4, 1, CpMethod::kRing},
               PairStrategy{"ulysses 2 x tp 2", Sharding::kDdp, 1, 1, 2, 2, 1, CpMethod::kAllGather},
               PairStrategy{"pp 2", Sharding::kDdp, 1, 1, 1, 1, 2}, PairStrategy{"zero2 2 x pp 2", Sharding::kZero2, 1, 2, 1, 1, 2},
               PairStrategy{"tp 2 x pp 2", Sharding::kDdp, 1, 1, 2, 1, 2}, PairStrategy{"cp 2 x pp 2", Sharding::kDdp, 1, 1, 1, 2, 2});
  const auto loss = GENERATE(as<std::string>{}, "smoothed", "ipo");
  TinyOptions o;
  o.geometry = even_geometry();
  o.preference = preference_of(loss);
  o.sequence_length = 16;
  o.steps = 6;
  o.sharding = s.sharding, o.replicate = s.replicate, o.shard = s.shard, o.tp = s.tp, o.cp = s.cp, o.pp = s.pp;
  o.cp_method = s.method;
  o.accumulation = 2;
  INFO(s.name << ", " << loss);
  check_as_one_rank(o, {Recompute::kNone, Recompute::kFull});
}

TEST_CASE("preference pairs allocate nothing while a step runs but what is declared", "[preference]") {
  TinyOptions o;
  o.geometry = even_geometry();
  o.preference = preference_of("sigmoid");
  o.tp = GENERATE(1, 2);
  const Plan plan = tiny_plan(o);
  CHECK(undeclared_bytes(plan, *make_fake_communicator(plan.mesh, o.tp - 1)) == "");
}

// The reference's forward is an evaluation: the same bits as the policy's at step 0, so that every reward there is 0.
TEST_CASE("preference pairs: what the parameters of now make of them is what the first step finds", "[preference]") {
  TinyOptions o;
  o.geometry = even_geometry();
  o.preference = preference_of("sigmoid");
  o.accumulation = 2;
  o.shard = GENERATE(1, 2);
  o.sharding = o.shard > 1 ? Sharding::kZero3 : Sharding::kDdp;
  const Plan plan = tiny_plan(o);
  run_ranks(plan.mesh, [&](Communicator& communicator) {
    const auto device = make_cpu_device();
    Engine engine(plan, *device, communicator);
    engine.initialize_parameters();
    engine.load();
    const Batch batch = rank_batch(plan, global_batch(plan, 0), data_index(plan.mesh, communicator.rank()));
    const std::vector<float> reference = engine.sequence_logps({batch.ids, batch.targets, batch.valid});
    if (!std::all_of(reference.begin(), reference.end(), [](float logp) { return logp < -1; })) throw std::runtime_error("no logps");
    const StepStats stats = engine.step({batch.ids, batch.targets, batch.valid, 1e-2, reference});
    const PreferenceNumbers& numbers = stats.preference.value();
    if (numbers[kRewardsChosen] != 0 || numbers[kRewardsRejected] != 0 || numbers[kRewardAccuracies] != 0)
      throw std::runtime_error("rewards at step 0");
    if (std::abs(stats.loss - std::log(2.0)) > 1e-12) throw std::runtime_error("the loss at step 0 is not log 2");
  });
}

TEST_CASE("preference pairs: sequences of a batch's filling count for nothing, a swapped pair is another loss", "[preference]") {
  TinyOptions o;
  o.preference = preference_of("sigmoid");
  const Plan plan = tiny_plan(o);
  const auto device = make_cpu_device();
  const auto self = make_self_communicator(plan.mesh);
  Engine engine(plan, *device, *self);
  engine.initialize_parameters();
  engine.load();
  Batch batch = global_batch(plan, 0);
  const int64_t S = plan.train.sequence_length;
  const double all = engine.evaluate({batch.ids, batch.targets, batch.valid, batch.reference});
  Batch swapped = batch;
  std::swap_ranges(swapped.targets.begin(), swapped.targets.begin() + S, swapped.targets.begin() + S);
  std::swap_ranges(swapped.ids.begin(), swapped.ids.begin() + S, swapped.ids.begin() + S);
  std::swap(swapped.reference[0], swapped.reference[1]);
  CHECK(std::abs(engine.evaluate({swapped.ids, swapped.targets, swapped.valid, swapped.reference}) - all) > 1e-3);
  Batch off_by_one = batch;
  off_by_one.targets[0] = -1;
  CHECK(std::abs(engine.evaluate({off_by_one.ids, off_by_one.targets, off_by_one.valid, off_by_one.reference}) - all) > 1e-4);
  std::fill(batch.targets.begin() + 2 * S, batch.targets.end(), -1);  // one pair is left
  Batch one = batch;
  const double alone = engine.evaluate({one.ids, one.targets, 1, one.reference});
  batch.reference.assign(batch.reference.size(), -123);
  std::copy_n(one.reference.begin(), 2, batch.reference.begin());
  CHECK(engine.evaluate({batch.ids, batch.targets, 1, batch.reference}) == alone);
  CHECK_THROWS_AS(engine.evaluate({batch.ids, batch.targets, 1}), std::invalid_argument);
}

TEST_CASE("the loss of a pair is finite at any margin, and follows its derivatives", "[preference]") {
  for (const PairLoss loss : {PairLoss::kSigmoid, PairLoss::kHinge, PairLoss::kIpo}) {
    for (const double smoothing : {0.0, 0.3}) {
      const PairLossShape shape = {loss, 0.5, loss == PairLoss::kSigmoid ? smoothing : 0};
      for (const float logp : {-3000.0f, -70.0f, -40.5f, -12.25f, -0.5f}) {
        const SequenceLogp rejected = {-20, 6, -21};
        const auto at = [&](float more) { return pair_loss({logp + more, 4, -30}, rejected, shape); };
        const PairResult here = at(0);
        INFO(int(loss) << " " << logp);
        CHECK(std::isfinite(here.loss));
        const double step = std::abs(logp) > 1000 ? 1 : 0.0625, slope = (at(float(step)).loss - at(float(-step)).loss) / (2 * step);
        CHECK(here.by_chosen == Approx(slope).epsilon(2e-3).margin(1e-5));
      }
    }
  }
}

}  // namespace
}  // namespace distsetup
