// The executor on a device whose streams do everything late and in random order: what a GPU may do, as far as it can be seen without.
#include <cmath>
#include <optional>

#include "runtime/expert_cases.h"
#include "runtime/late_run.h"
#include "runtime/tiny.h"
#include "support/seed.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using namespace tiny;

TinyOptions options_of(Sharding sharding, int replicate, int shard, Dtype precision) {
  TinyOptions o;
  o.sharding = sharding;
  o.replicate = replicate;
  o.shard = shard;
  o.precision = precision;
  o.accumulation = 2;
  o.global_batch = 8;
  o.geometry.tied_embeddings = o.geometry.qk_norm = true;
  return o;
}

TEST_CASE("optimizers on streams in any order that events allow train as the CPU does", "[streams]") {
  TinyOptions o = options_of(Sharding::kZero3, 1, 2, Dtype::kF32);
  Plan plan = tiny_plan(o);
  plan.train.optimizer = GENERATE(as<std::string>(), "sgd", "lion", "adamw_8bit", "adafactor", "muon");
  plan.train.momentum = plan.train.optimizer == "sgd" ? 0.9 : 0;
  const RunResult expected = train(plan, 3), adamw = train(tiny_plan(o), 3);
  const uint64_t seed = test_seed();
  INFO(plan.train.optimizer << ", DISTSETUP_SEED=" << seed);
  const LateRun late = train_late(plan, 3, seed);
  CHECK(late.error == "");
  CHECK(late.result == expected);
  CHECK(expected.parameters != adamw.parameters);
}

TEST_CASE("streams in any order that events allow train as the CPU does", "[streams][all]") {
  struct Case {
    const char* name;
    Sharding sharding;
    int replicate, shard, pp = 1, chunks = 1, in_flight = 1, ep = 1, tp = 1;
  };
  const auto c = GENERATE(values<Case>({{"one rank", Sharding::kDdp, 1, 1},
                                        {"ddp", Sharding::kDdp, 2, 1},
                                        {"zero1", Sharding::kZero1, 1, 2},
                                        {"zero2", Sharding::kZero2, 1, 2},
                                        {"zero3", Sharding::kZero3, 1, 2},
                                        {"zero2, 3 reductions", Sharding::kZero2, 1, 2, 1, 1, 3},
                                        {"zero3, 2 reductions", Sharding::kZero3, 1, 2, 1, 1, 2},
                                        {"hybrid", Sharding::kZero3, 2, 2},
                                        {"pp", Sharding::kDdp, 1, 1, 2},
                                        {"zero2 x pp", Sharding::kZero2, 1, 2, 2},
                                        {"interleaved", Sharding::kDdp, 1, 1, 2, 2},
                                        {"ddp, ep", Sharding::kDdp, 1, 2, 1, 1, 1, 2},
                                        {"zero2, ep", Sharding::kZero2, 1, 2, 1, 1, 1, 2},
                                        {"zero3 of 4, ep", Sharding::kZero3, 1, 4, 1, 1, 1, 2},
                                        {"zero2 x pp, ep", Sharding::kZero2, 1, 2, 2, 1, 1, 2},
                                        {"zero3 x tp, ep", Sharding::kZero3, 1, 2, 1, 1, 1, 2, 2}}));
  const auto precision = GENERATE(Dtype::kF32, Dtype::kBf16);
  TinyOptions o = options_of(c.sharding, c.replicate, c.shard, precision);
  o.pp = c.pp, o.chunks = c.chunks, o.reductions_in_flight = c.in_flight, o.chunked_loss = c.in_flight > 1;
  o.geometry.num_layers = std::max(2, c.pp * c.chunks);
  if (c.pp > 1) o.accumulation = 4;
  if (c.ep > 1) o.geometry = expert_geometry("glm4"), o.geometry.feed_forward = 38, o.ep = c.ep, o.tp = c.tp;
  const Plan plan = tiny_plan(o);
  const RunResult expected = train(plan, 3);
  const uint64_t seed = test_seed();
  INFO(c.name << " " << name(precision) << ", DISTSETUP_SEED=" << seed);
  std::optional<RunResult> before;
  for (uint64_t n = 0; n < uint64_t(num_rounds(3)); ++n) {
    const LateRun run = train_late(plan, 3, seed + n);
    REQUIRE(run.error == "");
    if (before) CHECK(run.result == *before);
    before = run.result;
    // Sums of two are the same in any order; Gloo adds more of them in an order of its own.
    if (plan.mesh.world() <= 2)
      CHECK(run.result == expected);
    else
      CHECK(difference(run.result.losses, expected.losses) < 1e-3);
  }
}

TEST_CASE("an order between streams that is left out shows", "[streams]") {
  const Plan plan = tiny_plan(options_of(Sharding::kZero3, 1, 2, Dtype::kF32));
  const uint64_t seed = test_seed();
  INFO("DISTSETUP_SEED=" << seed);
  const LateRun good = train_late(plan, 1, seed);
  REQUIRE(good.error == "");
  REQUIRE(good.num_orders > 50);
  int tried = 0, seen = 0;
  for (int64_t left_out = 0; left_out < good.num_orders; left_out += 5) {
    ++tried;
    for (uint64_t n = 0; n < 4; ++n) {
      const LateRun bad = train_late(plan, 1, seed + 10 * n, left_out);
      if (bad.error == "" && bad.result == good.result) continue;
      ++seen;
      break;
    }
  }
  // Some are there twice: a gather follows compute once for its cast and once for itself.
  WARN(seen << " of " << tried << " show");
  CHECK(seen * 3 > tried);
}

}  // namespace
}  // namespace distsetup
