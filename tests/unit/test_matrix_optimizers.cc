// What Adafactor and Muon keep and exchange, and a run file of every optimizer.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "base/json.h"
#include "base/value_yaml.h"
#include "cli/settings/run_layers.h"
#include "plan/optimizer.h"
#include "plan/plan_json.h"
#include "plan/update_layout.h"
#include "planner/search/make_plan.h"
#include "support/problems.h"
#include "support/random_plan.h"

using namespace distsetup;

namespace {

Plan plan_with(const std::string& optimizer, int shard) {
  PlanChoice choice;
  choice.optimizer = optimizer;
  choice.dp_shard = shard;
  return make_test_plan(tiny_geometry(3), choice);
}

TEST_CASE("states of whole matrices: each element of each tensor is had once, and lies inside its buffer") {
  for (const char* optimizer : {"adafactor", "muon"}) {
    const Plan plan = plan_with(optimizer, 3);
    const Layout layout = make_layout(plan);
    const StateSizes room = state_sizes(layout);
    for (const OptimizerState& state : optimizer_states(plan.train)) {
      std::map<std::string, int64_t> had, whole;
      for (int rank = 0; rank < 3; ++rank) {
        std::set<int64_t> places;
        for (const StatePiece& piece : state_pieces(layout, state.name, state.scope, {.dp_shard = rank})) {
          for (int64_t i = 0; i < piece.box.numel(); ++i) CHECK(places.insert(piece.box.shard_offset + i).second);
          CHECK(piece.box.shard_offset + piece.box.numel() <= room.of(state.scope));
          had[piece.name()] += piece.is_copy ? 0 : piece.box.numel();
          whole[piece.name()] = 1;
          for (const int64_t size : piece.shape) whole[piece.name()] *= size;
        }
      }
      CHECK(had == whole);
      int64_t all = 0;
      for (const auto& [name, numel] : whole) all += numel;
      CHECK(all == stored_sizes(layout).of(state.scope));
    }
  }
}

TEST_CASE("muon: matrices of blocks, dealt out so that no rank has much more to do than another") {
  const Layout layout = make_layout(plan_with("muon", 3));
  std::map<int, double> load;
  size_t matrices = 0;
  for (const std::vector<HiddenMatrix>& unit : hidden_matrices(layout)) {
    for (const HiddenMatrix& m : unit) {
      ++matrices;
      CHECK(m.parameter->name.find(".layers.") != std::string::npos);
      load[m.owner] += orthogonalize_flops(m.rows, m.columns, 5);
    }
  }
  CHECK(matrices == 3 * 7);
  REQUIRE(load.size() == 3);
  for (const auto& [rank, flops] : load) CHECK(flops < 1.3 * load[0]);
}

TEST_CASE("the rate of a matrix follows its published shape") {
  Parameter p;
  p.shape = p.full_shape = {64, 16};
  MuonPlan muon;
  CHECK(rate_factor(muon, p) == Approx(0.2 * 8));
  muon.adjust_lr = kOriginalRate;
  CHECK(rate_factor(muon, p) == Approx(2));
  p.transposed = true;  // published as 16 × 64
  CHECK(rate_factor(muon, p) == Approx(1));
}

TEST_CASE("bytes of Adafactor and Muon follow from the model") {
  const Plan plan = plan_with("muon", 1);
  const Layout layout = make_layout(plan);
  const StateSizes sizes = state_sizes(layout);
  CHECK(optimizer_bytes(plan.train, sizes) == 4 * (sizes.elements + sizes.rest));
  CHECK(sizes.rest < sizes.elements / 2);
  TrainPlan adafactor = plan.train;
  adafactor.optimizer = kAdafactor;
  const int64_t h = 32, q = 32, kv = 16, f = 96, block = 2 * h + (q + h) + 2 * (kv + h) + (h + q) + 3 * (f + h);
  CHECK(sizes.factors == 2 * (256 + h) + h + 3 * block);  // embedding and head, the last norm, blocks
  CHECK(optimizer_bytes(adafactor, sizes) == 4 * sizes.factors);
  CHECK(stored_states(adafactor) == std::vector<std::string>{"", ".row_var", ".col_var", ".variance"});
}

TEST_CASE("tensor parallelism is refused by the name of the optimizer") {
  PlanChoice choice;
  choice.optimizer = "adafactor";
  choice.tp = 2;
  const Diagnostics said = validate(make_test_plan(tiny_geometry(), choice));
  REQUIRE(has_error(said));
  CHECK(said.front().message.find("adafactor sees whole matrices") == 0);
}

// Each optimizer of the bundled trainer with all that it can be told.
const std::map<std::string, std::string> kToldOptimizers = {
    {"adamw", R"("beta1": 0.8, "beta2": 0.97, "epsilon": 1e-7)"},
    {"adamw_8bit", R"("beta1": 0.8, "beta2": 0.97, "epsilon": 1e-7)"},
    {"lion", R"("beta1": 0.8, "beta2": 0.97)"},
    {"sgd", R"("momentum": 0.7)"},
    {"adafactor", R"("epsilon": 1e-6, "beta2_decay": -0.7, "epsilon2": 1e-2, "clip_threshold": 2.0)"},
    {"muon", R"("momentum": 0.9, "nesterov": false, "newton_schulz_steps": 4, "adjust_lr": "original", "adam_learning_rate": 1e-3,
                "beta1": 0.8, "beta2": 0.97, "epsilon": 1e-7)"},
};

Result<Plan> plan_of_text(const std::string& text) {
  const Result<Value> file = parse_yaml(text, "run.yaml");
  if (!file.ok()) return file.diagnostics;
  const Result<Spec> spec = spec_of_run_file(&*file);
  if (!spec.ok()) return spec.diagnostics;
  const Result<Problem> problem = resolve(*spec, presets(), {});
  if (!problem.ok()) return problem.diagnostics;
  return make_plan(*problem);
}

TEST_CASE("run.yaml to plan to plan.json and back, with every optimizer and all that it is told") {
  for (const auto& [optimizer, told] : kToldOptimizers) {
    INFO(optimizer);
    const std::string text =
        "version: 1\nmodel: quickstart\nhardware: {gpu: cpu, gpus_per_node: 2, nodes: 1}\ntrain: {optimizer: " + optimizer +
        ", sequence_length: 64, global_batch: 8, steps: 20, learning_rate: 1e-2, weight_decay: 0.03, " + told + "}\n";
    const Result<Plan> plan = plan_of_text(text);
    INFO(format_diagnostics(plan.diagnostics));
    REQUIRE(plan.ok());
    const Json json = to_json(*plan), settings = Json::parse("{" + told + "}");
    for (const auto& [key, value] : settings.items()) CHECK(json["train"][key] == value);
    const Result<Plan> again = plan_from_json(dump_json(json), "plan.json");
    INFO(format_diagnostics(again.diagnostics));
    REQUIRE(again.ok());
    CHECK(again->train == plan->train);
    CHECK(again->schedule_digest == plan->schedule_digest);
  }
  std::set<std::string> tested;
  for (const auto& [optimizer, told] : kToldOptimizers) tested.insert(optimizer);
  for (const std::string& name : tested) CHECK(is_native_optimizer(name));
  const std::string known = native_optimizers();
  CHECK(static_cast<size_t>(std::count(known.begin(), known.end(), ',')) + 1 == tested.size());
}

TEST_CASE("a setting of another optimizer is refused") {
  for (const std::string told :
       {"optimizer: adamw, beta2_decay: -0.5", "optimizer: adafactor, beta1: 0.9", "optimizer: sgd, nesterov: true",
        "optimizer: lion, adam_learning_rate: 1e-3", "optimizer: muon, clip_threshold: 2"}) {
    const Result<Plan> plan = plan_of_text(
        "version: 1\nmodel: quickstart\nhardware: {gpu: cpu, gpus_per_node: 2, nodes: 1}\ntrainer: {name: native}\ntrain: {" + told +
        "}\n");
    INFO(told);
    REQUIRE_FALSE(plan.ok());
    CHECK(format_diagnostics(plan.diagnostics).find("this run's optimizer is") != std::string::npos);
  }
}

}  // namespace
