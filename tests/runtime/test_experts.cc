// Mixtures of experts on one rank and on several. What their programs compute is held against Transformers in
// tests/integration/families_all.sh.
#include <mutex>
#include <string>

#include "plan/expand.h"
#include "plan/expert_rules.h"
#include "plan/pipeline_rules.h"
#include "runtime/as_one_rank.h"
#include "runtime/engine/threads.h"
#include "runtime/expert_cases.h"
#include "runtime/kernels/cpu/experts.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using namespace tiny;

struct ExpertStrategy {
  std::string name;
  Sharding sharding;
  int replicate, shard, cp = 1, pp = 1;
  bool reshard = true;
};
const std::vector<ExpertStrategy>& strategies() {
  static const std::vector<ExpertStrategy> all = {{"ddp 2", Sharding::kDdp, 2, 1},
                                                  {"zero1 2", Sharding::kZero1, 1, 2},
                                                  {"zero2 2", Sharding::kZero2, 1, 2},
                                                  {"zero3 2", Sharding::kZero3, 1, 2},
                                                  {"zero3 kept 2", Sharding::kZero3, 1, 2, 1, 1, false},
                                                  {"hybrid 2 x 2", Sharding::kZero3, 2, 2},
                                                  {"cp 2", Sharding::kDdp, 1, 1, 2},
                                                  {"zero1 2 x cp 2", Sharding::kZero1, 1, 2, 2},
                                                  {"pp 2", Sharding::kDdp, 1, 1, 1, 2},
                                                  {"zero2 2 x pp 2", Sharding::kZero2, 1, 2, 1, 2}};
  return all;
}
void split(TinyOptions& o, const ExpertStrategy& s) {
  o.sharding = s.sharding, o.replicate = s.replicate, o.shard = s.shard, o.cp = s.cp, o.pp = s.pp, o.reshard = s.reshard;
}

TEST_CASE("experts train with every sharding, accumulation and recomputation as on one rank", "[experts]") {
  for (const std::string which : {"qwen2", "mixtral", "qwen3", "glm4", "gpt_oss"}) {
    for (const ExpertStrategy& s : strategies()) {
      const bool has_all = which == "qwen2" || which == "glm4";  // of the others what their own ops and names touch
      if (!has_all && s.name != "zero3 2" && s.name != "pp 2") continue;
      INFO(which << " " << s.name);
      TinyOptions o;
      o.geometry = expert_geometry(which);
      o.steps = 4;
      o.accumulation = 2;
      split(o, s);
      if (s.pp > 1)
        check_as_one_rank(o, {Recompute::kFull});
      else
        check_as_one_rank(o, has_all ? std::vector{Recompute::kSelective, Recompute::kFull} : std::vector{Recompute::kNone});
    }
  }
}

TEST_CASE("experts of which one gets every token train with every sharding as on one rank", "[experts]") {
  for (const ExpertStrategy& s : strategies()) {
    INFO(s.name);
    TinyOptions o;
    o.geometry = adversarial_geometry();
    o.steps = 4;
    o.accumulation = 2;
    split(o, s);
    check_as_one_rank(o, {Recompute::kNone});
  }
  TinyOptions o;  // and it is so
  o.geometry = adversarial_geometry();
  const Plan plan = tiny_plan(o);
  run_ranks(plan.mesh, [&](Communicator& communicator) {
    const auto device = make_cpu_device();
    EngineOptions options;
    int64_t seen = 0;
    options.watch = [&](const Step& step, const Call& call) {
      if (step.kernel != "grouped_linear_dw") return;
      const auto* starts = static_cast<const int64_t*>(call.reads[2].data);
      seen += starts[1] == call.reads[0].dim(0);
    };
    RunResult result;
    train_rank(plan, 3, options, communicator, *device, result);
    CHECK(seen == 3 * 2 * 2);  // steps, layers, products
  });
}

