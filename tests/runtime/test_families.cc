// Programs beyond Llama's: each family's kernels under sharding, recomputation, bf16 and several threads. What they compute is held
// against Transformers in tests/integration/families_all.sh.
#include <string>
#include <vector>

#include "runtime/tiny.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using tiny::difference;

struct FamilyCase {
  std::string name;
  Geometry geometry;
};

Geometry of(const std::string& family) {
  Geometry g = tiny::odd_geometry();
  g.family = family;
  g.num_layers = 3;
  g.hidden = 32, g.num_heads = 4, g.num_kv_heads = 2, g.head_size = 8;
  return g;
}

Geometry with_layer_norm(const std::string& family) {
  Geometry g = of(family);
  g.norm = Norm::kLayer;
  g.gated_mlp = false;
  g.activation = "gelu";
  g.qkv_bias = g.output_bias = g.mlp_bias = true;
  return g;
}

std::vector<FamilyCase> families() {
  std::vector<FamilyCase> out;
  const auto add = [&](std::string name, Geometry g) { out.push_back({std::move(name), std::move(g)}); };
  Geometry g = of("mistral");
  g.sliding_window = 5;
  add("window", g);
  g = of("gemma2");
  g.activation = "gelu_tanh", g.norms_per_layer = 4, g.tied_embeddings = true, g.sliding_window = 5, g.global_layer_every = 2;
  g.query_scalar = 20, g.attention_soft_cap = 5, g.logit_soft_cap = 3;
  add("gemma2", g);
  g = of("olmo2");
  g.qk_norm_wide = true;
  add("olmo2", g);
  g = of("granite");
  g.embedding_multiplier = 12, g.residual_multiplier = 0.22, g.attention_multiplier = 0.1, g.logits_scaling = 8;
  add("granite", g);
  g = with_layer_norm("phi");
  g.parallel_block = true, g.norms_per_layer = 1, g.head_bias = true, g.rotary_fraction = 0.5, g.activation = "gelu_tanh";
  add("phi", g);
  g = with_layer_norm("gpt_neox");
  g.parallel_block = true, g.rotary_fraction = 0.25;
  add("gpt_neox", g);
  g = with_layer_norm("gpt2");
  g.learned_positions = 16, g.tied_embeddings = true;
  add("gpt2", g);
  g = with_layer_norm("falcon");
  g.parallel_block = true, g.norms_per_layer = 1, g.num_kv_heads = 1, g.qkv_bias = g.output_bias = g.mlp_bias = false,
  g.tied_embeddings = true;
  add("falcon", g);
  return out;
}

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
    const tiny::RunResult one = tiny::train(tiny::tiny_plan(options), 6), first = tiny::train(tiny::tiny_plan(options), 1);
    options.tp = 2;
    CHECK(difference(tiny::train(tiny::tiny_plan(options), 1).gradients, first.gradients) < 4e-6);
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      options.recompute = recompute;
      check_poisoned_run(tiny::tiny_plan(options), one, 2e-4);  // AdamW takes whole steps where gradients nearly cancel
    }
  }
  CHECK(num_split == 6);  // all but one kv head (Falcon) and norms over all heads (OLMo 2)
}

// Learned positions, windows, soft caps and norms of every kind, with two chunks of every sequence on each rank.
TEST_CASE("families: where two ranks share sequences, and the matrices too where they can, they train as on one") {
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
      const auto plan_of = [](const tiny::TinyOptions& of) {
        Plan plan = tiny::tiny_plan(of);
        plan.train.epsilon = 1e-6;  // gradients that are zero but for rounding move no parameter by a whole step
        return plan;
      };
      const tiny::RunResult one = tiny::train(plan_of(options), 6), first = tiny::train(plan_of(options), 1);
      options.tp = tp, options.cp = 2;
      CHECK(difference(tiny::train(plan_of(options), 1).gradients, first.gradients) < 4e-6);
      options.recompute = Recompute::kFull;
      check_poisoned_run(plan_of(options), one, 2e-4);
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
