// Experts that ranks share: each has some of every layer's, and rows of tokens travel to them. Held against one rank that has them
// all.
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "plan/workspace.h"
#include "runtime/as_one_rank.h"
#include "runtime/comm/tracing.h"
#include "runtime/engine/threads.h"
#include "runtime/expert_cases.h"
#include "support/seed.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using namespace tiny;

struct SharedStrategy {
  std::string name;
  Sharding sharding;
  int replicate, shard, ep, cp = 1;
  CpMethod cp_method = CpMethod::kAllGather;
  bool reshard = true;
  int pp = 1, chunks = 1, tp = 1;
};
const std::vector<SharedStrategy>& strategies() {
  static const std::vector<SharedStrategy> all = {
      {"ddp, ep 2", Sharding::kDdp, 1, 2, 2},
      {"ddp 2, ep 2", Sharding::kDdp, 2, 2, 2},
      {"zero1 2, ep 2", Sharding::kZero1, 1, 2, 2},
      {"zero1 4, ep 2", Sharding::kZero1, 1, 4, 2},
      {"zero2 2, ep 2", Sharding::kZero2, 1, 2, 2},
      {"zero2 4, ep 2", Sharding::kZero2, 1, 4, 2},
      {"zero3 2, ep 2", Sharding::kZero3, 1, 2, 2},
      {"zero3 4, ep 2", Sharding::kZero3, 1, 4, 2},
      {"zero3 kept 4, ep 2", Sharding::kZero3, 1, 4, 2, 1, CpMethod::kAllGather, false},
      {"hybrid 2 x 2, ep 2", Sharding::kZero3, 2, 2, 2},
      {"ddp, ep 4", Sharding::kDdp, 1, 4, 4},
      {"zero1 4, ep 4", Sharding::kZero1, 1, 4, 4},
      {"zero2 4, ep 4", Sharding::kZero2, 1, 4, 4},
      {"zero3 4, ep 4", Sharding::kZero3, 1, 4, 4},
      {"ddp, cp 2, ep 2", Sharding::kDdp, 1, 1, 2, 2},
      {"zero2 2, cp 2, ep 2", Sharding::kZero2, 1, 2, 2, 2},
      {"zero3 2, cp 2 by ring, ep 4", Sharding::kZero3, 1, 2, 4, 2, CpMethod::kRing},
      {"zero3 2, cp 2 by ulysses, ep 4", Sharding::kZero3, 1, 2, 4, 2, CpMethod::kUlysses},
      {"pp 2, ddp, ep 2", Sharding::kDdp, 1, 2, 2, 1, CpMethod::kAllGather, true, 2},
      {"pp 2, zero2 2, ep 2", Sharding::kZero2, 1, 2, 2, 1, CpMethod::kAllGather, true, 2},
      {"pp 2, zero3 4, ep 2", Sharding::kZero3, 1, 4, 2, 1, CpMethod::kAllGather, true, 2},
      {"tp 2, ddp, ep 2", Sharding::kDdp, 1, 1, 2, 1, CpMethod::kAllGather, true, 1, 1, 2},
      {"tp 2, ddp, ep 4", Sharding::kDdp, 1, 2, 4, 1, CpMethod::kAllGather, true, 1, 1, 2},
      {"tp 2, zero1, ep 1", Sharding::kZero1, 1, 1, 1, 1, CpMethod::kAllGather, true, 1, 1, 2},
      {"tp 2, zero1 2, ep 1", Sharding::kZero1, 1, 2, 1, 1, CpMethod::kAllGather, true, 1, 1, 2},
      {"tp 2, zero2 2, ep 2", Sharding::kZero2, 1, 2, 2, 1, CpMethod::kAllGather, true, 1, 1, 2},
      {"tp 2, zero3, ep 1", Sharding::kZero3, 1, 1, 1, 1, CpMethod::kAllGather, true, 1, 1, 2},
      {"tp 2, zero3 2, ep 1", Sharding::kZero3, 1, 2, 1, 1, CpMethod::kAllGather, true, 1, 1, 2},
      {"tp 2, zero3 2, ep 4", Sharding::kZero3, 1, 2, 4, 1, CpMethod::kAllGather, true, 1, 1, 2},
      {"tp 2, hybrid 2 x 1, ep 2", Sharding::kZero3, 2, 1, 2, 1, CpMethod::kAllGather, true, 1, 1, 2},
      {"tp 2, zero3 1, cp 2, ep 4", Sharding::kZero3, 1, 1, 4, 2, CpMethod::kAllGather, true, 1, 1, 2},
      {"tp 2, zero3 2, cp 2, ep 2", Sharding::kZero3, 1, 2, 2, 2, CpMethod::kRing, true, 1, 1, 2},
      {"tp 2, pp 2, zero3, ep 1", Sharding::kZero3, 1, 1, 1, 1, CpMethod::kAllGather, true, 2, 1, 2},
      {"tp 2, pp 2, zero2 2, ep 2", Sharding::kZero2, 1, 2, 2, 1, CpMethod::kAllGather, true, 2, 1, 2}};
  return all;
}
void split(TinyOptions& o, const SharedStrategy& s) {
  o.sharding = s.sharding, o.replicate = s.replicate, o.shard = s.shard, o.ep = s.ep;
  o.cp = s.cp, o.cp_method = s.cp_method, o.reshard = s.reshard, o.pp = s.pp, o.chunks = s.chunks, o.tp = s.tp;
}

