// The ways to have a reference of preference pairs agree: found once before the first step (cached), the model without its adapters
// (shared), a frozen copy of what is trained (sharded). And each trains on every mesh as on one rank.
#include <string>

#include "runtime/as_one_rank.h"
#include "support/seed.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using namespace tiny;

const std::vector<TunedCase> kTuned = {{"all", {}, {}},
                                       {"mlp of the last layer", {"model.layers.1.mlp"}, {}},
                                       {"adapters", {}, {"q_proj", "v_proj", "up_proj"}, 3},
                                       {"adapters, nf4", {}, {"q_proj", "v_proj"}, 2, true}};

struct ModeMesh {
  std::string name;
  Sharding sharding = Sharding::kDdp;
  int replicate = 1, shard = 1, tp = 1, cp = 1;
  int64_t accumulation = 2;
  bool reshard = true;
  int pp = 1, chunks = 1;
};
const std::vector<ModeMesh> kMeshes = {{"1"},
                                       {"ddp 2", Sharding::kDdp, 2},
                                       {"zero1 2", Sharding::kZero1, 1, 2},
                                       {"zero1 4, accumulation 1", Sharding::kZero1, 1, 4, 1, 1, 1},
                                       {"zero3 2", Sharding::kZero3, 1, 2},
                                       {"zero3 4", Sharding::kZero3, 1, 4},
                                       {"zero3 kept 2", Sharding::kZero3, 1, 2, 1, 1, 2, false},
                                       {"hybrid 2 x 2", Sharding::kZero3, 2, 2},
                                       {"tp 2", Sharding::kDdp, 1, 1, 2},
                                       {"zero3 2 x tp 2", Sharding::kZero3, 1, 2, 2},
                                       {"cp 2", Sharding::kZero3, 1, 1, 1, 2},
                                       {"pp 2", Sharding::kDdp, 1, 1, 1, 1, 4, true, 2},
                                       {"zero3 2 x pp 2", Sharding::kZero3, 1, 2, 1, 1, 2, true, 2},
                                       {"ddp 2 x pp 2", Sharding::kDdp, 2, 1, 1, 1, 2, true, 2},
                                       {"tp 2 x pp 2", Sharding::kDdp, 1, 1, 2, 1, 2, true, 2},
                                       {"pp 2 x 2 chunks", Sharding::kZero2, 1, 2, 1, 1, 2, true, 2, 2}};

TinyOptions options_of(const TunedCase& c, const ModeMesh& m, const std::string& reference, bool tied = false) {
  TinyOptions o;
  o.geometry.num_heads = 4, o.geometry.num_kv_heads = 2, o.geometry.feed_forward = 36;
  o.geometry.tied_embeddings = tied;
  tune(o, c);
  o.sharding = m.sharding, o.replicate = m.replicate, o.shard = m.shard, o.tp = m.tp, o.cp = m.cp;
  o.accumulation = m.accumulation, o.reshard = m.reshard;
  o.pp = m.pp, o.chunks = m.chunks;
  if (m.chunks > 1) o.geometry.num_layers = m.pp * m.chunks;
  o.sequence_length = 16, o.steps = 8;
  o.preference = PreferencePlan{};
  o.preference->beta = 0.3;
  o.preference->reference = reference;
  return o;
}

// Adapters are refused beside tensor parallelism. What is special in a case shows on two ranks.
bool runs_on(const TunedCase& c, const ModeMesh& m) {
  if (c.rank > 0 && m.tp > 1) return false;
  return m.replicate * m.shard * m.tp * m.cp * m.pp <= 2 || c.name == "all" || (c.name == "adapters" && m.replicate > 1);
}

std::vector<std::string> modes_of(const TunedCase& c) {
  if (c.rank > 0) return {"shared", "sharded"};
  return {"sharded"};
}

struct PairRun {
  std::vector<PreferenceNumbers> steps;
  std::vector<double> norms;
  double held_out = 0;
};

// Of rank 0. What is cached is found as the trainer does, by the model that training starts from.
PairRun run_pairs(const Plan& plan, int64_t steps) {
  PairRun run;
  run_ranks(plan.mesh, [&](Communicator& communicator) {
    const auto device = make_cpu_device();
    Engine engine(plan, *device, communicator);
    engine.initialize_parameters();
    engine.load();
    const int index = data_index(plan.mesh, communicator.rank());
    const bool is_cached = plan.train.preference.reference == "cached";
    const auto batch_of = [&](int64_t step) {
      Batch batch = rank_batch(plan, global_batch(plan, step), index);
      batch.reference.clear();
      if (is_cached) batch.reference = engine.sequence_logps({batch.ids, batch.targets, batch.valid});
      return batch;
    };
    std::vector<Batch> batches;
    for (int64_t s = 0; s <= steps; ++s) batches.push_back(batch_of(s));
    for (int64_t s = 0; s < steps; ++s) {
      const Batch& b = batches[size_t(s)];
      const StepStats stats = engine.step({b.ids, b.targets, b.valid, learning_rate(plan.train, s), b.reference});
      if (communicator.rank() != 0) continue;
      run.steps.push_back(*stats.preference);
      run.norms.push_back(stats.gradient_norm);
    }
    const double held_out =
        engine.evaluate({batches.back().ids, batches.back().targets, batches.back().valid, batches.back().reference});
    if (communicator.rank() == 0) run.held_out = held_out;
  });
  return run;
}

