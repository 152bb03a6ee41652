// Training a part of a model, or adapters beside it: every mesh trains as one rank does, gradients are those of training everything,
// and no op takes more than is declared for it. PEFT and torch are held against in tests/integration/lora.py.
#include <map>
#include <string>

#include "runtime/as_one_rank.h"
#include "support/seed.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using namespace tiny;

const std::vector<TunedCase> kCases = {
    {"mlp of the last layer", {"model.layers.1.mlp"}, {}, 0},
    {"k of the first layer, norms, head", {"model.layers.0.self_attn.k_proj", ".*norm", "lm_head"}, {}, 0},
    {"embedding", {"model.embed_tokens"}, {}, 0},
    {"adapters on q and v", {}, {"q_proj", "v_proj"}, 3},
    {"adapters on all", {}, {std::string(kAllLinear)}, 2},
    {"adapters on q and v, nf4", {}, {"q_proj", "v_proj"}, 3, true},
    {"adapters on all, nf4", {}, {std::string(kAllLinear)}, 2, true},
};

struct FrozenMesh {
  std::string name;
  Sharding sharding;
  int replicate, shard, cp = 1;
  bool reshard = true;
  int64_t accumulation = 1;
};

TinyOptions options_of(const TunedCase& c) {
  TinyOptions o;
  o.geometry.tied_embeddings = c.name == "embedding";
  o.geometry.qkv_bias = true;
  tune(o, c);
  o.steps = 5;
  return o;
}

TEST_CASE("a part of a model is trained on every mesh as on one rank", "[frozen][all]") {
  const auto m =
      GENERATE(FrozenMesh{"1, accumulated", Sharding::kDdp, 1, 1, 1, true, 4}, FrozenMesh{"ddp 2", Sharding::kDdp, 2, 1},
               FrozenMesh{"zero1 2, accumulated", Sharding::kZero1, 1, 2, 1, true, 2},
               FrozenMesh{"zero2 2, accumulated", Sharding::kZero2, 1, 2, 1, true, 2}, FrozenMesh{"zero3 4", Sharding::kZero3, 1, 4},
               FrozenMesh{"zero3 kept 2", Sharding::kZero3, 1, 2, 1, false, 2}, FrozenMesh{"hybrid 2 x 2", Sharding::kZero3, 2, 2},
               FrozenMesh{"cp 2", Sharding::kZero3, 1, 2, 2});
  for (const TunedCase& c : kCases) {
    INFO(m.name << ", " << c.name);
    TinyOptions o = options_of(c);
    o.sharding = m.sharding, o.replicate = m.replicate, o.shard = m.shard, o.cp = m.cp, o.reshard = m.reshard;
    o.accumulation = m.accumulation;
    check_as_one_rank(o, {Recompute::kNone, Recompute::kFull});
  }
}

TEST_CASE("adapters learn from preference pairs and from packed rows on every mesh as on one rank", "[frozen][all]") {
  const auto m =
      GENERATE(FrozenMesh{"ddp 2", Sharding::kDdp, 2, 1}, FrozenMesh{"zero1 2, accumulated", Sharding::kZero1, 1, 2, 1, true, 2},
               FrozenMesh{"zero3 2", Sharding::kZero3, 1, 2}, FrozenMesh{"hybrid 2 x 2", Sharding::kZero3, 2, 2},
               FrozenMesh{"cp 2", Sharding::kZero3, 1, 1, 2});
  for (const TunedCase& c : kCases) {
    if (c.rank == 0) continue;
    for (const bool packed : {false, true}) {
      if (packed && m.cp > 1) continue;  // only ulysses, which divides heads
      INFO(m.name << ", " << c.name << (packed ? ", packed" : ", pairs"));
      TinyOptions o = options_of(c);
      o.packed = packed;
      if (!packed) o.preference = PreferencePlan{};
      o.sequence_length = 16;
      o.sharding = m.sharding, o.replicate = m.replicate, o.shard = m.shard, o.cp = m.cp, o.reshard = m.reshard;
      o.accumulation = m.accumulation;
      check_as_one_rank(o, {Recompute::kNone, Recompute::kFull});
    }
  }
}

struct SplitMesh {
  std::string name;
  Sharding sharding;
  int shard, tp, cp = 1;
  int64_t accumulation = 1;
};

// Rows of q, k, v, gate, up and the head are split, columns of o and down; of the vocabulary's 53 tokens the last ranks have padding.
const std::vector<TunedCase> kSplitCases = {
    {"k, gate and head", {}, {"k_proj", "gate_proj", "lm_head"}, 3},
    {"o and down", {}, {"o_proj", "down_proj"}, 3},
    {"all", {}, {std::string(kAllLinear)}, 2},
};

TinyOptions split_options(const TunedCase& c, const SplitMesh& m) {
  TinyOptions o = options_of(c);
  o.geometry.num_heads = o.geometry.num_kv_heads = 4;
  o.geometry.feed_forward = 36;
  o.geometry.mlp_bias = true;
  o.sharding = m.sharding, o.shard = m.shard, o.tp = m.tp, o.cp = m.cp;
  o.accumulation = m.accumulation;
  return o;
}

