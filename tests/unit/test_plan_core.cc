// Mesh, expressions, programs, layout and plan.json.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <set>

#include "base/json.h"
#include "model/count.h"
#include "plan/chunked_loss.h"
#include "plan/expand.h"
#include "plan/layout.h"
#include "plan/layout_ranges.h"
#include "plan/live.h"
#include "plan/plan_json.h"
#include "plan/schedule.h"
#include "plan/schedule_text.h"
#include "support/random_plan.h"

namespace distsetup {
namespace {

TEST_CASE("ranks and coordinates are each other's inverse, tp fastest") {
  const Mesh mesh{2, 3, 2, 2, 2, 1};
  for (int rank = 0; rank < mesh.world(); ++rank) CHECK(rank_of(mesh, coordinates(mesh, rank)) == rank);
  CHECK(coordinates(mesh, 1).tp == 1);
  CHECK(coordinates(mesh, mesh.world() - 1).pp == 1);
  const Mesh hybrid{1, 2, 4, 1, 1, 1};
  CHECK(group_members(hybrid, Group::kDpShard, 5) == std::vector<int>{4, 5, 6, 7});
  CHECK(group_members(hybrid, Group::kDpReplicate, 5) == std::vector<int>{1, 5});
  CHECK(data_index(hybrid, 5) == 5);
}

TEST_CASE("expressions") {
  const Symbols s{{"T", 12}, {"h", 5}, {"kv", 2}};
  CHECK(evaluate("T*h", s) == 60);
  CHECK(evaluate("(T+2*kv)*h-1", s) == 79);
  CHECK(evaluate("ceil_div(T,h)", s) == 3);
  CHECK(evaluate("max(T,min(kv,h))/4", s) == 3);
}

// What backward of a Llama block keeps, by hand: see presets/programs/native/llama.yaml.
TEST_CASE("saved tensors and recomputed operations are derived from reads and writes") {
  const std::shared_ptr<const NativePrograms> programs = native_programs(tiny_geometry());
  const Program& block = programs->blocks[0];
  const ProgramVariant none = derive(block, {}, Pass::kTrain);
  CHECK(std::set<std::string>(none.saved.begin(), none.saved.end()) ==
        std::set<std::string>{"x", "h1", "r1", "qkv", "att", "lse", "x2", "h2", "r2", "gu", "m"});
  CHECK(none.forward.size() == 9);
  CHECK(none.backward.size() == 13);
  const auto recomputed = [&](Recompute policy) {
    const std::vector<std::string> dropped = dropped_tensors(tiny_geometry(), policy);
    const ProgramVariant v = derive(block, {dropped.begin(), dropped.end()}, Pass::kTrain);
    std::vector<std::string> out;
    for (const OpInstance& op : v.backward)
      if (op.recomputed) out.push_back(op.op->name);
    return out;
  };
  // The down projection is never redone: nothing in backward reads y.
  CHECK(recomputed(Recompute::kFull) == std::vector<std::string>{"norm1", "qkv", "rope", "attention", "out", "norm2", "up", "swiglu"});
  CHECK(recomputed(Recompute::kSelective) == std::vector<std::string>{"swiglu", "norm2", "norm1"});
  // What attention leaves is kept: all is computed again but attention itself.
  CHECK(recomputed(Recompute::kKeepAttention) == std::vector<std::string>{"out", "norm2", "up", "swiglu", "norm1", "qkv", "rope"});
  const std::vector<std::string> full = dropped_tensors(tiny_geometry(), Recompute::kFull);
  std::set<std::string> all(none.saved.begin(), none.saved.end());
  all.erase("x");
  CHECK(std::set<std::string>(full.begin(), full.end()) == all);
}

// Measured on a working engine of the same op lists: D 256 L 8 H 8 K 2 F 704 V 1024 S 128, 4 sequences.
TEST_CASE("arena bytes of a small model") {
  Geometry g = tiny_geometry(8);
  g.hidden = 256, g.num_heads = 8, g.num_kv_heads = 2, g.head_size = 32, g.feed_forward = 704, g.vocabulary = 1024;
  const auto arena = [&](int ranks, Recompute recompute) {
    const Plan plan = make_test_plan(g, {Sharding::kZero3, 1, ranks, recompute, 0, 1, 4 / ranks}, 128);
    return compile_expanded(plan, Phase::kStep).arena_bytes;
  };
  CHECK(arena(1, Recompute::kNone) == 65177600);
  CHECK(arena(1, Recompute::kSelective) == 45221888);
  CHECK(arena(1, Recompute::kFull) == 11948032);
  CHECK(arena(2, Recompute::kNone) == 41311744);
  CHECK(arena(2, Recompute::kSelective) == 32080896);
  CHECK(arena(2, Recompute::kFull) == 18402304);
}

TEST_CASE("layout covers every element exactly once, boxes and shards alike") {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    const Geometry g = random_geometry(random);
    const int ranks = 1 + static_cast<int>(random() % 7);
    const Layout layout = make_layout(g, {.dp_shard = ranks});
    CHECK(layout.numel == count_parameters(g).total);
    for (const UnitLayout& unit : layout.units) {
      int64_t covered = 0;
      for (int r = 0; r < ranks; ++r) covered += owned_range(unit, r).size();
      REQUIRE(covered == unit.numel);
      for (const Parameter& p : unit.parameters) {
        std::vector<int> hits(p.numel, 0);
        for (int r = 0; r < ranks; ++r) {
          for (const Box& box : boxes_of(layout, unit, p, {.dp_shard = r})) {
            REQUIRE(box.shard_offset >= unit.shard_offset);
            REQUIRE(box.shard_offset + box.numel() <= unit.shard_offset + unit.shard_numel);
            const int64_t width = p.shape.size() == 2 ? p.shape[1] : 1;
            const int64_t columns = p.shape.size() == 2 ? box.size[1] : 1, column = p.shape.size() == 2 ? box.start[1] : 0;
            for (int64_t row = 0; row < box.size[0]; ++row)
              for (int64_t c = 0; c < columns; ++c) ++hits[(box.start[0] + row) * width + column + c];
          }
        }
        REQUIRE(std::all_of(hits.begin(), hits.end(), [](int h) { return h == 1; }));
      }
    }
    int64_t owned = 0;
    for (int r = 0; r < ranks; ++r)
      for (const DecayRange& range : decay_ranges(layout, {.dp_shard = r})) owned += range.end - range.begin;
    CHECK(owned == layout.numel);
  }
}

TEST_CASE("q, k, v are one slot and gate, up another") {
  const Layout layout = make_layout(tiny_geometry(), {});
  const UnitLayout& block = layout.units[1];
  std::vector<std::string> slots;
  for (const Slot& s : block.slots) slots.push_back(fmt::format("{} [{}]", s.name, fmt::join(s.shape, ",")));
  CHECK(slots == std::vector<std::string>{"n1 [32]", "wqkv [64,32]", "wo [32,32]", "n2 [32]", "w13 [192,32]", "w2 [32,96]"});
}

Plan full_plan() {
  Plan p = make_test_plan(tiny_geometry(), {Sharding::kZero3, 1, 2, Recompute::kSelective});
  p.memory.terms = {{"parameter shard", 12, 34, "backward"}};
  p.memory.by_phase = {{"load", 1}};
  p.memory.peak_buffers = {{"P1", 5}};
  p.memory.by_rank_class = {{"all ranks", 7, 0}};
  p.time.step_s = 0.1, p.time.tokens_per_s = 1e6 / 3, p.time.tokens_per_s_per_gpu = 2.5, p.time.mfu = 0.41;
  p.time.by_instruction = {{"Forward", 1e-6}};
  p.alternatives = {{"zero2", Verdict::kTight, 9, 0.9, 0.2, "slower"}};
  p.reasons = {"because"};
  p.assumptions = {"sequence 4096"};
  p.data.files = {{"a \"quoted\" näme.txt", 3, "00ff", true}};
  p.diagnostics = {warning("DS0303", {"run.yaml", 3, 4}, "off")};
  p.model.expert_layer = {true, false};
  return p;
}

TEST_CASE("plan.json round-trips byte for byte") {
  const Plan plan = full_plan();
  const std::string text = dump_json(to_json(plan));
  const Result<Plan> read = plan_from_json(text, "plan.json");
  INFO(format_diagnostics(read.diagnostics));
  REQUIRE(read.ok());
  CHECK(*read == plan);
  CHECK(dump_json(to_json(*read)) == text);
}

TEST_CASE("plan.json: plans from before a setting are read, and it is written where it is set") {
  Plan plan = full_plan();
  plan.strategy.reductions_in_flight = 1;
  plan.data.shuffle = true;
  const Json usual = to_json(plan);
  CHECK_FALSE(usual["strategy"].contains("reductions_in_flight"));
  CHECK_FALSE(usual["data"].contains("shuffle"));
  const Result<Plan> read = plan_from_json(dump_json(usual), "plan.json");
  REQUIRE(read.ok());
  CHECK(*read == plan);
  plan.strategy.reductions_in_flight = 3;
  plan.data.shuffle = false;
  const Json set = to_json(plan);
  CHECK(set["strategy"]["reductions_in_flight"] == 3);
  CHECK(set["data"]["shuffle"] == false);
}

TEST_CASE("plan.json: a missing, unknown or wrong key, a wrong version and half a file are refused") {
  const Json good = to_json(full_plan());
  const auto first_code = [](const Json& json) {
    const Result<Plan> read = plan_from_json(dump_json(json), "plan.json");
    return read.ok() ? std::string("accepted") : read.diagnostics.front().code;
  };
  CHECK(first_code(good) == "accepted");
  for (const auto& [key, value] : good.items()) {
    Json without = good;
    without.erase(key);
    INFO(key);
    CHECK(first_code(without) != "accepted");
  }
  Json j = good;
  j["surprise"] = 1;
  CHECK(first_code(j) == "DS0701");
  j = good;
  j["memory"]["terms"][0]["bytes_at_peak"] = "many";
  CHECK(first_code(j) == "DS0701");
  j = good;
  j["strategy"]["sharding"] = "zero4";
  CHECK(first_code(j) == "DS0701");
  j = good;
  j["train"]["global_batch"] = 3;
  CHECK(first_code(j) == "DS0701");
  j = good;
  j["schema_version"] = 99;
  CHECK(first_code(j) == "DS0702");
  const std::string text = dump_json(good);
  const Result<Plan> half = plan_from_json(text.substr(0, text.size() / 2), "plan.json");
  REQUIRE_FALSE(half.ok());
  CHECK(half.diagnostics.front().code == "DS0701");
}

TEST_CASE("the schedule digest changes with anything that changes the list") {
  const Plan plan = make_test_plan(tiny_geometry(), {Sharding::kZero3, 1, 2});
  const std::string digest = schedule_digest(plan);
  CHECK(digest == schedule_digest(plan));
  Plan other = plan;
  other.strategy.prefetch = 0;
  CHECK(schedule_digest(other) != digest);
  other = plan;
  other.strategy.reductions_in_flight = 2;
  CHECK(schedule_digest(other) != digest);
  other = plan;
  other.strategy.loss_head = kChunkedLoss;
  CHECK(schedule_digest(other) != digest);
  other = plan;
  other.train.learning_rate = 1;  // not in the list
  CHECK(schedule_digest(other) == digest);
}

TEST_CASE("what can be planned and not trained is refused by name") {
  Plan plan = make_test_plan(tiny_geometry(), {Sharding::kZero3, 1, 2});
  CHECK(check_trainable(plan).empty());
  const auto refused = [](const Plan& p, const std::string& word) {
    const Diagnostics found = check_trainable(p);
    return found.size() == 1 && found.front().code == "DS0403" && found.front().message.find(word) != std::string::npos;
  };
  Plan other = plan;
  other.train.method = "ppo";
  CHECK(refused(other, "ppo"));
}

TEST_CASE("a scaling of positions that the trainer has not is refused when planned") {
  const Plan plan = make_test_plan(tiny_geometry(), {Sharding::kZero3, 1, 2});
  const auto said = [](const Plan& p) { return format_diagnostics(validate(p)); };
  CHECK(said(plan).empty());
  Plan other = plan;
  other.model.rope_scaled = true;
  CHECK(said(other).find("RoPE scaling of an unstated kind: it has linear, llama3, yarn, longrope, dynamic") != std::string::npos);
  other.model.rope_scaling = "axial";
  CHECK(said(other).find("RoPE scaling 'axial': it has linear") != std::string::npos);
  other.model.rope_scaling = "yarn";
  CHECK(said(other).find("whose length before is not stated") != std::string::npos);
  other.model.rope_original_positions = 64;
  CHECK(said(other).empty());
  other.model.rope_scaling = "longrope";
  CHECK(said(other).find("RoPE scaling 'longrope' with 0 factors for") != std::string::npos);
  other.model.unlike_family = "'clip_qkv' of model_type 'llama' is set to '8'";
  CHECK(said(other).find("'clip_qkv' of model_type 'llama' is set to '8'") != std::string::npos);
}

}  // namespace
}  // namespace distsetup