TEST_CASE("references that run in the step are the cached one, on every mesh", "[reference][all]") {
  for (const ModeMesh& m : kMeshes) {
    for (const TunedCase& c : kTuned) {
      if (!runs_on(c, m)) continue;
      const PairRun cached = run_pairs(tiny_plan(options_of(c, m, "cached")), 8);
      for (const std::string& mode : modes_of(c)) {
        INFO(m.name << ", " << c.name << ", " << mode);
        const PairRun run = run_pairs(tiny_plan(options_of(c, m, mode)), 8);
        REQUIRE(run.steps.size() == 8);
        for (const PreferenceNumber first : {kRewardsChosen, kRewardsRejected}) CHECK(std::abs(run.steps[0][first]) < 1e-5);
        for (size_t s = 0; s < 8; ++s)
          for (size_t n = 0; n < run.steps[s].size(); ++n)
            CHECK(run.steps[s][n] == Approx(cached.steps[s][n]).epsilon(1e-6).margin(1e-6));
        CHECK(difference(run.norms, cached.norms) < 1e-6);
        CHECK(run.held_out == Approx(cached.held_out).epsilon(1e-6));
        CHECK(std::abs(run.steps[7][kRewardsChosen]) > 1e-2);  // it is compared with where it began, not with itself
      }
    }
  }
}

TEST_CASE("a reference in the step trains on every mesh as on one rank", "[reference][nightly][all]") {
  int number = 0;
  for (const ModeMesh& m : kMeshes) {
    for (const TunedCase& c : kTuned) {
      if (!runs_on(c, m)) continue;
      for (const std::string& mode : modes_of(c)) {
        for (const bool tied : {false, true}) {
          if (tied && c.name != "all" && c.name != "adapters") continue;
          if (!is_taken(number++, 2)) continue;
          INFO(m.name << ", " << c.name << ", " << mode << (tied ? ", tied" : ""));
          TinyOptions o = options_of(c, m, mode, tied);
          o.steps = 4;
          check_as_one_rank(o, {Recompute::kFull});
        }
      }
    }
  }
}

TEST_CASE("a reference in the step takes no bytes that are not declared", "[reference]") {
  for (const TunedCase& c : kTuned) {
    for (const Dtype precision : {Dtype::kF32, Dtype::kBf16}) {
      for (const std::string& mode : modes_of(c)) {
        INFO(c.name << " in " << name(precision) << ", " << mode);
        TinyOptions o = options_of(c, {"zero3 2", Sharding::kZero3, 1, 2}, mode);
        o.precision = precision;
        if (c.quantized) o.sharding = Sharding::kZero2;  // what a fake rank would send is no record
        const Plan plan = tiny_plan(o);
        CHECK(undeclared_bytes(plan, *make_fake_communicator(plan.mesh, 1)) == "");
      }
    }
  }
}

// The copy of a wrong place would be another reference.
TEST_CASE("a sharded reference stays as it is while the model learns", "[reference]") {
  const Plan plan = tiny_plan(options_of(kTuned[0], {"zero3 2", Sharding::kZero3, 1, 2}, "sharded"));
  const PairRun run = run_pairs(plan, 8);
  Plan still = plan;
  still.train.learning_rate = still.train.min_learning_rate = 0;
  const PairRun start = run_pairs(still, 8);
  for (size_t s = 0; s < 8; ++s) {
    // rewards = beta (policy - reference): what the reference finds is what the model at the start does.
    const auto reference = [&](const PairRun& of, PreferenceNumber logps, PreferenceNumber reward) {
      return of.steps[s][logps] - of.steps[s][reward] / plan.train.preference.beta;
    };
    CHECK(reference(run, kLogpsChosen, kRewardsChosen) == Approx(reference(start, kLogpsChosen, kRewardsChosen)).epsilon(1e-6));
    CHECK(reference(run, kLogpsRejected, kRewardsRejected) ==
          Approx(reference(start, kLogpsRejected, kRewardsRejected)).epsilon(1e-6));
  }
}

}  // namespace
}  // namespace distsetup