TEST_CASE("adapters beside matrices that ranks split train as on one rank", "[frozen][tp][nightly][all]") {
  static int number = 0;
  const auto m = GENERATE(SplitMesh{"tp 2", Sharding::kDdp, 1, 2}, SplitMesh{"tp 4, accumulated", Sharding::kDdp, 1, 4, 1, 2},
                          SplitMesh{"zero1 2 x tp 2, accumulated", Sharding::kZero1, 2, 2, 1, 2},
                          SplitMesh{"zero2 2 x tp 2", Sharding::kZero2, 2, 2}, SplitMesh{"zero3 2 x tp 2", Sharding::kZero3, 2, 2},
                          SplitMesh{"cp 2 x tp 2", Sharding::kZero3, 1, 2, 2});
  for (const TunedCase& c : kSplitCases) {
    if (!is_taken(number++, 2)) continue;
    INFO(m.name << ", " << c.name);
    TinyOptions o = split_options(c, m);
    check_as_one_rank(o, {Recompute::kNone, Recompute::kSelective, Recompute::kFull});
    o.chunked_loss = true;
    check_as_one_rank(o, {Recompute::kNone});
  }
}

TEST_CASE("split adapters learn from pairs, against each kind of reference, and from packed rows as on one rank",
          "[frozen][tp][all]") {
  const auto m = GENERATE(SplitMesh{"tp 2", Sharding::kDdp, 1, 2}, SplitMesh{"zero3 2 x tp 2", Sharding::kZero3, 2, 2});
  for (const TunedCase& c : kSplitCases) {
    for (const std::string reference : {"cached", "shared", "sharded", "packed"}) {
      INFO(m.name << ", " << c.name << ", " << reference);
      TinyOptions o = split_options(c, m);
      o.packed = reference == "packed";
      if (!o.packed) o.preference = PreferencePlan{.reference = reference};
      check_as_one_rank(o, {Recompute::kNone, Recompute::kFull});
    }
  }
}

struct StagedMesh {
  std::string name;
  Sharding sharding;
  int shard, tp, pp, chunks;
  int64_t accumulation;
};

TEST_CASE("a part of a model, and adapters, are trained over stages as on one rank", "[frozen][pp][nightly][all]") {
  static int number = 0;
  const auto m = GENERATE(
      StagedMesh{"pp 2", Sharding::kDdp, 1, 1, 2, 1, 4}, StagedMesh{"pp 4", Sharding::kDdp, 1, 1, 4, 1, 4},
      StagedMesh{"pp 2 x 2 chunks", Sharding::kDdp, 1, 1, 2, 2, 4}, StagedMesh{"zero1 2 x pp 2", Sharding::kZero1, 2, 1, 2, 1, 2},
      StagedMesh{"zero3 2 x pp 2", Sharding::kZero3, 2, 1, 2, 1, 2}, StagedMesh{"pp 2 x tp 2", Sharding::kDdp, 1, 2, 2, 1, 2});
  std::vector<TunedCase> cases = kCases;
  cases.push_back({"layer 2", {"model.layers.2.mlp.up_proj"}, {}, 0});
  cases.push_back({"adapters on v of layer 3", {}, {"layers.3.self_attn.v_proj"}, 2});
  cases.push_back({"head", {"lm_head"}, {}, 0});
  for (const TunedCase& c : cases) {
    if (!is_taken(number++, 3) || (m.tp > 1 && c.quantized)) continue;
    INFO(m.name << ", " << c.name);
    TinyOptions o = split_options(c, {"", m.sharding, m.shard, m.tp, 1, m.accumulation});
    o.geometry.num_layers = 5;
    o.pp = m.pp, o.chunks = m.chunks;
    check_as_one_rank(o, {Recompute::kNone, Recompute::kFull});
  }
}

TEST_CASE("adapters over stages learn from pairs, from packed rows and with the loss in chunks as on one rank", "[frozen][pp]") {
  for (const std::string what : {"pairs", "packed", "chunked"}) {
    INFO(what);
    TinyOptions o = split_options(kSplitCases.back(), {"", Sharding::kDdp, 1, 1, 1, 4});
    o.pp = 2;
    if (what == "pairs") o.preference = PreferencePlan{};
    o.packed = what == "packed";
    o.chunked_loss = what == "chunked";
    check_as_one_rank(o, {Recompute::kNone, Recompute::kFull});
  }
}

// Each rank has whole blocks of 64 weights of every matrix; the whole has more than one range of 256 scales.
TinyOptions of_whole_blocks(TinyOptions o) {
  o.quantized = true;
  o.geometry.hidden = 192, o.geometry.head_size = 32, o.geometry.num_heads = 8, o.geometry.num_kv_heads = 4;
  o.geometry.feed_forward = 256;
  return o;
}

