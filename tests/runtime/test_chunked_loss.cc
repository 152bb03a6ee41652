// Head and loss in chunks of rows: the same training as with all logits at once, on every mesh, in less memory.
#include <set>
#include <string>

#include "plan/expand.h"
#include "runtime/as_one_rank.h"
#include "runtime/comm/tracing.h"
#include "runtime/expert_cases.h"
#include "runtime/family_cases.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using namespace tiny;

TinyOptions chunked(const Geometry& geometry) {
  TinyOptions o;
  o.geometry = geometry;
  o.steps = 6;
  o.chunked_loss = true;
  return o;
}

// check_as_one_rank() compares with a run that makes the loss of all logits at once. A product of some of the rows may round
// otherwise than the same rows of a larger product: no bit-equality.
TEST_CASE("chunked loss: every family trains as with all logits at once", "[chunks]") {
  for (const FamilyCase& family : families()) {
    INFO(family.name);
    TinyOptions o = chunked(family.geometry);
    for (const int64_t accumulation : {1, 2, 8}) {  // micro-batches of 96, 48 and 12 tokens
      o.accumulation = accumulation;
      check_as_one_rank(o, {Recompute::kNone, Recompute::kKeepAttention});
    }
    CHECK(train(tiny_plan(o), 3) == train(tiny_plan(o), 3));
  }
}

struct ChunkedMesh {
  std::string name;
  Sharding sharding;
  int replicate = 1, shard = 1, tp = 1, cp = 1, pp = 1;
  int64_t accumulation = 1;
  bool packed = false;
};

TEST_CASE("chunked loss: every mesh trains as one rank with all logits at once", "[chunks][all]") {
  const auto m = GENERATE(
      ChunkedMesh{"ddp 2", Sharding::kDdp, 2}, ChunkedMesh{"zero1 2, accumulated", Sharding::kZero1, 1, 2, 1, 1, 1, 2},
      ChunkedMesh{"zero2 2, packed", Sharding::kZero2, 1, 2, 1, 1, 1, 2, true},
      ChunkedMesh{"zero3 4, packed", Sharding::kZero3, 1, 4, 1, 1, 1, 1, true}, ChunkedMesh{"hybrid 2 x 2", Sharding::kZero3, 2, 2},
      ChunkedMesh{"tp 2", Sharding::kDdp, 1, 1, 2, 1, 1, 2}, ChunkedMesh{"tp 4 x zero3 2", Sharding::kZero3, 1, 2, 4},
      ChunkedMesh{"cp 2", Sharding::kDdp, 1, 1, 1, 2}, ChunkedMesh{"zero1 2 x cp 2 x tp 2", Sharding::kZero1, 1, 2, 2, 2},
      ChunkedMesh{"pp 2", Sharding::kDdp, 1, 1, 1, 1, 2, 4}, ChunkedMesh{"pp 2, packed", Sharding::kDdp, 1, 1, 1, 1, 2, 4, true},
      ChunkedMesh{"zero2 2 x pp 2 x tp 2", Sharding::kZero2, 1, 2, 2, 1, 2, 2});
  const bool is_tied = GENERATE(false, true);
  INFO(m.name << (is_tied ? ", tied" : ""));
  TinyOptions o = chunked(odd_geometry());
  o.geometry.num_heads = 8, o.geometry.num_kv_heads = 4, o.geometry.feed_forward = 36;
  o.geometry.tied_embeddings = is_tied;
  o.sharding = m.sharding, o.replicate = m.replicate, o.shard = m.shard, o.tp = m.tp, o.cp = m.cp, o.pp = m.pp;
  o.accumulation = m.accumulation, o.packed = m.packed;
  check_as_one_rank(o, {Recompute::kNone, Recompute::kFull});
}