// As Transformers has it, each micro-batch has a loss of its own: runs with the same micro-batches agree.
TEST_CASE("experts spread by a load-balancing loss train with every sharding as on one rank with the same micro-batches",
          "[experts]") {
  TinyOptions alone;
  alone.geometry = expert_geometry("qwen3");
  alone.geometry.router_loss = 0.5;
  alone.steps = 4;
  alone.accumulation = 4;
  const RunResult one = train(tiny_plan(alone), 4);
  TinyOptions without = alone;
  without.geometry.router_loss = 0;
  const RunResult plain = train(tiny_plan(without), 4);
  CHECK(one.losses[0] - plain.losses[0] > 0.5 * 2 * 0.9);  // k experts of equal share give k
  CHECK(one.losses[0] - plain.losses[0] < 0.5 * 2 * 2);
  CHECK(difference(one.gradients, plain.gradients) > 1e-3);
  for (const ExpertStrategy& s : strategies()) {
    INFO(s.name);
    TinyOptions o = alone;
    split(o, s);
    o.accumulation = 4 / (s.replicate * s.shard);
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      o.recompute = recompute;
      CHECK(check_job(tiny_plan(o)).empty());
      const RunResult run = train(tiny_plan(o), 4);
      CHECK(difference(run.losses, one.losses) < 1e-5);
      CHECK(difference(run.parameters, one.parameters) < 1e-4);
      CHECK(run.held_out == Approx(one.held_out).epsilon(1e-5));
      CHECK(train(tiny_plan(o), 4, {.poison = true}) == run);
    }
  }
}

// Its sums go from stage to stage with the rows, and come back with their gradients.
TEST_CASE("the load-balancing loss of a pipeline is of the routers of all its stages", "[experts][all]") {
  struct Stages {
    int pp, chunks;
    Recompute recompute;
    bool chunked_loss = false, on_host = false;
  };
  for (const std::string which : {"qwen2", "gpt_oss"})  // a dense layer among those with experts; none
    for (const Stages& s : {Stages{2, 1, Recompute::kNone}, Stages{4, 1, Recompute::kFull, true}, Stages{2, 2, Recompute::kSelective},
                            Stages{3, 2, Recompute::kFull}, Stages{2, 1, Recompute::kSelective, false, true}}) {
      INFO(which << " pp " << s.pp << " in " << s.chunks << " parts");
      TinyOptions o;
      o.geometry = expert_geometry(which);
      o.geometry.num_layers = 6;
      if (which == "qwen2") o.geometry.expert_layer = {true, false, true, false, false, true};
      o.geometry.router_loss = 0.5;
      o.steps = 4, o.accumulation = s.pp == 3 ? 3 : 4, o.global_batch = 12;
      o.chunked_loss = s.chunked_loss;
      const RunResult one = train(tiny_plan(o), 4);
      o.pp = s.pp, o.chunks = s.chunks, o.recompute = s.recompute;
      Plan plan = tiny_plan(o);
      if (s.on_host) plan.offload.activations = OffloadPlace::kHost;
      REQUIRE(check_job(plan) == std::vector<std::string>{});
      const RunResult run = train(plan, 4);
      CHECK(difference(run.losses, one.losses) < 1e-5);
      CHECK(difference(run.norms, one.norms) < 1e-4);
      CHECK(difference(run.parameters, one.parameters) < 1e-4);
      CHECK(run.held_out == Approx(one.held_out).epsilon(1e-5));
      CHECK(train(plan, 4, {.poison = true}) == run);
      CHECK(train(plan, 4) == run);
    }
}

TEST_CASE("the z-loss of a router: its gradient is its slope", "[experts]") {
  const int64_t T = 4, E = 5;
  std::vector<float> logits(T * E), gradient(T * E);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = float(i * 7 % 11) / 3 - 1;
  cpu::router_z_loss_backward<float>(logits.data(), nullptr, gradient.data(), T, E, T, 0.3);
  double by_hand = 0;
  for (int64_t t = 0; t < T; ++t) {
    double sum = 0;
    for (int64_t e = 0; e < E; ++e) sum += std::exp(double(logits[size_t(t * E + e)]));
    by_hand += std::log(sum) * std::log(sum) / double(T);
  }
  CHECK(cpu::router_z_loss<float>(logits.data(), T, E, 0.3) == Approx(0.3 * by_hand).epsilon(1e-6));
  for (size_t i = 0; i < logits.size(); ++i) {
    constexpr float kStep = 1.0f / 64;
    std::vector<float> up = logits, down = logits;
    up[i] += kStep, down[i] -= kStep;
    const double slope =
        (cpu::router_z_loss<float>(up.data(), T, E, 0.3) - cpu::router_z_loss<float>(down.data(), T, E, 0.3)) / (2 * double(kStep));
    CHECK(double(gradient[i]) == Approx(slope).epsilon(1e-3).margin(1e-6));
  }
}

