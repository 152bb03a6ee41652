// Tensor parallelism with sequence parallelism: every mesh trains as one rank does.
#include <string>

#include "runtime/as_one_rank.h"
#include "support/seed.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using namespace tiny;

// Four key and value heads; a vocabulary of 53, whose last rows are padding over 2 and 4 ranks.
Geometry split_geometry(const std::string& which) {
  Geometry g = odd_geometry();
  g.num_heads = which == "grouped" ? 8 : 4;
  g.num_kv_heads = 4;
  g.feed_forward = 36;
  g.tied_embeddings = g.qkv_bias = g.output_bias = g.mlp_bias = g.qk_norm = which == "all";
  return g;
}

struct SplitStrategy {
  std::string name;
  Sharding sharding;
  int replicate, shard, tp;
  bool reshard = true;
};

TEST_CASE("tensor parallelism over 2 and 4 ranks, with every sharding, trains as one rank does", "[tp][nightly]") {
  const auto s =
      GENERATE(SplitStrategy{"tp 2", Sharding::kDdp, 1, 1, 2}, SplitStrategy{"tp 4", Sharding::kDdp, 1, 1, 4},
               SplitStrategy{"ddp 2 x tp 2", Sharding::kDdp, 2, 1, 2}, SplitStrategy{"zero1 2 x tp 2", Sharding::kZero1, 1, 2, 2},
               SplitStrategy{"zero2 2 x tp 2", Sharding::kZero2, 1, 2, 2}, SplitStrategy{"zero3 2 x tp 2", Sharding::kZero3, 1, 2, 2},
               SplitStrategy{"zero3 kept 2 x tp 2", Sharding::kZero3, 1, 2, 2, false},
               SplitStrategy{"zero1 2 x tp 4", Sharding::kZero1, 1, 2, 4}, SplitStrategy{"zero3 2 x tp 4", Sharding::kZero3, 1, 2, 4},
               SplitStrategy{"hybrid 2 x 2 x tp 2", Sharding::kZero3, 2, 2, 2});
  const auto which = GENERATE(as<std::string>{}, "grouped", "all");
  static int number = 0;
  if (!is_taken(number++, 2)) return;
  const bool is_small = s.replicate * s.shard * s.tp <= 2;
  TinyOptions o;
  o.geometry = split_geometry(which);
  o.steps = 5;
  o.sharding = s.sharding, o.replicate = s.replicate, o.shard = s.shard, o.tp = s.tp, o.reshard = s.reshard;
  o.accumulation = is_small ? 4 : 2;
  INFO(s.name << ", " << which);
  if (is_small)
    check_as_one_rank(o, {Recompute::kNone, Recompute::kSelective, Recompute::kKeepAttention, Recompute::kFull});
  else
    check_as_one_rank(o, {Recompute::kNone, Recompute::kFull});
}

TEST_CASE("tensor parallelism in bf16 ends within one percent of fp32 on one rank", "[tp][all]") {
  const auto s = GENERATE(SplitStrategy{"tp 2", Sharding::kDdp, 1, 1, 2}, SplitStrategy{"zero1 2 x tp 2", Sharding::kZero1, 1, 2, 2},
                          SplitStrategy{"zero3 2 x tp 2", Sharding::kZero3, 1, 2, 2});
  TinyOptions o;
  o.geometry = split_geometry("all");
  static const RunResult one = train(tiny_plan(o), 20);
  o.sharding = s.sharding, o.replicate = s.replicate, o.shard = s.shard, o.tp = s.tp;
  o.accumulation = 2;
  o.precision = Dtype::kBf16;
  INFO(s.name);
  const RunResult run = train(tiny_plan(o), 20);
  CHECK(run.losses.back() == Approx(one.losses.back()).epsilon(0.01));
  CHECK(train(tiny_plan(o), 20, {.poison = true}) == run);
}

// One rank alone, whose peers send zeros: the meter counts what the whole process has.
TEST_CASE("tensor parallelism allocates nothing while a step runs but what is declared", "[tp]") {
  const auto precision = GENERATE(Dtype::kF32, Dtype::kBf16);
  TinyOptions o;
  o.geometry = split_geometry("all");
  o.tp = 2;
  o.precision = precision;
  const Plan plan = tiny_plan(o);
  CHECK(undeclared_bytes(plan, *make_fake_communicator(plan.mesh, 1)) == "");
}

TEST_CASE("what cannot be split is refused with its numbers", "[tp]") {
  TinyOptions o;
  o.geometry = split_geometry("plain");
  o.tp = 2;
  const auto why = [&](const Geometry& g, int tp) {
    o.geometry = g, o.tp = tp;
    const Diagnostics said = validate(tiny_plan(o));
    return said.empty() ? "" : said.front().message;
  };
  Geometry g = split_geometry("plain");
  CHECK(why(g, 2).empty());
  g.num_kv_heads = 1;
  CHECK(why(g, 2).find("does not divide its 1 key and value heads") != std::string::npos);
  g = split_geometry("plain"), g.feed_forward = 37;
  CHECK(why(g, 2).find("37 feed-forward elements") != std::string::npos);
  g = split_geometry("plain"), g.family = "olmo2", g.qk_norm_wide = true;
  CHECK(why(g, 2).find("go over all heads") != std::string::npos);
  o.sequence_length = 9, o.global_batch = 1;
  CHECK(why(split_geometry("plain"), 2).find("does not divide the 9 tokens") != std::string::npos);
}

}  // namespace
}  // namespace distsetup