// Three experts on each of two ranks, one on each of four.
Geometry shared_geometry(const std::string& which, int ep) {
  Geometry g = which == "adversarial" ? adversarial_geometry() : expert_geometry(which);
  g.num_experts = ep == 4 ? 4 : 6;
  g.feed_forward = 38;  // which two ranks of tensor parallelism can split
  if (which == "glm4") g.router_groups = g.num_experts / 2;
  return g;
}

TinyOptions shared_options(const std::string& which, const SharedStrategy& s) {
  TinyOptions o;
  o.geometry = shared_geometry(which, s.ep);
  o.steps = 4;
  split(o, s);
  return o;
}

void check_strategies(const std::string& which, const std::vector<Recompute>& ways, int each = 1) {
  for (size_t n = 0; n < strategies().size(); n += size_t(each)) {
    const SharedStrategy& s = strategies()[n];
    INFO(which << " " << s.name);
    TinyOptions o = shared_options(which, s);
    o.accumulation = 2;
    check_as_one_rank(o, ways);
  }
}

TEST_CASE("experts shared by ranks train with every sharding, accumulation and recomputation as on one rank",
          "[expert_parallel][nightly][all]") {
  const std::vector<Recompute> all = {Recompute::kNone, Recompute::kSelective, Recompute::kKeepAttention, Recompute::kFull};
  if (is_nightly()) return check_strategies("qwen2", all);
  check_strategies("qwen2", {Recompute::kFull}, 2);
  check_strategies("qwen2", {Recompute::kSelective}, 7);
}

TEST_CASE("experts shared by ranks train as on one rank, whichever family", "[expert_parallel][nightly][all]") {
  const int each = is_nightly() ? 1 : 7;
  check_strategies("glm4", {Recompute::kNone}, each);
  check_strategies("mixtral", {Recompute::kSelective}, each);
  check_strategies("qwen3", {Recompute::kFull}, each);
  check_strategies("gpt_oss", {Recompute::kSelective, Recompute::kFull}, each);
}

TEST_CASE("the load-balancing loss is of the tokens of all tensor- and context-parallel ranks", "[expert_parallel]") {
  for (const char* which : {"mixtral", "qwen2"})
    for (const SharedStrategy& s : {SharedStrategy{"ep 1", Sharding::kZero1, 1, 1, 1, 1, CpMethod::kAllGather, true, 1, 1, 2},
                                    SharedStrategy{"ep 2", Sharding::kDdp, 1, 1, 2, 1, CpMethod::kAllGather, true, 1, 1, 2},
                                    SharedStrategy{"pp 2, ep 2", Sharding::kZero1, 1, 1, 2, 1, CpMethod::kAllGather, true, 2, 1, 2},
                                    SharedStrategy{"cp 2, ep 1", Sharding::kZero3, 1, 1, 1, 2},
                                    SharedStrategy{"cp 2, tp 2, ep 4", Sharding::kZero2, 1, 1, 4, 2, CpMethod::kRing, true, 1, 1, 2},
                                    SharedStrategy{"cp 2, pp 2, ep 2", Sharding::kDdp, 1, 1, 2, 2, CpMethod::kRing, true, 2}}) {
      INFO(which << " " << s.name);
      TinyOptions o = shared_options(which, s);
      o.geometry.router_loss = 0.5;
      check_as_one_rank(o, {Recompute::kNone, Recompute::kFull});
    }
}

