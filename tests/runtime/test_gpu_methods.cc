// On one GPU (tag [.gpu]): every family, mixtures of experts, ways to tune, preference pairs, fp16, chunked loss and the optimizer on
// the host, each against the CPU or against the same run without it.
#include <algorithm>

#include "runtime/expert_cases.h"
#include "runtime/family_cases.h"
#include "runtime/on_gpu.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using namespace tiny;

// In fp32 as on the CPU, with the same bits in poisoned memory; in bf16 near it.
void check_on_gpu(TinyOptions o, double close = 1e-5) {
  gpu();  // before libtorch is asked for anything
  const Plan plan = gentle_plan(o);
  const RunResult cpu = train(plan, 6), cuda = train_on_gpu(plan, 6), poisoned = train_on_gpu(plan, 6, true);
  CHECK(cuda == poisoned);
  CHECK(difference(cuda.losses, cpu.losses) < close);
  CHECK(difference(cuda.norms, cpu.norms) < 10 * close);
  CHECK(std::abs(cuda.held_out - cpu.held_out) <= close * cpu.held_out);
  o.precision = Dtype::kBf16;
  CHECK(difference(train_on_gpu(gentle_plan(o), 6).losses, cpu.losses) < 2e-2);
}

TEST_CASE("gpu: every family trains as on the CPU", "[.gpu]") {
  for (const FamilyCase& f : families()) {
    if (f.geometry.attention_soft_cap > 0) continue;  // refused: CUDA has no such kernel
    INFO(f.name);
    TinyOptions o;
    o.geometry = f.geometry;
    o.geometry.vocabulary = 264;
    check_on_gpu(o);
  }
}

// Sizes that the grouped kernel of all experts takes in bf16.
Geometry even(Geometry g) {
  g.hidden = 64, g.num_heads = 4, g.head_size = 16, g.feed_forward = 128, g.expert_feed_forward = 32;
  g.vocabulary = 264;
  if (g.shared_feed_forward > 0) g.shared_feed_forward = 32;
  return g;
}

TEST_CASE("gpu: experts train as on the CPU", "[.gpu][experts]") {
  const std::string which = GENERATE(as<std::string>(), "qwen2", "mixtral", "qwen3", "glm4", "gpt_oss");
  const bool is_even = GENERATE(false, true);
  const int64_t accumulation = GENERATE(1, 2);
  INFO(which << (is_even ? " even" : " odd") << " accumulation " << accumulation);
  TinyOptions o;
  o.geometry = expert_geometry(which);
  if (is_even) o.geometry = even(o.geometry);
  o.accumulation = accumulation;
  o.recompute = accumulation == 2 ? Recompute::kFull : Recompute::kSelective;
  check_on_gpu(o);
}

TEST_CASE("gpu: latent attention trains as on the CPU", "[.gpu][experts]") {
  const std::string which = GENERATE(as<std::string>(), "deepseek_v2", "deepseek_v3");
  INFO(which);
  TinyOptions o;
  o.geometry = latent_geometry(which);
  o.geometry.vocabulary = 264;
  o.geometry.qk_nope_head_size = 12, o.geometry.head_size = 16, o.geometry.v_head_size = 8;  // CUDA's attention takes multiples of 8
  check_on_gpu(o);
}

TEST_CASE("gpu: experts of which one gets every token, and a load-balancing loss", "[.gpu][experts]") {
  TinyOptions o;
  o.geometry = even(adversarial_geometry());
  check_on_gpu(o);
  o.geometry = even(expert_geometry("qwen3"));
  o.geometry.router_loss = 0.1;
  check_on_gpu(o);
}

TEST_CASE("gpu: experts in bf16 have the same bits again", "[.gpu][experts]") {
  TinyOptions o;
  o.geometry = even(expert_geometry("qwen3"));
  o.precision = Dtype::kBf16;
  Plan plan = gentle_plan(o);
  plan.train.deterministic = true;
  gpu();
  CHECK(train_on_gpu(plan, 6) == train_on_gpu(plan, 6, true));
}

TEST_CASE("gpu: parts of a model and adapters are trained as on the CPU", "[.gpu]") {
  const TunedCase c =
      GENERATE(TunedCase{"norms and head", {".*norm", "lm_head"}, {}}, TunedCase{"adapters", {}, {"q_proj", "down_proj"}, 4},
               TunedCase{"adapters, nf4", {}, {"q_proj", "v_proj"}, 4, true});
  INFO(c.name);
  TinyOptions o = sized(64, 16);
  tune(o, c);
  check_on_gpu(o);
}

TEST_CASE("gpu: preference pairs, and references that run in the step", "[.gpu]") {
  const std::string reference = GENERATE(as<std::string>(), "cached", "shared", "sharded");
  const std::string loss = GENERATE(as<std::string>(), "sigmoid", "hinge", "ipo");
  INFO(reference << " " << loss);
  TinyOptions o = sized(64, 16);
  o.preference = PreferencePlan{};
  o.preference->loss = loss;
  o.preference->beta = 0.01;  // so that no hinge is at its end
  o.preference->reference = reference;
  if (reference == "shared") o.rank = 4, o.targets = {"q_proj", "down_proj"};
  check_on_gpu(o, 1e-4);
}

