// Which parameters patterns and targets mean, and what of a program is left when not all of them are trained.
#include <catch2/catch.hpp>

#include <set>
#include <string>

#include "plan/frozen.h"
#include "plan/layout.h"
#include "plan/layout_ranges.h"
#include "plan/native_program.h"
#include "plan/tuning.h"
#include "support/random_plan.h"

namespace distsetup {
namespace {

std::string names_of(const std::vector<Op>& ops) {
  std::string out;
  for (const Op& op : ops) out += (out.empty() ? "" : " ") + op.name;
  return out;
}

Tuning part(std::vector<std::string> patterns) {
  Tuning tuning;
  tuning.trainable = std::move(patterns);
  return tuning;
}

Tuning adapters(std::vector<std::string> targets, int64_t rank = 4) {
  Tuning tuning;
  tuning.rank = rank;
  tuning.scale = 2;
  tuning.targets = std::move(targets);
  return tuning;
}

TEST_CASE("tuning: a pattern is matched from the beginning of a name, a target at its end") {
  CHECK(matches_name("model.layers.[0-3].mlp.*", "model.layers.2.mlp.up_proj.weight"));
  CHECK_FALSE(matches_name("model.layers.[0-3].mlp.*", "model.layers.4.mlp.up_proj.weight"));
  CHECK_FALSE(matches_name("mlp", "model.layers.2.mlp.up_proj.weight"));
  CHECK(matches_name("^lm_head.weight$", "lm_head.weight"));
  CHECK(is_target("q_proj", "model.layers.0.self_attn.q_proj"));
  CHECK(is_target("self_attn.q_proj", "model.layers.0.self_attn.q_proj"));
  CHECK_FALSE(is_target("proj", "model.layers.0.self_attn.q_proj"));
  CHECK(pattern_problem("model.*").empty());
  CHECK_FALSE(pattern_problem("model.[").empty());
  CHECK(adapter_scale(16, 4, false) == 4);
  CHECK(adapter_scale(16, 4, true) == 8);
}

TEST_CASE("tuning: what means nothing in a model is named") {
  const Geometry g = tiny_geometry();
  CHECK(check_native(g, {}, part({"model.layers.1"})).empty());
  const auto said = [&](const Tuning& tuning) {
    const Diagnostics found = check_native(g, {}, tuning);
    return found.empty() ? std::string() : found.front().message;
  };
  CHECK(said(part({"model.layers.1", "layers.1"})).find("'layers.1'") != std::string::npos);
  CHECK(said(adapters({"q_proj", "w_proj"})).find("'w_proj'") != std::string::npos);
  CHECK(said(adapters({"embed_tokens"})).find("no linear layer") != std::string::npos);
  CHECK(check_native(g, {.tp = 2}, adapters({"q_proj"})).empty());
}

TEST_CASE("tuning: backward keeps what leads to a parameter that is trained") {
  const std::shared_ptr<const NativePrograms> p = native_programs(tiny_geometry(3), {}, part({"model.layers.1.mlp"}));
  REQUIRE(p->blocks.size() == 3);  // below, in and above what is trained
  CHECK(p->embedding.backward.empty());
  CHECK(p->block(0).backward.empty());
  CHECK(names_of(p->block(1).backward) == "down_dw down_dx swiglu_b up_dw");
  CHECK(names_of(p->block(2).backward) == "down_dx swiglu_b up_dx norm2_b out_dx attention_b rope_b qkv_dx norm1_b");
  CHECK(names_of(p->head.backward) == "logits_dx normf_b");
  CHECK(p->head.backward.back().writes[1] == "unused_nf");
  CHECK(p->block(1).parameters.size() == 3);
  CHECK(p->block(0).parameters.empty());
}

TEST_CASE("tuning: a matrix that is partly trained lies among what is trained, and the rest of it does not change") {
  const Layout layout = make_layout(tiny_geometry(1), {}, Sharding::kZero3, 0, 1, part({"model.layers.0.self_attn.k_proj"}));
  std::set<std::string> stored, trained;
  for (const UnitLayout& unit : layout.units) {
    for (const Parameter& p : unit.parameters) {
      if (!unit.is_frozen) stored.insert(p.name);
      if (p.trains) trained.insert(p.name);
    }
  }
  CHECK(trained == std::set<std::string>{"model.layers.0.self_attn.k_proj.weight"});
  CHECK(stored.size() == 3);  // q, k, v are one matrix
  CHECK(layout.trained_numel == 2 * 8 * 32);
  int64_t decayed = 0, normed = 0;
  for (const DecayRange& r : decay_ranges(layout, {})) decayed += r.end - r.begin;
  for (const ElementRange& r : norm_ranges(layout, {})) normed += r.size();
  CHECK(decayed == layout.trained_numel);
  CHECK(normed == layout.trained_numel);
}

TEST_CASE("tuning: adapters of q and v stand on their columns of one product") {
  const Geometry g = tiny_geometry();
  const std::shared_ptr<const NativePrograms> p = native_programs(g, {}, adapters({"q_proj", "v_proj"}));
  const Program& block = p->blocks[0];
  CHECK(names_of(block.forward).find("qkv qkv_a qkv_b0 qkv_b1 rope") != std::string::npos);
  const auto op = [&](const std::string& name) {
    for (const Op& one : block.forward)
      if (one.name == name) return one;
    return Op{};
  };
  CHECK(op("qkv_b0").attributes.column == 0);
  CHECK(op("qkv_b1").attributes.column == (g.num_heads + g.num_kv_heads) * g.head_size);
  CHECK(op("qkv_b1").attributes.low_column == 4);
  CHECK(op("qkv_b1").attributes.multiplier == 2);
  REQUIRE(block.parameters.size() == 4);
  CHECK(block.parameters[0].name == "self_attn.q_proj.lora_A.weight");
  CHECK(block.parameters[0].slot == block.parameters[1].slot);  // both A are one matrix
  CHECK(block.parameters[3].name == "self_attn.v_proj.lora_B.weight");
  CHECK(names_of(p->block(0).backward).ends_with("qkv_b1_dw qkv_b1_dx qkv_b0_dw qkv_b0_dx qkv_a_dw"));
  REQUIRE(p->blocks.size() == 2);  // the second layer passes a gradient on
  CHECK(names_of(p->block(1).backward).ends_with("qkv_a_dw qkv_a_dx qkv_dx norm1_b"));
  const Layout layout = make_layout(g, {}, Sharding::kZero3, 0, 1, adapters({"q_proj", "v_proj"}));
  CHECK(layout.trained_numel == 2 * 4 * (2 * 32 + 32 + 16));
  CHECK(layout.numel == make_layout(g, {}).numel + layout.trained_numel);
}

TEST_CASE("tuning: names in PEFT's files") {
  CHECK(adapter_name("self_attn.q_proj.weight", "lora_A") == "self_attn.q_proj.lora_A.weight");
  CHECK(peft_name("model.layers.0.self_attn.q_proj.lora_A.weight") ==
        "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
  CHECK(is_adapter_name("a.lora_B.weight"));
  CHECK_FALSE(is_adapter_name("a.weight"));
}

}  // namespace
}  // namespace distsetup
