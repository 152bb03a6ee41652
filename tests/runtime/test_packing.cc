// Rows that hold several documents: what is computed is what each document alone gives, on every mesh, and no document sees another.
#include <cmath>
#include <cstring>
#include <string>

#include "runtime/as_one_rank.h"
#include "runtime/family_cases.h"
#include "support/seed.h"

namespace distsetup {
namespace {

using namespace tiny;

// What one step of one rank gives, unclipped.
struct StepResult {
  double loss = 0;
  std::vector<float> gradient;
};
StepResult one_step(const Plan& plan, const Batch& batch) {
  StepResult result;
  run_ranks(plan.mesh, [&](Communicator& communicator) {
    const auto device = make_cpu_device();
    Engine engine(plan, *device, communicator, {.poison = true});
    engine.initialize_parameters();
    engine.load();
    result.loss = engine.step({batch.ids, batch.targets, batch.valid, 1e-3, {}, batch.positions}).loss;
    result.gradient.assign(engine.gradient().begin(), engine.gradient().end());
  });
  return result;
}

Plan unclipped(const TinyOptions& o) {
  Plan plan = tiny_plan(o);
  plan.train.grad_clip = 0;
  return plan;
}

// Each document of a packed batch in a sequence of its own; what is behind it is ignored.
Batch unpacked(const Batch& packed, int64_t sequence_length) {
  Batch alone;
  alone.valid = packed.valid;
  size_t end = 0;
  for (size_t begin = 0; begin < packed.ids.size(); begin = end) {
    for (end = begin + 1; end < packed.ids.size() && packed.positions[end] != 0;) ++end;
    for (int64_t s = 0; s < sequence_length; ++s) {
      const size_t t = begin + size_t(s);
      alone.ids.push_back(t < end ? packed.ids[t] : 0);
      alone.targets.push_back(t < end ? packed.targets[t] : -1);
    }
  }
  return alone;
}

// Padding is poisoned: NaN.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0, worst = a.size() == b.size() ? 0 : 1e9;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    largest = std::max(largest, std::abs(double(b[i])));
    worst = std::max(worst, std::abs(double(a[i]) - double(b[i])));
  }
  return worst / largest;
}

std::vector<FamilyCase> packed_families() {
  std::vector<FamilyCase> all = families();
  all.push_back({"llama", odd_geometry()});
  Geometry g = of("qwen3");
  g.qk_norm = true;
  all.push_back({"qwen3", g});
  return all;
}

}  // namespace

TEST_CASE("packing: packed rows have the loss and the gradients of each document alone", "[packing]") {
  for (const FamilyCase& family : packed_families()) {
    INFO(family.name);
    TinyOptions o;
    o.geometry = family.geometry;
    o.global_batch = 4;
    o.packed = true;
    const Plan packed_plan = unclipped(o);
    const Batch batch = global_batch(packed_plan, 3), alone = unpacked(batch, o.sequence_length);
    o.packed = false;
    o.global_batch = int64_t(alone.ids.size()) / o.sequence_length;
    CHECK(o.global_batch > 2 * packed_plan.train.global_batch);
    const StepResult packed = one_step(packed_plan, batch), each = one_step(unclipped(o), alone);
    CHECK(packed.loss == Approx(each.loss).epsilon(1e-6));
    CHECK(largest_difference(packed.gradient, each.gradient) < 1e-6);
    // The same rows without what packing says are another computation.
    o.global_batch = packed_plan.train.global_batch;
    Batch unaware = batch;
    unaware.positions.clear();
    CHECK(std::abs(one_step(unclipped(o), unaware).loss - packed.loss) > 1e-5);
  }
}