TEST_CASE("the z-loss is of the tokens of all tensor-parallel ranks, of each their part of its gradient",
          "[expert_parallel][nightly][all]") {
  int number = 0;
  for (const char* which : {"mixtral", "glm4", "gpt_oss"}) {
    for (const SharedStrategy& s : strategies()) {
      if (s.tp == 1 || !is_taken(number++, 3)) continue;
      INFO(which << " " << s.name);
      TinyOptions o = shared_options(which, s);
      o.geometry.router_z_loss = 0.5;
      o.accumulation = 2;
      check_as_one_rank(o, {Recompute::kNone, Recompute::kFull});
    }
  }
}

// What is dropped depends on the tokens that a rank has: the same ranks without shared experts
// drop the same.
TEST_CASE("ranks that share experts with a capacity train as the same ranks with all experts each", "[expert_parallel][all]") {
  for (const char* which : {"mixtral", "glm4"})
    for (const SharedStrategy& s :
         {SharedStrategy{"zero1 2, ep 2", Sharding::kZero1, 1, 2, 2}, SharedStrategy{"zero3 2, ep 2", Sharding::kZero3, 1, 2, 2},
          SharedStrategy{"pp 2, zero2 2, ep 2", Sharding::kZero2, 1, 2, 2, 1, CpMethod::kAllGather, true, 2},
          SharedStrategy{"tp 2, zero2 2, ep 4", Sharding::kZero2, 1, 2, 4, 1, CpMethod::kAllGather, true, 1, 1, 2}}) {
      INFO(which << " " << s.name);
      TinyOptions o = shared_options(which, s);
      o.geometry.expert_capacity = 0.75;
      o.accumulation = 2;
      for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
        o.recompute = recompute;
        o.ep = s.ep;
        const Plan plan = tiny_plan(o);
        REQUIRE(check_job(plan) == std::vector<std::string>{});
        const RunResult run = train(plan, o.steps);
        CHECK(train(plan, o.steps, {.poison = true}) == run);
        o.ep = 1;
        const RunResult apart = train(tiny_plan(o), o.steps);
        CHECK(difference(run.losses, apart.losses) < 1e-5);
        CHECK(difference(run.norms, apart.norms) < 1e-4);
        CHECK(difference(run.parameters, apart.parameters) < 1e-4);
      }
    }
}

TEST_CASE("shared experts of which one gets every token train with every sharding as on one rank", "[expert_parallel][nightly][all]") {
  check_strategies("adversarial", {Recompute::kNone}, is_nightly() ? 1 : 3);
  TinyOptions o;  // and it is so: all rows of all ranks come to the first
  o.geometry = shared_geometry("adversarial", 2);
  o.sharding = Sharding::kZero3, o.shard = 2, o.ep = 2;
  const Plan plan = tiny_plan(o);
  std::atomic<int> full = 0, empty = 0;
  run_ranks(plan.mesh, [&](Communicator& communicator) {
    const auto device = make_cpu_device();
    EngineOptions options;
    options.watch = [&](const Step& step, const Call& call) {
      if (step.kernel != "grouped_linear_dw") return;
      const auto* starts = static_cast<const int64_t*>(call.reads[2].data);
      const int64_t rows = starts[call.reads[2].dim(0) - 1];
      full += communicator.rank() == 0 && rows == call.reads[0].dim(0);
      empty += communicator.rank() == 1 && rows == 0;
    };
    RunResult result;
    train_rank(plan, 3, options, communicator, *device, result);
  });
  CHECK(full == 3 * 2 * 2);  // steps, layers, products
  CHECK(empty == 3 * 2 * 2);
}

