// Context parallelism: ranks that share each sequence train as one rank does.
#include <string>

#include "runtime/as_one_rank.h"
#include "support/seed.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using namespace tiny;

// Grouped queries; "all" has biases, normed q and k, and a tied head; "window" layers that see 5 keys.
Geometry shared_geometry(const std::string& which) {
  Geometry g = odd_geometry();
  g.num_heads = 8;
  g.num_kv_heads = 4;
  g.feed_forward = 36;
  g.tied_embeddings = g.qkv_bias = g.output_bias = g.mlp_bias = g.qk_norm = which == "all";
  if (which == "window") g.sliding_window = 5;
  return g;
}

struct SharedStrategy {
  std::string name;
  Sharding sharding;
  int replicate, shard, cp, tp = 1;
  bool reshard = true;
  CpMethod method = CpMethod::kAllGather;
};

TEST_CASE("context parallelism over 2 and 4 ranks, with every sharding, trains as one rank does", "[cp][nightly][all]") {
  const auto s = GENERATE(
      SharedStrategy{"cp 2", Sharding::kDdp, 1, 1, 2}, SharedStrategy{"cp 4", Sharding::kDdp, 1, 1, 4},
      SharedStrategy{"ddp 2 x cp 2", Sharding::kDdp, 2, 1, 2}, SharedStrategy{"zero1 1 x cp 2", Sharding::kZero1, 1, 1, 2},
      SharedStrategy{"zero2 2 x cp 2", Sharding::kZero2, 1, 2, 2}, SharedStrategy{"zero3 2 x cp 2", Sharding::kZero3, 1, 2, 2},
      SharedStrategy{"zero3 kept 1 x cp 4", Sharding::kZero3, 1, 1, 4, 1, false},
      SharedStrategy{"hybrid 2 x 1 x cp 2", Sharding::kZero3, 2, 1, 2},
      SharedStrategy{"hybrid 2 x 2 x cp 2", Sharding::kZero3, 2, 2, 2}, SharedStrategy{"cp 2 x tp 2", Sharding::kDdp, 1, 1, 2, 2},
      SharedStrategy{"zero3 2 x cp 2 x tp 2", Sharding::kZero3, 1, 2, 2, 2},
      SharedStrategy{"zero1 2 x cp 2 x tp 2", Sharding::kZero1, 1, 2, 2, 2},
      SharedStrategy{"ulysses 2", Sharding::kDdp, 1, 1, 2, 1, true, CpMethod::kUlysses},
      SharedStrategy{"zero2 2 x ulysses 2", Sharding::kZero2, 1, 2, 2, 1, true, CpMethod::kUlysses},
      SharedStrategy{"zero3 1 x ulysses 2 x tp 2", Sharding::kZero3, 1, 1, 2, 2, true, CpMethod::kUlysses},
      SharedStrategy{"zero3 1 x ulysses 4", Sharding::kZero3, 1, 1, 4, 1, false, CpMethod::kUlysses},
      SharedStrategy{"ring 2", Sharding::kDdp, 1, 1, 2, 1, true, CpMethod::kRing},
      SharedStrategy{"ring 4", Sharding::kDdp, 1, 1, 4, 1, true, CpMethod::kRing},
      SharedStrategy{"zero1 2 x ring 2", Sharding::kZero1, 1, 2, 2, 1, true, CpMethod::kRing},
      SharedStrategy{"zero2 1 x ring 4", Sharding::kZero2, 1, 1, 4, 1, true, CpMethod::kRing},
      SharedStrategy{"zero3 1 x ring 2 x tp 2", Sharding::kZero3, 1, 1, 2, 2, true, CpMethod::kRing},
      SharedStrategy{"hybrid 2 x 1 x ring 2", Sharding::kZero3, 2, 1, 2, 1, true, CpMethod::kRing});
  const auto which = GENERATE(as<std::string>{}, "all", "window");
  static int number = 0;
  if (!is_taken(number++, 2)) return;
  const bool is_small = s.replicate * s.shard * s.cp * s.tp <= 2;
  TinyOptions o;
  o.geometry = shared_geometry(which);
  o.sequence_length = 16;
  o.steps = 8;
  o.sharding = s.sharding, o.replicate = s.replicate, o.shard = s.shard, o.cp = s.cp, o.tp = s.tp, o.reshard = s.reshard;
  o.cp_method = s.method;
  o.accumulation = is_small ? 4 : 2;
  INFO(s.name << ", " << which);
  if (is_small)
    check_as_one_rank(o, {Recompute::kNone, Recompute::kSelective, Recompute::kKeepAttention, Recompute::kFull});
  else
    check_as_one_rank(o, {Recompute::kNone, Recompute::kFull});
}

TEST_CASE("context parallelism in bf16 follows fp32 on one rank", "[cp][all]") {
  const auto s = GENERATE(SharedStrategy{"cp 2", Sharding::kDdp, 1, 1, 2}, SharedStrategy{"zero1 2 x cp 2", Sharding::kZero1, 1, 2, 2},
                          SharedStrategy{"zero3 1 x cp 4", Sharding::kZero3, 1, 1, 4},
                          SharedStrategy{"ulysses 2", Sharding::kDdp, 1, 1, 2, 1, true, CpMethod::kUlysses},
                          SharedStrategy{"ring 4", Sharding::kDdp, 1, 1, 4, 1, true, CpMethod::kRing});
  TinyOptions o;
  o.geometry = shared_geometry("all");
  o.sequence_length = 16;
  static const RunResult one = train(tiny_plan(o), 20);
  o.sharding = s.sharding, o.replicate = s.replicate, o.shard = s.shard, o.cp = s.cp, o.cp_method = s.method;
  o.accumulation = 2;
  o.precision = Dtype::kBf16;
  INFO(s.name);
  const RunResult run = train(tiny_plan(o), 20);
  CHECK(difference(run.losses, one.losses) < 2e-2);
  CHECK(train(tiny_plan(o), 20, {.poison = true}) == run);
}

// One rank alone, whose peers send zeros: the meter counts what the whole process has.
TEST_CASE("context parallelism allocates nothing while a step runs but what is declared", "[cp]") {
  const auto precision = GENERATE(Dtype::kF32, Dtype::kBf16);
  TinyOptions o;
  o.cp_method = GENERATE(CpMethod::kAllGather, CpMethod::kUlysses, CpMethod::kRing);
  o.geometry = shared_geometry("all");
  o.cp = 2;
  o.precision = precision;
  const Plan plan = tiny_plan(o);
  CHECK(undeclared_bytes(plan, *make_fake_communicator(plan.mesh, 1)) == "");
}

TEST_CASE("sequences that cannot be cut are refused with their numbers", "[cp]") {
  TinyOptions o;
  o.geometry = shared_geometry("plain");
  o.cp = 4;
  Diagnostics said = validate(tiny_plan(o));  // of 12 tokens
  REQUIRE(!said.empty());
  CHECK(said.front().message.find("2 × 4 = 8 chunks of one length, which a sequence of 12 tokens") != std::string::npos);
  o.sequence_length = 32, o.cp = 8, o.cp_method = CpMethod::kUlysses;
  said = validate(tiny_plan(o));
  REQUIRE(!said.empty());
  CHECK(said.front().message.find("ulysses over cp 8 does not divide the 4 key and value heads") != std::string::npos);
}

}  // namespace
}  // namespace distsetup