TEST_CASE("packing: changing one document changes no bit of what another one gives", "[packing]") {
  for (const FamilyCase& family : packed_families()) {
    INFO(family.name);
    TinyOptions o;
    o.geometry = family.geometry;
    o.global_batch = 2;
    o.packed = true;
    const Plan plan = unclipped(o);
    Batch batch = global_batch(plan, 3);
    // The second document of the first row is trained; all the others are not, and change.
    size_t begin = 1;
    while (batch.positions[begin] != 0) ++begin;
    size_t end = begin + 1;
    while (batch.positions[end] != 0) ++end;
    batch.valid = 0;
    for (size_t t = 0; t < batch.targets.size(); ++t) {
      if (t < begin || t >= end) batch.targets[t] = -1;
      batch.valid += batch.targets[t] >= 0;
    }
    REQUIRE(batch.valid > 0);
    Batch changed = batch;
    for (size_t t = 0; t < changed.ids.size(); ++t)
      if (t < begin || t >= end) changed.ids[t] = (changed.ids[t] + 7) % plan.model.vocabulary;
    const StepResult before = one_step(plan, batch), after = one_step(plan, changed);
    CHECK(before.loss == after.loss);
    CHECK(same_bits(before.gradient, after.gradient));
    changed.ids[begin] = (changed.ids[begin] + 7) % plan.model.vocabulary;
    CHECK(one_step(plan, changed).loss != before.loss);
  }
}

TEST_CASE("packing: every mesh trains as one rank does", "[packing][nightly][all]") {
  struct Mesh {
    std::string name;
    Sharding sharding;
    int replicate = 1, shard = 1, tp = 1, pp = 1, cp = 1;
    int64_t accumulation = 1;
    CpMethod method = CpMethod::kUlysses;
  };
  const auto m = GENERATE(
      Mesh{"ring 2", Sharding::kDdp, 1, 1, 1, 1, 2, 1, CpMethod::kRing},
      Mesh{"ring 3 x zero3", Sharding::kZero3, 1, 1, 1, 1, 3, 2, CpMethod::kRing},
      Mesh{"ring 2 x tp 2", Sharding::kZero3, 1, 1, 2, 1, 2, 1, CpMethod::kRing},
      Mesh{"allgather 2", Sharding::kDdp, 1, 1, 1, 1, 2, 1, CpMethod::kAllGather},
      Mesh{"zero3 2 x allgather 2", Sharding::kZero3, 1, 2, 1, 1, 2, 2, CpMethod::kAllGather},
      Mesh{"allgather 2 x pp 2", Sharding::kDdp, 1, 1, 1, 2, 2, 2, CpMethod::kAllGather},
      Mesh{"1 × 4 micro-batches", Sharding::kDdp, 1, 1, 1, 1, 1, 4}, Mesh{"ddp 2", Sharding::kDdp, 2, 1, 1, 1, 1, 2},
      Mesh{"zero3 2", Sharding::kZero3, 1, 2}, Mesh{"hybrid 2 x 2", Sharding::kZero3, 2, 2}, Mesh{"tp 2", Sharding::kDdp, 1, 1, 2},
      Mesh{"pp 2", Sharding::kDdp, 1, 1, 1, 2, 1, 4}, Mesh{"zero1 2 x pp 2", Sharding::kZero1, 1, 2, 1, 2, 1, 4},
      Mesh{"ulysses 2", Sharding::kDdp, 1, 1, 1, 1, 2}, Mesh{"zero3 2 x ulysses 2", Sharding::kZero3, 1, 2, 1, 1, 2, 2},
      Mesh{"ulysses 2 x tp 2", Sharding::kDdp, 1, 1, 2, 1, 2}, Mesh{"tp 2 x pp 2", Sharding::kDdp, 1, 1, 2, 2, 1, 2});
  const auto which = GENERATE(as<std::string>{}, "plain", "window", "norms of q and k");
  static int number = 0;
  if (!is_taken(number++, 2)) return;
  INFO(m.name << " " << which);
  TinyOptions o;
  o.geometry.qk_norm = which == "norms of q and k";
  o.geometry.num_heads = 8, o.geometry.num_kv_heads = 4, o.geometry.feed_forward = 36;
  if (which == "window") o.geometry.sliding_window = 3;
  o.packed = true;
  o.steps = 6;
  o.sharding = m.sharding, o.replicate = m.replicate, o.shard = m.shard, o.tp = m.tp, o.pp = m.pp, o.cp = m.cp;
  o.cp_method = m.method;
  o.accumulation = m.accumulation;
  check_as_one_rank(o, m.pp > 1 ? std::vector{Recompute::kFull} : std::vector{Recompute::kNone, Recompute::kSelective});
}

