// Plans whose reference runs in the step obey the rules of every schedule: random models, meshes and choices of what is trained. No
// torch.
#include <catch2/catch.hpp>
#include <set>

#include "plan/check_job.h"
#include "plan/expand.h"
#include "plan/layout_cache.h"
#include "plan/reference.h"
#include "support/broken_lists_property.h"
#include "support/property.h"
#include "support/random_plan.h"
#include "support/schedule_rules.h"

namespace distsetup {
namespace {

void add_adapters(Plan& plan, const std::string& kind, int64_t rank) {
  plan.train.finetune = kind;
  plan.train.lora_rank = rank, plan.train.lora_alpha = 4;
  plan.train.lora_targets = {"q_proj", "v_proj", "up_proj"};
  plan.recompute.dropped = dropped_tensors(plan.model, plan.recompute.policy, tuning_of(plan.train));
}

Plan draw_plan() {
  Draw random;
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  const Geometry geometry = random_geometry(random);
  PlanChoice choice = random_choice(random);
  choice.pairs = true;
  Plan plan = make_test_plan(geometry, choice, kAnyCut);
  const int what = pick(0, 3);
  if (what < 2 && plan.mesh.tp == 1) add_adapters(plan, what == 0 ? "lora" : "qlora", pick(1, 5));
  if (what == 2) plan.train.trainable = {"model.layers.0"};
  plan.train.preference.reference = plan.train.finetune != "full" && pick(0, 1) == 0 ? "shared" : "sharded";
  plan.recompute.dropped = dropped_tensors(plan.model, plan.recompute.policy, tuning_of(plan.train));
  RC_PRE(check_native(plan.model, split_of(plan), tuning_of(plan.train)).empty());
  RC_LOG() << describe(plan) << " " << plan.train.finetune << " " << plan.train.preference.reference;
  return plan;
}

TEST_CASE("random plans with a reference in the step obey every schedule rule", "[all]") {
  int num_shared = 0, num_sharded = 0;
  check_property(
      700,
      [&] {
        const Plan plan = draw_plan();
        assert_obeys_rules(plan);
        ++(plan.train.preference.reference == "shared" ? num_shared : num_sharded);
      },
      50);
  CHECK(num_shared > 2);
  CHECK(num_sharded > 10);
}

TEST_CASE("a list with a reference and an instruction dropped or doubled breaks a rule of its own") {
  check_property(
      500,
      [] {
        const Plan plan = draw_plan();
        Draw random;
        assert_breaking_is_caught(plan, compile_schedule(plan, Phase::kStep), random);
      },
      50);
}

Plan pairs_plan(const std::string& reference, Sharding sharding = Sharding::kZero3) {
  Plan plan = make_test_plan(tiny_geometry(3), {.sharding = sharding, .dp_shard = 2, .compute = Dtype::kBf16, .pairs = true});
  plan.train.preference.reference = reference;
  return plan;
}

TEST_CASE("a shared reference takes no parameters, no gather and no bytes that live as long as the run") {
  for (const std::string kind : {"lora", "qlora"}) {
    Plan cached = pairs_plan("cached"), shared = pairs_plan("shared");
    add_adapters(cached, kind, 2);
    add_adapters(shared, kind, 2);
    const Schedule without = compile_schedule(cached, Phase::kStep), with = compile_schedule(shared, Phase::kStep);
    CHECK(run_bytes(with) == run_bytes(without));
    const auto count = [](const Schedule& s, InstructionOp op) {
      return std::count_if(s.instructions.begin(), s.instructions.end(), [&](const Instruction& i) { return i.op == op; });
    };
    CHECK(count(with, InstructionOp::kAllGather) == count(without, InstructionOp::kAllGather));
    CHECK(count(with, InstructionOp::kForward) == 2 * count(without, InstructionOp::kForward));
    CHECK(count(with, InstructionOp::kBackward) == count(without, InstructionOp::kBackward));
  }
}

TEST_CASE("a sharded reference is a copy of what is trained in the compute type, and no more") {
  for (const Sharding sharding : {Sharding::kZero1, Sharding::kZero3}) {
    const Schedule without = compile_schedule(pairs_plan("cached", sharding), Phase::kStep);
    const Schedule with = compile_schedule(pairs_plan("sharded", sharding), Phase::kStep);
    const int64_t copy = 2 * with.layout->frozen_numel;
    CHECK(run_bytes(with) - run_bytes(without) == copy);
    const int64_t whole = 2 * with.layout->numel / (sharding == Sharding::kZero3 ? 2 : 1);
    CHECK(copy >= whole);
    CHECK(copy < whole + 64 * 8);
    CHECK(with.layout->trained_numel == with.layout->numel);
    CHECK(parameter_numbers(pairs_plan("sharded")).reference == with.layout->numel);
  }
  Plan lora = pairs_plan("sharded");
  add_adapters(lora, "lora", 2);
  const Layout layout = make_layout(lora);
  lora.train.preference.reference = "cached";
  CHECK(layout.frozen_numel - make_layout(lora).frozen_numel == layout.shard_numel);
}

// Each is a list that a bug could write.
TEST_CASE("lists in which the reference is more or less than it should be are refused") {
  const Plan plan = pairs_plan("sharded");
  const auto refused = [&](const std::function<void(Schedule&)>& change) {
    Schedule list = compile_schedule(plan, Phase::kStep);
    REQUIRE(check_invariants(plan, list).empty());
    change(list);
    const std::vector<std::string> rules = check_invariants(plan, list);
    return rules.empty() ? std::string("nothing") : fmt::format("{}", fmt::join(rules, "\n"));
  };
  const auto find = [](Schedule& s, const std::function<bool(const Instruction&)>& is_it) -> Instruction& {
    const auto found = std::find_if(s.instructions.begin(), s.instructions.end(), is_it);
    REQUIRE(found != s.instructions.end());
    return *found;
  };
  const auto buffer = [](const Schedule& s, std::string_view name) {
    const auto found = std::find_if(s.buffers.begin(), s.buffers.end(), [&](const Buffer& b) { return b.name == name; });
    REQUIRE(found != s.buffers.end());
    return static_cast<int>(found - s.buffers.begin());
  };
  SECTION("the copy enters a reduction") {
    const std::string why = refused([&](Schedule& s) {
      Instruction& reduce = find(s, [](const Instruction& i) { return i.op == InstructionOp::kReduceScatter; });
      reduce.unit = s.layout->reference_unit(reduce.unit);
    });
    CHECK(why.find("which is frozen") != std::string::npos);
  }
  SECTION("the copy is stepped") {
    const std::string why = refused([&](Schedule& s) {
      find(s, [](const Instruction& i) { return i.op == InstructionOp::kOptimizerStep; }).uses.push_back(buffer(s, kFrozenBuffer));
    });
    CHECK(why.find("the optimizer changes 'frozen'") != std::string::npos);
  }
  SECTION("the reference reads what is trained") {
    const std::string why = refused([&](Schedule& s) { s.reference_variant = s.unit_variant; });
    CHECK(why.find("which is trained") != std::string::npos);
  }
  SECTION("the loss comes before the reference") {
    const std::string why = refused([&](Schedule& s) {
      find(s, [&](const Instruction& i) { return is_reference(i) && i.unit + 1 == s.layout->num_programs; }).micro_batch += 1;
    });
    CHECK(why.find("before its reference") != std::string::npos);
  }
  SECTION("the reference runs backward") {
    const std::string why =
        refused([&](Schedule& s) { find(s, [](const Instruction& i) { return is_reference(i); }).op = InstructionOp::kBackward; });
    CHECK(why.find("the reference runs Backward") != std::string::npos);
  }
}

TEST_CASE("what a reference cannot be is refused by name") {
  const auto said = [](const Plan& plan) { return format_diagnostics(validate(plan)); };
  CHECK(said(pairs_plan("shared")).find("this plan has no adapters") != std::string::npos);
  CHECK(said(pairs_plan("frozen")).find("expected cached, shared, sharded or none") != std::string::npos);
  Plan stages = make_test_plan(tiny_geometry(3), {.sharding = Sharding::kDdp, .pp = 2, .pairs = true});
  stages.train.preference.reference = "sharded";
  CHECK(said(stages).empty());
}

}  // namespace
}  // namespace distsetup