TEST_CASE("chunked loss: where a part of the model is trained, adapters on the output matrix among it", "[chunks]") {
  const TunedCase cases[] = {{"norms", {".*norm.*"}, {}, 0, false},
                             {"head", {"lm_head.*"}, {}, 0, false},
                             {"blocks", {"model.layers.*"}, {}, 0, false},
                             {"adapters", {}, {"q_proj", "lm_head"}, 2, false},
                             {"adapters, nf4", {}, {std::string(kAllLinear)}, 2, true}};
  for (const TunedCase& c : cases) {
    INFO(c.name);
    TinyOptions o = chunked(odd_geometry());
    tune(o, c);
    check_as_one_rank(o, {Recompute::kNone});
    o.sharding = Sharding::kZero3, o.shard = 2, o.accumulation = 2;
    check_as_one_rank(o, {Recompute::kFull});
  }
}

TEST_CASE("chunked loss: beside experts and their load-balancing loss", "[chunks][experts]") {
  TinyOptions o = chunked(expert_geometry("qwen2"));
  o.geometry.router_loss = 0.1;
  check_as_one_rank(o, {Recompute::kNone});
  o.geometry.router_loss = 0;  // it is a micro-batch's own: two ranks have others than one
  o.sharding = Sharding::kZero2, o.shard = 2;
  check_as_one_rank(o, {Recompute::kFull});
}

TEST_CASE("chunked loss: bf16 follows fp32", "[chunks]") {
  TinyOptions o = chunked(odd_geometry());
  o.geometry.tied_embeddings = GENERATE(false, true);
  o.chunked_loss = false;
  const RunResult whole = train(tiny_plan(o), 20);
  o.chunked_loss = true, o.precision = Dtype::kBf16, o.sharding = Sharding::kZero3, o.shard = 2, o.accumulation = 2;
  const RunResult run = train(tiny_plan(o), 20);
  CHECK(run.losses.back() < 0.8 * run.losses.front());
  CHECK(difference(run.losses, whole.losses) < 2e-2);
  CHECK(train(tiny_plan(o), 20, {.poison = true}) == run);
}

TEST_CASE("chunked loss: nothing is allocated but what is declared, and no logits are whole", "[chunks]") {
  const auto precision = GENERATE(Dtype::kF32, Dtype::kBf16);
  const int tp = GENERATE(1, 2);
  TinyOptions o = chunked(odd_geometry());
  o.geometry.num_heads = 4, o.geometry.num_kv_heads = 2, o.geometry.feed_forward = 36;
  o.geometry.vocabulary = 501;
  o.precision = precision, o.tp = tp;
  const Plan plan = tiny_plan(o);
  CHECK(undeclared_bytes(plan, *make_fake_communicator(plan.mesh, tp - 1)) == "");
  const Schedule list = compile_expanded(plan, Phase::kStep), evaluation = compile_expanded(plan, Phase::kEvaluate);
  const int64_t T = list.symbols.at("T"), V = list.symbols.at("V");
  for (const Schedule* s : {&list, &evaluation})
    for (const Buffer& b : s->buffers) {
      INFO(b.name);
      if (b.buffer_class == BufferClass::kLogits) CHECK(b.bytes <= (T / kLossChunks + 1) * V * size_bytes(precision));
    }
  o.chunked_loss = false;
  CHECK(list.live_peak_bytes < compile_expanded(tiny_plan(o), Phase::kStep).live_peak_bytes);
}

TEST_CASE("chunked loss: what it cannot do is refused with the reason", "[chunks]") {
  TinyOptions o = chunked(odd_geometry());
  const auto why = [&] {
    const Diagnostics said = validate(tiny_plan(o));
    return said.empty() ? "" : said.front().message;
  };
  CHECK(why() == "");
  o.preference = PreferencePlan{};
  CHECK(why().find("log-probabilities of whole sequences") != std::string::npos);
  o.preference.reset();
  o.sequence_length = 6, o.global_batch = 1;
  CHECK(why() == "a micro-batch has 6 tokens on a rank, which makes no 8 chunks");
}

}  // namespace
}  // namespace distsetup