TEST_CASE(
    "shared experts learn from pairs as on one rank, also beside the reference that is the model "
    "without adapters",
    "[expert_parallel][nightly][all]") {
  const size_t each = is_nightly() ? 1 : 2;
  for (size_t n = 0; n < strategies().size(); n += each) {
    const SharedStrategy& s = strategies()[n];
    for (const bool has_adapters : {false, true}) {
      if (has_adapters && s.tp > 1) continue;
      INFO(s.name << (has_adapters ? ", adapters" : ""));
      TinyOptions o;
      o.geometry = shared_geometry("mixtral", s.ep);
      o.steps = 4;
      o.accumulation = 2;
      o.preference = PreferencePlan{};
      if (has_adapters) o.rank = 3, o.targets = {"q_proj", "v_proj"}, o.preference->reference = "shared";
      split(o, s);
      check_as_one_rank(o, {Recompute::kSelective});
    }
  }
}

TEST_CASE("shared experts with accumulation of four and one micro-batch train as on one rank", "[expert_parallel][nightly][all]") {
  for (const int64_t accumulation : {1, 4}) {
    for (const SharedStrategy& s : strategies()) {
      if (s.replicate * s.shard * accumulation > 8 || s.cp > 1) continue;
      if (!is_nightly() && s.shard != (accumulation == 1 ? 4 : 2)) continue;
      INFO(s.name << " accumulation " << accumulation);
      TinyOptions o;
      o.geometry = shared_geometry("mixtral", s.ep);
      o.steps = 3;
      o.accumulation = accumulation;
      split(o, s);
      check_as_one_rank(o, {Recompute::kNone});
    }
  }
}

TEST_CASE("shared experts in bf16 follow fp32, and a rerun is equal to the bit", "[expert_parallel][nightly][all]") {
  int number = 0;
  for (const SharedStrategy& s : strategies()) {
    if (s.cp > 1 || (!is_nightly() && s.ep == 4) || !is_taken(number++, 2)) continue;
    INFO(s.name);
    TinyOptions o;
    o.geometry = shared_geometry("qwen2", s.ep);
    o.steps = 6;
    const RunResult& exact = on_one_rank(o);
    o.precision = Dtype::kBf16;
    o.accumulation = 2;
    split(o, s);
    CHECK(check_job(tiny_plan(o)).empty());
    const RunResult rounded = train(tiny_plan(o), 6);
    CHECK(difference(rounded.losses, exact.losses) < 3e-2);
    CHECK(train(tiny_plan(o), 6, {.poison = true}) == rounded);
  }
}

TEST_CASE("a part of a model whose experts ranks share is trained as on one rank", "[expert_parallel][nightly][all]") {
  const std::vector<TunedCase> cases = {{"adapters on q and v", {}, {"q_proj", "v_proj"}, 3},
                                        {"adapters on all", {}, {std::string(kAllLinear)}, 2},
                                        {"experts of the first layer", {"model.layers.0.mlp.experts"}, {}, 0},
                                        {"down projections of experts, norms", {".*experts.*down_proj", ".*norm"}, {}, 0}};
  for (size_t n = 0; n < strategies().size(); ++n) {
    const SharedStrategy& s = strategies()[n];
    for (size_t of = 0; of < cases.size(); ++of) {
      if (!is_taken(int(n * cases.size() + of), 7)) continue;
      const TunedCase& c = cases[of];
      INFO(s.name << ", " << c.name);
      TinyOptions o;
      o.geometry = shared_geometry("qwen2", s.ep);
      o.steps = 4;
      o.accumulation = 2;
      tune(o, c);
      split(o, s);
      check_as_one_rank(o, {is_nightly() ? Recompute::kNone : Recompute::kFull});
    }
  }
}