// A mean over tokens: however they are dealt to ranks and micro-batches.
TEST_CASE("a router's z-loss trains with every sharding and accumulation as on one rank", "[experts][all]") {
  for (const std::string which : {"mixtral", "glm4"}) {
    TinyOptions alone;
    alone.geometry = expert_geometry(which);
    alone.geometry.router_z_loss = 0.5;
    alone.steps = 4;
    const RunResult one = train(tiny_plan(alone), 4);
    TinyOptions without = alone;
    without.geometry.router_z_loss = 0;
    const RunResult plain = train(tiny_plan(without), 4);
    CHECK(one.losses[0] > plain.losses[0] + 0.1);
    CHECK(one.held_out < one.losses[0]);  // which is of tokens alone
    CHECK(difference(one.gradients, plain.gradients) > 1e-3);
    for (const ExpertStrategy& s : strategies()) {
      TinyOptions o = alone;
      split(o, s);
      INFO(which << " " << s.name);
      for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
        o.recompute = recompute;
        CHECK(check_job(tiny_plan(o)) == std::vector<std::string>{});
        const RunResult run = train(tiny_plan(o), 4);
        CHECK(difference(run.losses, one.losses) < 1e-5);
        CHECK(difference(run.parameters, one.parameters) < 1e-4);
        CHECK(train(tiny_plan(o), 4, {.poison = true}) == run);
      }
    }
  }
}

TEST_CASE("experts allocate nothing while a step runs but what is declared", "[experts]") {
  for (const std::string which : {"mixtral", "qwen2", "glm4", "gpt_oss", "adversarial"}) {
    for (const Dtype precision : {Dtype::kF32, Dtype::kBf16}) {
      INFO(which << " " << name(precision));
      TinyOptions o;
      o.geometry = which == "adversarial" ? adversarial_geometry() : expert_geometry(which);
      o.precision = precision;
      const Plan plan = tiny_plan(o);
      run_ranks(plan.mesh, [&](Communicator& communicator) { CHECK(undeclared_bytes(plan, communicator) == ""); });
    }
  }
}

TEST_CASE("experts in bf16 follow fp32, and threads change no bit", "[experts]") {
  TinyOptions o;
  o.geometry = expert_geometry(GENERATE("qwen2", "gpt_oss"));
  o.steps = 8;
  const RunResult exact = train(tiny_plan(o), 8);
  const int threads = compute_threads_now();
  set_compute_threads(3);
  const RunResult several = train(tiny_plan(o), 8);
  set_compute_threads(threads);
  CHECK(difference(several.losses, exact.losses) < 1e-6);
  o.precision = Dtype::kBf16;
  o.sharding = Sharding::kZero3, o.shard = 2, o.accumulation = 2;
  const RunResult rounded = train(tiny_plan(o), 8);
  CHECK(difference(rounded.losses, exact.losses) < 3e-2);
  CHECK(train(tiny_plan(o), 8, {.poison = true}) == rounded);
}

