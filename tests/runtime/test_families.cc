// Programs beyond Llama's: each family's kernels under sharding, recomputation, bf16 and several threads. What they compute is held
// against Transformers in tests/integration/families_all.sh.
#include "runtime/family_cases.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using tiny::difference;

using tiny::families, tiny::FamilyCase;

void check_poisoned_run(const Plan& plan, const tiny::RunResult& one, double most_parameters) {
  EngineOptions poisoned;
  poisoned.poison = true;
  const tiny::RunResult many = tiny::train(plan, 6, poisoned);
  CHECK(difference(many.losses, one.losses) < 1e-5);
  CHECK(difference(many.norms, one.norms) < 1e-4);
  CHECK(difference(many.parameters, one.parameters) < most_parameters);
  CHECK(std::abs(many.held_out - one.held_out) < 1e-5 * one.held_out);
}

TEST_CASE("families: sharded, recomputed and poisoned runs are the one-rank run") {
  for (const FamilyCase& family : families()) {
    INFO(family.name);
    tiny::TinyOptions options;
    options.geometry = family.geometry;
    options.steps = 6;
    const tiny::RunResult one = tiny::train(tiny::tiny_plan(options), 6);
    CHECK(one.losses.back() < one.losses.front());
    options.sharding = Sharding::kZero3;
    options.shard = 2;
    options.accumulation = 2;
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      options.recompute = recompute;
      check_poisoned_run(tiny::tiny_plan(options), one, 1e-4);
    }
    options.precision = Dtype::kBf16;
    const tiny::RunResult rounded = tiny::train(tiny::tiny_plan(options), 6);
    CHECK(difference(rounded.losses, one.losses) < 2e-2);
  }
}

// Gradients that are zero but for rounding move no parameter by a whole step.
Plan steady_plan(const tiny::TinyOptions& options) {
  Plan plan = tiny::tiny_plan(options);
  plan.train.epsilon = 1e-6;
  return plan;
}

TEST_CASE("families: split over two tensor-parallel ranks they train as on one") {
  int num_split = 0;
  for (FamilyCase& family : families()) {
    INFO(family.name);
    tiny::TinyOptions options;
    family.geometry.feed_forward = 38;
    if (has_error(check_native(family.geometry, {.tp = 2}))) continue;
    ++num_split;
    options.geometry = family.geometry;
    options.steps = 6;
    const tiny::RunResult one = tiny::train(steady_plan(options), 6), first = tiny::train(steady_plan(options), 1);
    options.tp = 2;
    CHECK(difference(tiny::train(steady_plan(options), 1).gradients, first.gradients) < 4e-6);
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      options.recompute = recompute;
      check_poisoned_run(steady_plan(options), one, 2e-4);
    }
  }
  CHECK(num_split == 10);  // all but one kv head (Falcon) and norms over all heads (OLMo 2)
}

// Learned positions, windows, soft caps and norms of every kind, with two chunks of every sequence on each rank.
TEST_CASE("families: where two ranks share sequences, and the matrices too where they can, they train as on one", "[all]") {
  for (const FamilyCase& family : families()) {
    for (const int tp : {1, 2}) {
      INFO(family.name << " tp " << tp);
      tiny::TinyOptions options;
      options.geometry = family.geometry;
      if (tp > 1) options.geometry.feed_forward = 38;
      if (has_error(check_native(options.geometry, {.tp = tp, .cp = 2}))) {
        CHECK(tp > 1);
        continue;
      }
      options.steps = 6;
      const tiny::RunResult one = tiny::train(steady_plan(options), 6), first = tiny::train(steady_plan(options), 1);
      options.tp = tp, options.cp = 2;
      CHECK(difference(tiny::train(steady_plan(options), 1).gradients, first.gradients) < 4e-6);
      options.recompute = Recompute::kFull;
      check_poisoned_run(steady_plan(options), one, 2e-4);
    }
  }
}

TEST_CASE("families: nothing is allocated while a step runs but what is declared") {
  for (const FamilyCase& family : families()) {
    INFO(family.name);
    tiny::TinyOptions options;
    options.geometry = family.geometry;
    const Plan plan = tiny::tiny_plan(options);
    run_ranks(plan.mesh, [&](Communicator& communicator) { CHECK(tiny::undeclared_bytes(plan, communicator) == ""); });
  }
}

}  // namespace
}  // namespace distsetup