TEST_CASE("gpu: documents of packed rows train as on the CPU", "[.gpu][packing]") {
  const bool has_window = GENERATE(false, true);
  TinyOptions o = sized(64, 16);
  o.packed = true;
  o.sequence_length = 64;
  o.geometry.qk_norm = GENERATE(false, true);
  o.geometry.num_kv_heads = o.geometry.qk_norm ? 4 : 2;
  if (has_window) o.geometry.family = "mistral", o.geometry.sliding_window = 3;
  INFO((has_window ? "window" : "no window") << (o.geometry.qk_norm ? ", normed q and k" : ""));
  check_on_gpu(o);
  o.precision = Dtype::kBf16;
  Plan plan = gentle_plan(o);
  plan.train.deterministic = true;
  CHECK(train_on_gpu(plan, 6) == train_on_gpu(plan, 6, true));
}

TEST_CASE("gpu: documents of rows with learned positions, and of one long row", "[.gpu][packing]") {
  TinyOptions o;
  for (const FamilyCase& f : families())
    if (f.name == "gpt2") o.geometry = f.geometry;
  o.geometry.vocabulary = 264;
  o.packed = true;
  check_on_gpu(o);
  o = sized(256, 64);
  o.packed = true;
  o.sequence_length = 1024;  // more documents than are taken at once
  o.global_batch = 2;
  check_on_gpu(o);
}

TEST_CASE("gpu: attention of documents allocates what is declared", "[.gpu][packing]") {
  TinyOptions o = sized(256, 64);
  o.packed = true;
  o.sequence_length = GENERATE(64, 1024);
  o.precision = GENERATE(Dtype::kF32, Dtype::kBf16);
  Plan plan = on_gpu(tiny_plan(o));
  plan.train.deterministic = GENERATE(false, true);
  const auto self = make_self_communicator(plan.mesh);
  EngineOptions options;
  options.metered_steps = 2;
  Engine engine(plan, gpu(), *self, options);
  engine.initialize_parameters();
  engine.load();
  const Batch batch = global_batch(plan, 0);
  for (int s = 0; s < 2; ++s) {
    const StepStats stats = engine.step({batch.ids, batch.targets, batch.valid, 1e-3, batch.reference, batch.positions});
    for (const StepAllocation& a : stats.allocations) {
      const Schedule& list = engine.schedule(Phase::kStep);
      const Step& step = list.steps[size_t(a.step)];
      INFO("S " << o.sequence_length << " step " << step.op << " " << step.kernel << ": " << a.peak_bytes << " taken");
      CHECK(a.peak_bytes <= workspace_bytes(step, list, Accelerator::kCuda));
    }
  }
}

TEST_CASE("gpu: a chunked loss is the whole one", "[.gpu]") {
  TinyOptions o = sized(64, 16);
  o.geometry.tied_embeddings = GENERATE(false, true);
  const RunResult whole = train_on_gpu(gentle_plan(o), 6);
  o.chunked_loss = true;
  check_on_gpu(o);
  CHECK(difference(train_on_gpu(gentle_plan(o), 6).losses, whole.losses) < 1e-5);
}

TEST_CASE("gpu: fp16 stays near fp32", "[.gpu]") {
  TinyOptions o = sized(64, 16);
  const bool has_experts = GENERATE(false, true);
  if (has_experts) o.geometry = even(expert_geometry("qwen3"));
  gpu();
  const RunResult exact = train(gentle_plan(o), 6);
  o.precision = Dtype::kF16;
  const RunResult half = train_on_gpu(gentle_plan(o), 6);
  CHECK(half == train_on_gpu(gentle_plan(o), 6, true));
  CHECK(difference(half.losses, exact.losses) < 5e-3);
}

TEST_CASE("gpu: what waits on the host has the bits of what does not", "[.gpu]") {
  TinyOptions o = sized(64, 16);
  o.sharding = GENERATE(Sharding::kDdp, Sharding::kZero3);
  o.accumulation = GENERATE(1, 2);
  o.precision = GENERATE(Dtype::kF32, Dtype::kBf16);
  if (GENERATE(false, true)) o.geometry = even(expert_geometry("qwen3"));
  INFO(name(o.sharding) << " accumulation " << o.accumulation << " " << name(o.precision) << " " << o.geometry.family);
  gpu();
  Plan plan = gentle_plan(o);
  plan.train.deterministic = true;
  const RunResult on_device = train_on_gpu(plan, 6);
  plan.offload.activations = OffloadPlace::kHost;
  CHECK(train_on_gpu(plan, 6, true) == on_device);  // the same kernels
  plan.offload.optimizer = OffloadPlace::kHost;     // whose step the CPU takes
  const RunResult on_host = train_on_gpu(plan, 6), poisoned = train_on_gpu(plan, 6, true);
  CHECK(on_host == poisoned);
  CHECK(difference(on_host.losses, on_device.losses) < (o.precision == Dtype::kF32 ? 1e-5 : 1e-2));
  plan.offload.parameters = OffloadPlace::kHost;
  CHECK(train_on_gpu(plan, 6, true) == on_host);
}

}  // namespace
}  // namespace distsetup