// What each step moves: for every expert by the rate, against its share of all tokens of the step; nothing else of it changes.
TEST_CASE("corrections of experts move against their share of a step's tokens, whoever has them", "[experts]") {
  TinyOptions o;
  o.geometry = expert_geometry("glm4");
  o.sharding = Sharding::kZero3, o.shard = 2, o.accumulation = 2;
  const Plan plan = tiny_plan(o);
  std::vector<int64_t> chosen(6);
  std::mutex mutex;
  RunResult result;
  run_ranks(plan.mesh, [&](Communicator& communicator) {
    const auto device = make_cpu_device();
    EngineOptions options;
    options.watch = [&](const Step& step, const Call& call) {
      if (step.kernel != "sort_experts" || step.recomputed) return;
      const std::lock_guard<std::mutex> lock(mutex);
      for (int64_t i = 0; i < numel(call.reads[0]); ++i) ++chosen[static_cast<const size_t*>(call.reads[0].data)[i]];
    };
    Engine engine(plan, *device, communicator, options);
    engine.initialize_parameters();
    engine.load();
    const Batch batch = rank_batch(plan, global_batch(plan, 0), data_index(plan.mesh, communicator.rank()));
    engine.step({batch.ids, batch.targets, batch.valid, 1e-2});
    collect(plan.model, engine, engine.master(), result.parameters);
  });
  const Layout whole = make_layout(plan.model, {});
  int64_t all = 0;
  for (const int64_t n : chosen) all += n;
  CHECK(all == o.global_batch * o.sequence_length * 2);
  int found = 0;
  for (size_t u = 0; u < whole.units.size(); ++u) {
    for (const Parameter& p : whole.units[u].parameters) {
      if (!p.balances) continue;
      ++found;
      for (size_t e = 0; e < 6; ++e) {
        const int64_t above = chosen[e] * 6 - all;
        CHECK(result.parameters[u][size_t(p.offset) + e] == Approx(above > 0 ? -0.01 : above < 0 ? 0.01 : 0).margin(1e-7));
      }
    }
  }
  CHECK(found == 1);
}

// --- kernels

TEST_CASE("experts are chosen by the largest scores, of equal ones the first, from the best groups", "[experts]") {
  const std::vector<float> logits = {1, 3, 3, 2, 0, -1, 5, 4};
  std::vector<float> weights(3);
  std::vector<int64_t> choice(3);
  Router r;
  r.num_experts = 8, r.k = 3;
  cpu::route<float>(logits.data(), nullptr, weights.data(), choice.data(), 1, r);
  CHECK(choice == std::vector<int64_t>{6, 7, 1});
  double sum = 0;
  for (const float l : logits) sum += std::exp(double(l));
  CHECK(weights[2] == Approx(std::exp(3.0) / sum));
  r.normalized = true, r.scaling = 2.5f;
  cpu::route<float>(logits.data(), nullptr, weights.data(), choice.data(), 1, r);
  CHECK(weights[0] + weights[1] + weights[2] == Approx(2.5));
  // Four groups of two, of which the largest scores are 3, 3, 0, 5.
  r.groups = 4, r.groups_chosen = 2;
  cpu::route<float>(logits.data(), nullptr, weights.data(), choice.data(), 1, r);
  CHECK(choice == std::vector<int64_t>{6, 7, 1});
  // By the sum of both scores, with a bias that takes part in the choice and not in the weights.
  r.score = RouterScore::kSigmoid, r.normalized = false, r.scaling = 1, r.groups_chosen = 1;
  const std::vector<float> bias = {0, 0, 0, 0, 9, 0, 0, 0};
  r.k = 2;
  cpu::route<float>(logits.data(), bias.data(), weights.data(), choice.data(), 1, r);
  CHECK(choice[0] == 4);
  CHECK(choice[1] == 5);
  CHECK(weights[0] == Approx(0.5));
}

TEST_CASE("a router's gradient is that of its weights", "[experts]") {
  const std::vector<float> logits = {0.3f, -1.2f, 0.8f, 0.1f, 0.5f}, dweights = {0.7f, -0.4f};
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    for (const bool normalized : {false, true}) {
      Router r;
      r.score = score, r.num_experts = 5, r.k = 2, r.normalized = normalized, r.scaling = 1.7f;
      std::vector<float> weights(2), gradient(5);
      std::vector<int64_t> choice(2), moved_choice(2);
      cpu::route<float>(logits.data(), nullptr, weights.data(), choice.data(), 1, r);
      cpu::route_backward<float>(dweights.data(), logits.data(), choice.data(), nullptr, gradient.data(), 1, r);
      for (size_t e = 0; e < 5; ++e) {
        const auto at = [&](float by) {
          std::vector<float> moved = logits;
          moved[e] += by;
          cpu::route<float>(moved.data(), nullptr, weights.data(), moved_choice.data(), 1, r);
          REQUIRE(moved_choice == choice);
          return double(weights[0]) * dweights[0] + double(weights[1]) * dweights[1];
        };
        CHECK((at(0.01f) - at(-0.01f)) / 0.02 == Approx(gradient[e]).margin(2e-4));
      }
    }
  }
}