// Of the first rank, beside ranks that send it nothing but what it has told of itself.
TEST_CASE("a rank that shares experts allocates what its list says, whatever comes", "[expert_parallel]") {
  install_meter();
  set_compute_threads(1);
  for (const std::string which : {"qwen2", "adversarial"}) {
    for (const Dtype precision : {Dtype::kF32, Dtype::kBf16}) {
      for (const SharedStrategy& s : strategies()) {
        INFO(which << " " << name(precision) << " " << s.name);
        TinyOptions o;
        o.geometry = shared_geometry(which, s.ep);
        o.precision = precision;
        split(o, s);
        o.global_batch = 8 * s.replicate * s.shard,
        o.sequence_length = 12 * s.cp;  // the tokens of a rank that other tests have
        const Plan plan = tiny_plan(o);
        const auto fake = make_fake_communicator(plan.mesh, 0);
        CHECK(undeclared_bytes(plan, *fake) == "");
        const auto device = make_cpu_device();
        const MeterReading before = read_meter();
        Engine engine(plan, *device, *fake, {});
        const MemoryReport report = engine.memory();
        const Schedule& list = engine.schedule(Phase::kStep);
        CHECK(report.metered_bytes[Device::kArenaTag] - before.live_by_tag[Device::kArenaTag] == list.arena_bytes);
        for (int c = 0; c < kNumBufferClasses; ++c)
          CHECK(report.metered_bytes[size_t(c)] - before.live_by_tag[size_t(c)] == run_bytes(list, BufferClass(c)));
      }
    }
  }
}

TEST_CASE("what shared experts cannot be run with is refused by name", "[expert_parallel]") {
  const auto refused = [](const TinyOptions& o, const std::function<void(Plan&)>& change = {}) {
    Plan plan = tiny_plan(o);
    if (change) change(plan);
    const Diagnostics said = validate(plan);
    return said.empty() ? std::string("accepted") : said.front().message;
  };
  TinyOptions o;
  o.geometry = expert_geometry("mixtral");
  o.geometry.num_experts = 8;
  o.sharding = Sharding::kZero3, o.shard = 4, o.ep = 4;
  CHECK(refused(o) == "accepted");
  o.ep = 3;
  CHECK(refused(o).find("8 experts over ep 3 are 2 for each rank and 2 left over") != std::string::npos);
  o.ep = 8;
  CHECK(refused(o).find("ep 8 does not divide dp_shard 4 × cp 1 = 4 ranks") != std::string::npos);
  o.ep = 2, o.sharding = Sharding::kDdp;
  CHECK(refused(o).find("with ddp the ranks of dp_shard 4 × cp 1 = 4 share experts alone, and ep is 2") != std::string::npos);
  o.sharding = Sharding::kZero2, o.shard = 2;
  CHECK(refused(o, [](Plan& p) { p.train.optimizer = kMuon; }).find("muon sees whole matrices, and ep 2") != std::string::npos);
  CHECK(refused(o, [](Plan& p) { p.train.optimizer = kAdafactor; }).find("adafactor sees whole matrices") != std::string::npos);
  const auto partly = [](Plan& p) { p.train.trainable = {".*norm.*"}; };
  CHECK(refused(o, partly) == "accepted");
  CHECK(refused(o, [](Plan& p) { p.offload.optimizer = OffloadPlace::kHost; }) == "accepted");
  o.geometry.feed_forward = 38, o.tp = 2, o.ep = 4;
  CHECK(refused(o) == "accepted");
  o.ep = 8;
  CHECK(refused(o).find("ep 8 does not divide dp_shard 2 × cp 1 × tp 2 = 4 ranks") != std::string::npos);
  o.ep = 1, o.sharding = Sharding::kDdp, o.shard = 1;
  CHECK(refused(o).find("with ddp the ranks of dp_shard 1 × cp 1 × tp 2 = 2 share experts alone, and ep is 1") != std::string::npos);
  o.sharding = Sharding::kZero1, o.shard = 2;
  CHECK(refused(o, [](Plan& p) { p.offload.optimizer = OffloadPlace::kHost; }) == "accepted");
  CHECK(refused(o, [](Plan& p) { p.model.router_z_loss = 0.01; }) == "accepted");
  o.preference = PreferencePlan{};
  CHECK(refused(o) == "accepted");
  o.preference->reference = "sharded";
  CHECK(refused(o).find("a frozen copy of its experts as the reference of pairs with tensor "
                        "parallelism over 2") != std::string::npos);
  o.tp = 1, o.ep = 2;
  CHECK(refused(o).find("a frozen copy of its experts, which 2 ranks share, as the reference") != std::string::npos);
  TinyOptions dense;
  dense.sharding = Sharding::kZero3, dense.shard = 2, dense.ep = 2;
  CHECK(refused(dense).find("it has no experts, and ep is 2") != std::string::npos);
}

}  // namespace
}  // namespace distsetup