TEST_CASE("adapters beside nf4 that ranks split train as on one rank", "[frozen][tp][nightly][all]") {
  static int number = 0;
  const auto m = GENERATE(SplitMesh{"tp 2", Sharding::kDdp, 1, 2}, SplitMesh{"tp 4, accumulated", Sharding::kDdp, 1, 4, 1, 2},
                          SplitMesh{"zero1 2 x tp 2", Sharding::kZero1, 2, 2}, SplitMesh{"zero3 2 x tp 2", Sharding::kZero3, 2, 2},
                          SplitMesh{"cp 2 x tp 2", Sharding::kZero3, 1, 2, 2});
  for (const TunedCase& c : kSplitCases) {
    if (!is_taken(number++, 2)) continue;
    INFO(m.name << ", " << c.name);
    TinyOptions o = of_whole_blocks(split_options(c, m));
    check_as_one_rank(o, {Recompute::kNone, Recompute::kFull});
    if (m.shard == 1) continue;
    o.preference = PreferencePlan{.reference = "shared"};
    check_as_one_rank(o, {Recompute::kNone});
  }
}

TEST_CASE("nf4 is refused where a rank's part of a matrix is no whole blocks, with its numbers", "[frozen][tp]") {
  TinyOptions o = of_whole_blocks(split_options(kSplitCases.front(), {"tp 2", Sharding::kDdp, 1, 2}));
  REQUIRE(validate(tiny_plan(o)).empty());
  o.geometry.feed_forward = 160;
  const Diagnostics said = validate(tiny_plan(o));
  REQUIRE(said.size() == 1);
  CHECK(said.front().message.find(
            "the scale of 64 weights in a row of 'mlp.down_proj.weight' together, and a rank has 80 of each row") !=
        std::string::npos);
}

// By parameter name, of one rank's first step without clipping.
std::map<std::string, std::vector<float>> first_gradients(TinyOptions o, std::map<std::string, std::vector<float>>* before_and_after) {
  Plan plan = tiny_plan(o);
  plan.train.grad_clip = 0;
  plan.train.weight_decay = 0.1;
  std::map<std::string, std::vector<float>> out;
  run_ranks(plan.mesh, [&](Communicator& communicator) {
    const auto device = make_cpu_device();
    Engine engine(plan, *device, communicator);
    engine.initialize_parameters();
    engine.load();
    const std::vector<float> begin(engine.master().begin(), engine.master().end());
    const Batch batch = rank_batch(plan, global_batch(plan, 0), 0);
    engine.step({batch.ids, batch.targets, batch.valid, 1e-2});
    for (const UnitLayout& unit : engine.layout().units) {
      for (const Parameter& p : unit.parameters) {
        if (unit.is_frozen) continue;
        const auto at = static_cast<ptrdiff_t>(unit.shard_offset + p.offset), end = static_cast<ptrdiff_t>(at + p.numel);
        if (p.trains) out[p.name].assign(engine.gradient().begin() + at, engine.gradient().begin() + end);
        std::vector<float>& changes = (*before_and_after)[p.name];
        for (ptrdiff_t i = at; i < end; ++i) changes.push_back(engine.master()[size_t(i)] - begin[size_t(i)]);
      }
    }
  });
  return out;
}

TEST_CASE("gradients of a part are those of training everything, and what is held beside it does not change", "[frozen]") {
  for (const TunedCase& c : kCases) {
    if (c.rank > 0) continue;
    INFO(c.name);
    TinyOptions all = options_of(c);
    all.trainable.clear();
    std::map<std::string, std::vector<float>> changes, changes_of_all;
    const auto part = first_gradients(options_of(c), &changes), whole = first_gradients(all, &changes_of_all);
    CHECK(part.size() < whole.size());
    for (const auto& [name, gradient] : part) {
      INFO(name);
      CHECK(gradient == whole.at(name));
      CHECK(changes.at(name) == changes_of_all.at(name));
    }
    for (const auto& [name, change] : changes) {
      const bool changes_nothing = std::all_of(change.begin(), change.end(), [](float x) { return x == 0; });
      CHECK(changes_nothing != part.contains(name));
    }
  }
}

TEST_CASE("frozen parts and adapters take no bytes that are not declared", "[frozen]") {
  for (const TunedCase& c : kCases) {
    for (const Dtype precision : {Dtype::kF32, Dtype::kBf16}) {
      INFO(c.name << " in " << name(precision));
      TinyOptions o = options_of(c);
      o.precision = precision;
      o.sharding = c.quantized ? Sharding::kZero2 : Sharding::kZero3, o.shard = 2;  // what a fake rank would send is no record
      const Plan plan = tiny_plan(o);
      CHECK(undeclared_bytes(plan, *make_fake_communicator(plan.mesh, 1)) == "");
    }
  }
  for (const TunedCase& c : kSplitCases) {
    for (const Dtype precision : {Dtype::kF32, Dtype::kBf16}) {
      INFO(c.name << " in " << name(precision) << ", tp 2");
      TinyOptions o = split_options(c, {"tp 2", Sharding::kDdp, 1, 2});
      o.precision = precision;
      const Plan plan = tiny_plan(o);
      CHECK(undeclared_bytes(plan, *make_fake_communicator(plan.mesh, 1)) == "");
    }
  }
}

}  // namespace
}  // namespace distsetup