TEST_CASE("rows of experts lie expert by expert in the order of tokens, and come back", "[experts]") {
  const std::vector<int64_t> choice = {2, 0, 2, 3, 0, 2};  // three tokens with two of five experts each
  std::vector<int64_t> order(6), place(6), starts(6);
  cpu::sort_experts(choice.data(), order.data(), place.data(), starts.data(), 6, 5, 6, 6);
  CHECK(order == std::vector<int64_t>{1, 4, 0, 2, 5, 3});
  CHECK(starts == std::vector<int64_t>{0, 2, 2, 5, 6, 6});
  for (size_t i = 0; i < 6; ++i) CHECK(place[size_t(order[i])] == int64_t(i));
  const std::vector<float> x = {1, 2, 10, 20, 100, 200};
  std::vector<float> rows(12), back = {1, 1, 1, 1, 1, 1};
  cpu::permute<float>(x.data(), order.data(), rows.data(), 0, 6, 2, 2);
  CHECK(rows == std::vector<float>{1, 2, 100, 200, 1, 2, 10, 20, 100, 200, 10, 20});
  cpu::unpermute<float>(rows.data(), place.data(), back.data(), back.data(), 0, 3, 2, 2);
  CHECK(back == std::vector<float>{3, 5, 21, 41, 201, 401});
}

TEST_CASE("an expert with a capacity takes the first of its rows, and the others are no token's", "[experts]") {
  const std::vector<int64_t> choice = {2, 0, 2, 3, 0, 2};
  std::vector<int64_t> order(6, 7), place(6), starts(6);
  cpu::sort_experts(choice.data(), order.data(), place.data(), starts.data(), 6, 5, 2, 6);
  CHECK(order == std::vector<int64_t>{1, 4, 0, 2, 3, -1});
  CHECK(starts == std::vector<int64_t>{0, 2, 2, 4, 5, 5});
  CHECK(place == std::vector<int64_t>{2, 0, 3, 4, 1, -1});
  const std::vector<float> x = {1, 2, 10, 20, 100, 200};
  std::vector<float> rows(12, 7), back(6);
  cpu::permute<float>(x.data(), order.data(), rows.data(), 0, 6, 2, 2);
  CHECK(rows == std::vector<float>{1, 2, 100, 200, 1, 2, 10, 20, 10, 20, 7, 7});
  cpu::unpermute<float>(rows.data(), place.data(), nullptr, back.data(), 0, 3, 2, 2);
  CHECK(back == std::vector<float>{2, 4, 20, 40, 100, 200});
  CHECK(capacity_rows(1.25, 60, 8) == 10);  // ceil(1.25 · 60 / 8)
  CHECK(capacity_rows(0, 60, 8) == 60);
  CHECK(sorted_rows(1.25, 60, 8) == 60);
  CHECK(sorted_rows(0.5, 60, 8) == 32);
}

TEST_CASE("a capacity that no expert reaches changes no bit, a smaller one takes less memory", "[experts]") {
  TinyOptions o;
  o.geometry = expert_geometry("qwen2");
  o.steps = 4, o.accumulation = 2;
  const Plan plan = tiny_plan(o);
  const RunResult all = train(plan, o.steps);
  o.geometry.expert_capacity = 3;  // 6 experts, of which a token has 2: the rows of all tokens
  CHECK(train(tiny_plan(o), o.steps) == all);
  o.geometry.expert_capacity = 0.7;
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    INFO(name(recompute));
    o.recompute = recompute;
    const Plan small = tiny_plan(o);
    const RunResult run = train(small, o.steps);
    CHECK(run.losses != all.losses);
    CHECK(train(small, o.steps, {.poison = true}) == run);
    run_ranks(small.mesh, [&](Communicator& communicator) { CHECK(undeclared_bytes(small, communicator) == ""); });
    CHECK(compile_expanded(small, Phase::kStep).arena_bytes < compile_expanded(plan, Phase::kStep).arena_bytes);
  }
}

}  // namespace
}  // namespace distsetup
