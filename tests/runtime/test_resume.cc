// Engine and checkpoint together: an engine whose parameters come from a file.
#include <catch2/catch.hpp>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/load.h"
#include "runtime/comm/tracing.h"
#include "runtime/device/cpu_device.h"
#include "runtime/oracle.h"
#include "runtime/ranks.h"
#include "runtime/tiny.h"
#include "support/temporary_directory.h"

using namespace distsetup;

namespace {

ShardState state_of(Engine& engine) { return {&engine.layout(), engine.place(), engine.master(), engine.optimizer_states()}; }

void save(Engine& engine, const std::string& directory, int64_t step) {
  REQUIRE(begin_checkpoint(directory, step).empty());
  const Result<std::map<std::string, FileDigest>> digests = write_rank_files(directory, step, 0, state_of(engine));
  REQUIRE(digests.ok());
  CheckpointMetadata metadata;
  metadata.step = step;
  REQUIRE(commit_checkpoint(directory, state_of(engine), "", metadata, *digests).empty());
}

}  // namespace

// Rotary tables are no parameters: an engine that is filled from a file must have made them as well as one that initialised itself.
TEST_CASE("regression 16: an engine filled from a checkpoint computes what a plain model does, and goes on as the first one would",
          "[engine]") {
  const TemporaryDirectory folder;
  const std::string directory = folder.path();
  const Plan plan = tiny::tiny_plan({});
  const tiny::Batch held_out = tiny::global_batch(plan, 1000), next = tiny::global_batch(plan, 3);
  const std::unique_ptr<Communicator> self = make_self_communicator(plan.mesh);
  const std::unique_ptr<Device> device = make_cpu_device();
  Engine first(plan, *device, *self);
  first.initialize_parameters();
  first.load();
  for (int64_t s = 0; s < 3; ++s) {
    const tiny::Batch batch = tiny::global_batch(plan, s);
    first.step({batch.ids, batch.targets, batch.valid, learning_rate(plan.train, s)});
  }
  save(first, directory, 3);
  std::vector<std::vector<float>> parameters;
  tiny::collect(plan.model, first, first.master(), parameters);
  const oracle::Model plain(plan.model, parameters);
  const double expected = plain.loss(held_out, plan.train.sequence_length).item<double>();
  const StepStats straight = first.step({next.ids, next.targets, next.valid, learning_rate(plan.train, 3)});

  tiny::TinyOptions options;
  // What is kept of activations, and how many rows have logits at once, is no part of a checkpoint.
  for (const auto& [ranks, cp, pp, is_lean] : {std::tuple(1, 1, 1, false),
                                               {2, 1, 1, false},
                                               {1, 2, 1, false},
                                               {1, 1, 2, false},
                                               {2, 1, 2, false},
                                               {1, 1, 1, true},
                                               {2, 1, 1, true},
                                               {2, 1, 2, true}}) {
    options.chunked_loss = is_lean;
    options.recompute = is_lean ? Recompute::kKeepAttention : Recompute::kNone;
    options.reductions_in_flight = is_lean ? 2 : 1;
    options.shard = ranks;
    options.cp = cp;
    options.pp = pp;
    options.sharding = Sharding::kZero3;
    const Plan resumed_plan = tiny::tiny_plan(options);
    Diagnostics found;
    double loss = 0;
    StepStats stats;
    run_ranks(resumed_plan.mesh, [&](Communicator& communicator) {
      const std::unique_ptr<Device> mine = make_cpu_device();
      Engine engine(resumed_plan, *mine, communicator);
      const Diagnostics problems = load_shard(directory, 3, state_of(engine));
      engine.set_steps_done(3);
      engine.load();
      const int index = data_index(resumed_plan.mesh, communicator.rank());
      const tiny::Batch part = tiny::rank_batch(resumed_plan, held_out, index), step = tiny::rank_batch(resumed_plan, next, index);
      const double evaluated = engine.evaluate({part.ids, part.targets, part.valid});
      const StepStats taken = engine.step({step.ids, step.targets, step.valid, learning_rate(resumed_plan.train, 3)});
      if (communicator.rank() != 0) return;
      found = problems;
      loss = evaluated;
      stats = taken;
    });
    INFO(ranks << " ranks x cp " << cp << " x pp " << pp << (is_lean ? ", lean" : ""));
    CHECK(found.empty());
    CHECK(loss == Approx(expected).epsilon(1e-5));
    CHECK(stats.loss == Approx(straight.loss).epsilon(1e-6));
    CHECK(stats.gradient_norm == Approx(straight.gradient_norm).epsilon(1e-5));
  }
}
