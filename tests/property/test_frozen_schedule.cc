// Plans that train a part of a model, or adapters beside it, obey the rules of every schedule: random models, meshes and choices of
// what is trained. No torch.
#include <catch2/catch.hpp>
#include <set>

#include "plan/check_job.h"
#include "plan/expand.h"
#include "plan/nf4.h"
#include "support/broken_lists_property.h"
#include "support/property.h"
#include "support/random_plan.h"
#include "support/schedule_rules.h"

namespace distsetup {
namespace {

const std::vector<std::string> kPatterns = {"model.embed_tokens",
                                            "lm_head|model.norm",
                                            "model.norm",
                                            "model.layers.0",
                                            "model.layers.[02].mlp.*",
                                            ".*q_proj.weight",
                                            ".*k_proj",
                                            ".*bias",
                                            ".*layernorm",
                                            ".*q_norm",
                                            ".*"};
const std::vector<std::string> kTargets = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};

void choose_tuning(Draw& random, Plan& plan) {
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  TrainPlan& t = plan.train;
  if (pick(0, 1) == 0) {
    t.finetune = plan.mesh.tp > 1 || pick(0, 1) == 0 ? "lora" : "qlora";
    t.lora_rank = pick(1, 9);
    t.lora_alpha = pick(1, 32);
    t.rslora = pick(0, 1) == 1;
    if (pick(0, 2) == 0) t.lora_targets = {std::string(kAllLinear)};
    while (t.lora_targets.empty())
      for (const std::string& target : kTargets)
        if (pick(0, 2) == 0) t.lora_targets.push_back(target);
  } else {
    while (t.trainable.empty())
      for (const std::string& pattern : kPatterns)
        if (pick(0, 5) == 0) t.trainable.push_back(pattern);
  }
}

// A plan whose patterns and targets all mean something in its model.
Plan draw_plan() {
  Draw random;
  const Geometry geometry = random_geometry(random);
  PlanChoice choice = random_choice(random);
  Plan plan = make_test_plan(geometry, choice, kAnyCut);
  choose_tuning(random, plan);
  const Tuning tuning = tuning_of(plan.train);
  RC_PRE(check_native(plan.model, split_of(plan), tuning).empty());
  plan.recompute.dropped = dropped_tensors(plan.model, plan.recompute.policy, tuning);
  RC_LOG() << describe(plan) << " " << plan.train.finetune << " " << plan.train.lora_rank << " "
           << fmt::format("{}{}", fmt::join(plan.train.lora_targets, ","), fmt::join(plan.train.trainable, " "));
  return plan;
}

TEST_CASE("random plans with frozen parameters obey every schedule rule", "[all]") {
  int num_frozen = 0, num_adapters = 0, num_quantized = 0, num_whole = 0, num_staged = 0, num_idle = 0, num_sent_back = 0;
  check_property(
      700,
      [&] {
        const Plan plan = draw_plan();
        assert_obeys_rules(plan);
        const std::shared_ptr<const Layout> layout = compile_schedule(plan, Phase::kStep).layout;
        num_adapters += plan.train.finetune == "lora";
        num_quantized += layout->quantized_bytes > 0;
        num_frozen += layout->frozen_numel > 0;
        num_whole += layout->frozen_numel == 0;
        num_staged += plan.mesh.pp > 1;
        for (int stage = 0; plan.mesh.pp > 1 && stage < plan.mesh.pp; ++stage) {
          const Schedule s = compile_schedule(plan, Phase::kStep, stage);
          num_idle += s.layout->shard_numel == 0;
          num_sent_back += std::any_of(s.instructions.begin(), s.instructions.end(), [](const Instruction& i) {
            return i.op == InstructionOp::kSend && i.stream == Stream::kToPrevious;
          });
        }
      },
      50);
  CHECK(num_frozen > 20);
  CHECK(num_adapters > 5);
  CHECK(num_quantized > 5);
  CHECK(num_whole > 0);  // ".*"
  CHECK(num_staged > 20);
  CHECK(num_idle > 5);       // stages on which nothing is trained
  CHECK(num_sent_back > 5);  // gradients to a stage below
}

TEST_CASE("a list with frozen parameters and an instruction dropped or doubled breaks a rule of its own") {
  check_property(
      500,
      [] {
        const Plan plan = draw_plan();
        Draw random;
        Schedule list = compile_schedule(plan, Phase::kStep);
        assert_breaking_is_caught(plan, std::move(list), random);
      },
      50);
}

TEST_CASE("what is frozen has no gradient, no moments and no collective but its gathers") {
  Plan plan = make_test_plan(tiny_geometry(3), {.sharding = Sharding::kZero3, .dp_shard = 2, .compute = Dtype::kBf16});
  const Schedule whole = compile_schedule(plan, Phase::kStep);
  plan.train.trainable = {"model.layers.1.mlp"};
  const Schedule part = compile_schedule(plan, Phase::kStep);
  const UnitLayout& trained = part.layout->units[2];
  CHECK(part.layout->trained_numel == 3 * 96 * 32);
  CHECK(trained.numel == part.layout->trained_numel);
  CHECK(part.layout->shard_numel == trained.shard_numel);
  CHECK(run_bytes(part, BufferClass::kOptimizerState) == 2 * 4 * trained.shard_numel);
  const int64_t frozen_bytes = 2 * part.layout->frozen_numel;
  CHECK(run_bytes(part, BufferClass::kParameterShard) == 4 * trained.shard_numel + frozen_bytes);
  CHECK(2 * part.layout->frozen_numel < run_bytes(whole, BufferClass::kParameterShard) * 2 / 3);
  std::set<int> backward, reduced;
  for (const Instruction& i : part.instructions) {
    if (i.op == InstructionOp::kBackward) backward.insert(i.unit);
    if (i.op == InstructionOp::kReduceScatter) reduced.insert(i.unit);
  }
  CHECK(backward == std::set<int>{2, 3, 4});  // nothing below the lowest that is trained
  CHECK(reduced == std::set<int>{2});
}

TEST_CASE("a stage below which nothing is trained sends no gradients, and one where nothing is trained passes them on") {
  Plan plan = make_test_plan(tiny_geometry(6), {.sharding = Sharding::kDdp, .accumulation = 4, .pp = 3});
  plan.train.trainable = {"model.layers.2.mlp.down_proj"};  // stages hold layers 0 and 1, 2 and 3, 4 and 5
  const auto count = [&](int stage, InstructionOp op, Stream stream) {
    const Schedule s = compile_schedule(plan, Phase::kStep, stage);
    return std::count_if(s.instructions.begin(), s.instructions.end(),
                         [&](const Instruction& i) { return i.op == op && i.stream == stream; });
  };
  CHECK(check_job(plan) == std::vector<std::string>{});
  CHECK(count(2, InstructionOp::kSend, Stream::kToPrevious) == 4);
  CHECK(count(1, InstructionOp::kSend, Stream::kToPrevious) == 0);
  CHECK(count(0, InstructionOp::kRecv, Stream::kFromNext) == 0);
  CHECK(count(0, InstructionOp::kBackward, Stream::kCompute) == 0);
  CHECK(count(1, InstructionOp::kBackward, Stream::kCompute) == 2 * 4);  // layers 3 and 2
  const Schedule first = compile_expanded(plan, Phase::kStep, 0);
  for (const Buffer& b : first.buffers) CHECK(b.name.find("kept") == std::string::npos);
}

TEST_CASE("matrices of blocks are held as nf4, gathered as bytes and made again in backward") {
  Plan plan = make_test_plan(tiny_geometry(3), {.sharding = Sharding::kZero3, .dp_shard = 2, .compute = Dtype::kBf16});
  plan.train.finetune = "qlora";
  plan.train.lora_rank = 2, plan.train.lora_alpha = 4, plan.train.lora_targets = {"v_proj"};
  const Schedule s = compile_expanded(plan, Phase::kStep);
  const Layout& layout = *s.layout;
  CHECK(layout.quantized_numel == 3 * (32 * 32 + 2 * 32 * 16 + 32 * 32 + 3 * 96 * 32));
  CHECK(layout.numel - layout.quantized_numel ==
        layout.trained_numel + 2 * plan.model.vocabulary * 32 + 7 * 32);  // embedding, head, norms
  int64_t gathered = 0;
  for (const Instruction& i : s.instructions) {
    if (i.op != InstructionOp::kAllGather || !layout.units[size_t(i.bucket)].is_quantized) continue;
    CHECK(i.dtype == Dtype::kInt8);
    gathered = i.bytes;
  }
  CHECK(gathered * 3 < layout.quantized_numel * 9 / 16 + 3 * 7 * kNf4Alignment + 3 * 128);
  // Of 4 matrices in each of 3 layers. The first layer's q, k and v are read by forward alone, since nothing below them is trained;
  // and in its backward nothing reads what was made of the others before attention.
  int forward = 0, backward = 0;
  for (const Step& step : s.steps)
    if (step.kernel == "dequantize_nf4") ++(step.recomputed ? backward : forward);
  CHECK(forward == 12);
  CHECK(backward == 11);
  for (const Buffer& b : s.buffers)
    if (b.name.ends_with("_matrix")) CHECK(b.last_step - b.first_step < 4);
}

TEST_CASE("frozen parameters are split with zero3 alone") {
  for (const Sharding sharding : {Sharding::kZero1, Sharding::kZero2, Sharding::kZero3}) {
    Plan plan = make_test_plan(tiny_geometry(1), {.sharding = sharding, .dp_shard = 4});
    plan.train.trainable = {"lm_head"};
    const Schedule s = compile_schedule(plan, Phase::kStep);
    const int64_t frozen = s.layout->numel - s.layout->trained_numel;
    CHECK(s.layout->frozen_numel >= (sharding == Sharding::kZero3 ? frozen / 4 : frozen));
    CHECK(s.layout->frozen_numel < (sharding == Sharding::kZero3 ? frozen / 4 : frozen) + 64);
  }
}

}  // namespace
}  // namespace distsetup
