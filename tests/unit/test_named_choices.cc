// What a user names, and how it is answered: modules of adapters by each tool's names, programs of other trainers, FSDP's wrap policy,
// the optimizer of a script's own loop, sizes that a later release can run.
#include <algorithm>
#include <catch2/catch.hpp>

#include "planner/frameworks/memory.h"
#include "planner/search/fixes.h"
#include "planner/search/framework_setup.h"
#include "planner/search/make_plan.h"
#include "support/problems.h"

using namespace distsetup;

namespace {

Flags with(Flags flags, const Flags& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

Flags one_node(const char* model, const char* trainer, const Flags& more = {}) {
  return with({{"model", model}, {"gpu", "a100_sxm_80"}, {"gpus", "8"}, {"nodes", "1"}, {"trainer", trainer}}, more);
}

Problem problem_of(const Flags& flags) {
  const Result<Problem> problem = resolved(flags);
  INFO(format_diagnostics(problem.diagnostics));
  REQUIRE(problem.ok());
  return *problem;
}

Plan plan_of(const Flags& flags) {
  const Result<Plan> plan = make_plan(problem_of(flags));
  INFO(format_diagnostics(plan.diagnostics));
  REQUIRE(plan.ok());
  return *plan;
}

std::string refusal(const Flags& flags) {
  const Result<Problem> problem = resolved(flags);
  return problem.ok() ? "" : format_diagnostics(problem.diagnostics);
}

std::vector<std::string> targets_of(const char* model, const char* names) {
  return problem_of(one_node(model, "ddp", {{"finetune", "lora"}, {"lora-targets", names}})).base.train.lora_targets;
}

}  // namespace

TEST_CASE("adapters: modules go by the names of the model's own class and of other tools") {
  using Names = std::vector<std::string>;
  CHECK(targets_of("gpt_neox_20b", "query_key_value") == Names{"query", "key", "value"});
  CHECK(targets_of("gpt_neox_20b", "query_key_value,dense,dense_h_to_4h") == Names{"query", "key", "value", "output", "up"});
  CHECK(targets_of("phi3_mini", "qkv_proj,gate_up_proj") == Names{"query", "key", "value", "gate", "up"});
  CHECK(targets_of("gpt2", "c_attn,c_proj") == Names{"query", "key", "value", "output", "down"});
  CHECK(targets_of("gpt_neo_2.7b", "c_proj,out_proj") == Names{"down", "output"});
  CHECK(targets_of("llama3_8b", "q_proj,linear_qkv,w1") == Names{"query", "key", "value", "gate"});
  CHECK(refusal(one_node("llama3_8b", "ddp", {{"finetune", "lora"}, {"lora-targets", "qqq"}})).find("'qqq' is no matrix of a block") !=
        std::string::npos);
}

TEST_CASE("programs: the trainer that runs one is named") {
  CHECK(refusal(one_node("llama3_8b", "ddp", {{"program", "nanotron"}})).find("--trainer megatron, or --program hf_eager") !=
        std::string::npos);
  const std::string of_blocks = refusal(one_node("llama3_8b", "megatron", {{"program", "hf_eager"}}));
  CHECK(of_blocks.find("fsdp1") != std::string::npos);
  CHECK(of_blocks.find("--program megatron_te") != std::string::npos);
}

// Without a policy the root has all parameters: in 16 bits, less the block that is gathered otherwise.
TEST_CASE("FSDP: a model that is wrapped as one unit stays gathered whole") {
  const Flags run = {{"sharding", "zero3"}, {"micro-batch", "1"}, {"seq", "512"}, {"recompute", "none"}};
  const Plan blocks = plan_of(one_node("llama_7b", "fsdp1", run));
  for (const char* words : {"no_wrap", "NO_WRAP", "none"}) {
    const Plan whole = plan_of(one_node("llama_7b", "fsdp1", with(run, {{"fsdp-auto-wrap-policy", words}})));
    CHECK(whole.strategy.auto_wrap_policy == kWrapsNothing);
    CHECK(static_cast<double>(whole.memory.peak_allocated_bytes - blocks.memory.peak_allocated_bytes) > 2 * 6.7e9 * 0.8);
  }
  const Plan said = plan_of(one_node("llama_7b", "fsdp1", with(run, {{"fsdp-auto-wrap-policy", "transformer_based_wrap"}})));
  CHECK(said.memory.peak_allocated_bytes == blocks.memory.peak_allocated_bytes);
  CHECK(problem_of(one_node("llama_7b", "fsdp2", {{"auto-wrap-policy", "no_wrap"}})).setup.software.wrapping == UnitWrapping::kWhole);
  for (const char* trainer : {"ddp", "deepspeed", "megatron", "native"}) {
    INFO(trainer);
    CHECK(refusal(one_node("llama3_8b", trainer, {{"auto-wrap-policy", "no_wrap"}})).find("--trainer fsdp1") != std::string::npos);
  }
}

// torch.optim.AdamW as it comes has a copy of its states' size in its step; the Hugging Face Trainer asks for the fused one.
TEST_CASE("optimizers: a script's own loop has AdamW as PyTorch has it") {
  const auto kind = [](const char* trainer, const Flags& more) {
    return problem_of(one_node("llama3.2_1b", trainer, more)).setup.optimizer_implementation;
  };
  for (const char* trainer : {"ddp", "fsdp1"}) {
    CHECK(kind(trainer, {{"program", "litgpt_eager"}}) == OptimizerImplementation::kForeach);
    CHECK(kind(trainer, {}) == OptimizerImplementation::kFused);
    CHECK(kind(trainer, {{"program", "hf_fused"}}) == OptimizerImplementation::kFused);
  }
  CHECK(kind("ddp", {{"compile", "true"}}) == OptimizerImplementation::kFused);
  CHECK(kind("deepspeed", {{"program", "litgpt_eager"}}) == OptimizerImplementation::kFused);
}

TEST_CASE("experts: Unsloth's adapters on them are no other trainer's") {
  const Flags run = {{"code-base", "unsloth"}, {"finetune", "qlora"}};
  for (const Flags& more : {Flags{}, Flags{{"lora-targets", "all-linear"}}, Flags{{"lora-targets", "query,value"}}}) {
    const std::string said = refusal(one_node("mixtral_8x7b", "ddp", with(run, more)));
    CHECK(said.find("adapters under DDP (Unsloth) (unsloth 2026.2 on) are not planned yet") != std::string::npos);
    CHECK(said.find("without --code-base") != std::string::npos);
  }
  CHECK(problem_of(one_node("llama3_8b", "ddp", run)).setup.program == "hf_fused");
}

// megatron/core/transformer/attention.py of 0.16: num_query_groups < world_size. Who asks for so many ranks has such a release.
TEST_CASE("tensor parallelism: fewer kv heads than ranks are a matter of Megatron's release") {
  const auto run = [](const char* trainer, const char* tp) {
    return one_node("qwen3_30b_a3b", trainer,
                    {{"tp", tp}, {"pp", "1"}, {"ep", "8"}, {"cp", "1"}, {"micro-batch", "1"}, {"seq", "1024"}, {"recompute", "full"}});
  };
  const auto assumes = [](const Plan& plan) {
    return std::ranges::any_of(plan.assumptions, [](const auto& a) {
      return a.find("tensor ranks share kv heads, as Megatron-Core does from core 0.16 on") == 0;
    });
  };
  const Plan shared = plan_of(run("megatron", "8"));
  CHECK(shared.mesh.tp == 8);
  CHECK(assumes(shared));
  CHECK_FALSE(assumes(plan_of(run("megatron", "4"))));
  const std::string native = refusal(run("native", "8"));
  CHECK(native.find("does not divide its 4 key and value heads") != std::string::npos);
}

// A pair is two sequences of one forward, whichever trainer runs it.
TEST_CASE("DPO: every trainer has both sequences of a pair in memory") {
  const Flags run = {{"micro-batch", "4"}, {"gradient-accumulation", "1"}, {"seq", "1024"}, {"recompute", "none"}};
  for (const char* trainer : {"ddp", "fsdp2", "deepspeed"}) {
    INFO(trainer);
    const Plan pairs = plan_of(one_node("qwen2.5_0.5b", trainer, with(run, {{"method", "dpo"}})));
    const Plan samples = plan_of(one_node("qwen2.5_0.5b", trainer, with(run, {{"method", "sft"}})));
    CHECK(pairs.micro_batch == 4);
    CHECK(pairs.train.global_batch == samples.train.global_batch);
    const auto activations = [](const Plan& plan) { return static_cast<double>(plan.memory.peak_allocated_bytes); };
    const Plan doubled = plan_of(
        one_node("qwen2.5_0.5b", trainer,
                 {{"micro-batch", "8"}, {"gradient-accumulation", "1"}, {"seq", "1024"}, {"recompute", "none"}, {"method", "sft"}}));
    CHECK(activations(pairs) >= 0.95 * activations(doubled));
    CHECK(activations(pairs) > 1.3 * activations(samples));
    CHECK(pairs.time.step_s > 1.5 * samples.time.step_s);
  }
}

TEST_CASE("Unsloth: the loss of the planned release is an assumption until it is named") {
  const Flags run = {{"code-base", "unsloth"}, {"finetune", "qlora"}, {"gpus", "1"}};
  const auto assumes = [&](const Flags& more) {
    const Problem problem = problem_of(one_node("llama3_8b", "ddp", with(run, more)));
    return std::ranges::any_of(problem.base.assumptions,
                               [](const auto& a) { return a.find("before Unsloth 2024.11: --loss-head fused") != std::string::npos; });
  };
  CHECK(assumes({}));
  CHECK_FALSE(assumes({{"loss-head", "fused"}}));
}

TEST_CASE("time: MFU is over the peak that is named") {
  const Flags run = {{"gpu", "h100_sxm"},     {"gpus", "8"}, {"nodes", "1"}, {"model", "llama3_8b"},
                     {"trainer", "megatron"}, {"tp", "2"},   {"seq", "8192"}};
  for (const char* precision : {"bf16", "fp8"}) {
    INFO(precision);
    const Plan plan = plan_of(with(run, {{"precision", precision}}));
    const double flops_per_token = 6 * 7.5e9 + 6.0 * 32 * 4096 * 8192;  // without the embedding; causal attention
    CHECK(plan.time.mfu * plan.hardware.peak_flops_per_s == Approx(plan.time.tokens_per_s_per_gpu * flops_per_token).epsilon(0.03));
    CHECK(plan.time.hfu >= plan.time.mfu);
    CHECK(plan.hardware.peak_flops_per_s > (precision == std::string("fp8") ? 1.9e15 : 9e14));
  }
}

// Of several pins none of which suffices alone, the way out names what it found.
TEST_CASE("fixes: what was searched is named by its sizes") {
  const Problem problem = problem_of({{"model", "llama2_13b"},
                                      {"gpu", "l40s"},
                                      {"gpus", "8"},
                                      {"nodes", "1"},
                                      {"trainer", "fsdp1"},
                                      {"sharding", "zero2"},
                                      {"recompute", "none"},
                                      {"micro-batch", "4"},
                                      {"gradient-accumulation", "1"},
                                      {"seq", "2048"}});
  const Result<Plan> plan = make_plan(problem);
  REQUIRE(plan.ok());
  REQUIRE(plan->verdict == Verdict::kDoesNotFit);
  const std::vector<Fix> fixes = find_fixes(problem, *plan);
  REQUIRE_FALSE(fixes.empty());
  CHECK(fixes.front().flags == "--sharding zero3 --recompute full --micro-batch 1 --gradient-accumulation 1");
}