TEST_CASE("packing: learned positions begin again on every mesh", "[packing]") {
  for (const FamilyCase& family : families()) {
    if (family.name != "gpt2" && family.name != "opt") continue;
    TinyOptions o;
    o.geometry = family.geometry;
    o.geometry.feed_forward = 38;
    o.packed = true;
    o.steps = 4;
    o.cp_method = CpMethod::kUlysses;
    o.tp = 2;
    check_as_one_rank(o, {Recompute::kNone});
    o.tp = 1, o.cp = 2;
    check_as_one_rank(o, {Recompute::kNone});
  }
}

TEST_CASE("packing: bf16 follows fp32, and nothing is allocated but what is declared", "[packing]") {
  for (const FamilyCase& family : packed_families()) {
    INFO(family.name);
    TinyOptions o;
    o.geometry = family.geometry;
    o.packed = true;
    o.steps = 5;
    const RunResult exact = train(tiny_plan(o), o.steps);
    o.precision = Dtype::kBf16;
    CHECK(difference(train(tiny_plan(o), o.steps).losses, exact.losses) < 2e-2);
    for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
      o.precision = dtype;
      const Plan plan = tiny_plan(o);
      run_ranks(plan.mesh, [&](Communicator& communicator) { CHECK(undeclared_bytes(plan, communicator) == ""); });
    }
  }
}

TEST_CASE("packing: ranks that share rows allocate nothing but what is declared, and in bf16 follow fp32", "[packing]") {
  for (const CpMethod method : {CpMethod::kRing, CpMethod::kAllGather}) {
    INFO(name(method));
    TinyOptions o;
    o.packed = true;
    o.steps = 5;
    const RunResult exact = train(tiny_plan(o), o.steps);
    o.cp = 2, o.cp_method = method;
    o.precision = Dtype::kBf16;
    const Plan plan = tiny_plan(o);
    CHECK(difference(train(plan, o.steps).losses, exact.losses) < 2e-2);
    CHECK(undeclared_bytes(plan, *make_fake_communicator(plan.mesh, 1)) == "");
  }
}

TEST_CASE("packing: what cannot be kept apart is refused by name", "[packing]") {
  TinyOptions o;
  o.geometry.num_heads = 8, o.geometry.num_kv_heads = 4;
  o.packed = true;
  o.cp = 2;
  for (const CpMethod method : {CpMethod::kRing, CpMethod::kAllGather, CpMethod::kUlysses}) {
    o.cp_method = method;
    Plan shared = tiny_plan(o);
    CHECK_FALSE(has_error(validate(shared)));
    shared.hardware.accelerator = Accelerator::kCuda;
    shared.precision.compute = Dtype::kBf16;
    const Diagnostics said = validate(shared);
    CHECK(has_error(said) == (method != CpMethod::kUlysses));
    if (has_error(said)) CHECK(said.front().message.find(name(method)) != std::string::npos);
  }
  o.cp = 1;
  Plan plan = tiny_plan(o);
  plan.hardware.accelerator = Accelerator::kCuda;
  CHECK_FALSE(has_error(validate(plan)));
  plan = tiny_plan(o);
  plan.data.tokenizer = kByteTokens;
  CHECK(has_error(validate(plan)));
}

TEST_CASE("packing: positions that do not follow each other are refused", "[packing]") {
  TinyOptions o;
  o.packed = true;
  const Plan plan = tiny_plan(o);
  Batch batch = global_batch(plan, 0);
  const auto run = [&] { (void)one_step(plan, batch); };
  CHECK_NOTHROW(run());
  batch.positions[o.sequence_length] = 1;  // a row begins with a document
  CHECK_THROWS(run());
  batch.positions.pop_back();
  CHECK_THROWS(run());
}

}  // namespace distsetup
