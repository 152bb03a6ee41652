// Choices of a run whose bytes follow by hand: optimizers, DPO's reference, offload, adapters, what a checkpoint holds and how often
// to write one. Each under the trainers that have it, and refused by name elsewhere.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "model/count.h"
#include "planner/frameworks/memory.h"
#include "planner/frameworks/state_bytes.h"
#include "planner/frameworks/validate.h"
#include "planner/search/answer.h"
#include "planner/search/fixes.h"
#include "planner/search/framework_setup.h"
#include "planner/search/make_plan.h"
#include "planner/time/economics.h"
#include "planner/time/step.h"
#include "support/problems.h"

using namespace distsetup;

namespace {

std::string said(const Flags& flags) { return format_diagnostics(resolved(flags).diagnostics); }

Setup setup_of(const Flags& flags) {
  const Result<Problem> problem = resolved(flags);
  INFO(format_diagnostics(problem.diagnostics));
  REQUIRE(problem.ok());
  REQUIRE_FALSE(is_native(problem->base));
  Setup s = problem->setup;
  s.gpu = find_gpu(presets(), "h100_sxm")->gpu;
  s.dp_shard = s.gpus_per_node = 8;
  s.sequence_length = 1024;
  return s;
}

// As bytes by hand; rounding of shards and of the allocator is below one in a thousand.
void check_bytes(int64_t found, double expected) { CHECK(static_cast<double>(found) == Approx(expected).epsilon(0.001)); }

int64_t term(const MemoryEstimate& m, const char* name) {
  const auto it = std::find_if(m.terms.begin(), m.terms.end(), [&](const MemoryTerm& t) { return t.buffer_class == name; });
  return it == m.terms.end() ? 0 : it->bytes_max;
}

double parameters(const Setup& s) { return static_cast<double>(count_parameters(s.model).total); }

}  // namespace

TEST_CASE("choices: Muon takes the matrices of blocks and leaves the rest to AdamW") {
  for (const char* trainer : {"fsdp2", "megatron"}) {
    INFO(trainer);
    Setup s = setup_of({{"model", "llama3_8b"}, {"trainer", trainer}, {"optimizer", "muon"}});
    if (s.framework == Framework::kMegatron) s.sharding = Sharding::kZero1;
    const double master = s.master_copy ? 4 : 0, vocabulary = 2.0 * 128256 * 4096;
    check_bytes(term(simulate_memory(s), "optimizer state"), ((4 + master) * parameters(s) + 4 * vocabulary) / 8);
  }
}

// Newton-Schulz by hand: 5 (4 m m n + 2 m m m) FLOPs for each m x n matrix of Llama 3 8B's 32 layers, over 8 ranks at the peak.
TEST_CASE("choices: Muon's orthogonalisation takes time and every rank does its share of it") {
  const auto seconds = [](const char* optimizer, int ranks) {
    Setup s = setup_of({{"model", "llama3_8b"}, {"trainer", "fsdp2"}, {"optimizer", optimizer}});
    s.dp_shard = ranks;
    return estimate_time(s).optimizer_s;
  };
  const auto steps = [](double m, double n) { return 5 * (4 * m * m * n + 2 * m * m * m); };
  const double flops = 32 * (2 * steps(4096, 4096) + 2 * steps(1024, 4096) + 3 * steps(4096, 14336));
  const double least = flops / 8 / 989e12, more = seconds("muon", 8) - seconds("sgd", 8);
  CHECK(more > least);
  CHECK(more < 3 * least);
  CHECK(seconds("muon", 4) - seconds("sgd", 4) == Approx(2 * more).epsilon(0.1));
}

TEST_CASE("choices: Adafactor keeps all second moments of flat vectors and next to none of matrices") {
  Setup ddp = setup_of({{"model", "llama3.2_1b"}, {"trainer", "ddp"}, {"optimizer", "adafactor"}});
  ddp.sharding = Sharding::kDdp;
  CHECK(term(simulate_memory(ddp), "optimizer state") == 0);
  const Setup fsdp1 = setup_of({{"model", "llama3.2_1b"}, {"trainer", "fsdp1"}, {"optimizer", "adafactor"}});
  check_bytes(term(simulate_memory(fsdp1), "optimizer state"), 4 * parameters(fsdp1) / 8);
  Setup zero2 = setup_of({{"model", "llama3.2_1b"}, {"trainer", "deepspeed"}, {"optimizer", "adafactor"}});
  zero2.sharding = Sharding::kZero2;
  check_bytes(term(simulate_memory(zero2), "optimizer state"), (4 + 4) * parameters(zero2) / 8);
}

TEST_CASE("choices: pages of a paged optimizer are on the host and in the checkpoint") {
  const Setup paged = setup_of({{"model", "llama3_8b"}, {"trainer", "fsdp1"}, {"optimizer", "paged_adamw_8bit"}});
  const Setup held = setup_of({{"model", "llama3_8b"}, {"trainer", "fsdp1"}, {"optimizer", "adamw_8bit"}});
  const MemoryEstimate of_paged = simulate_memory(paged), of_held = simulate_memory(held);
  CHECK(of_paged.checkpoint_bytes == of_held.checkpoint_bytes);
  CHECK(of_held.host_bytes_per_node == 0);
  check_bytes(of_paged.host_bytes_per_node, parameters(paged) * 2 * (1 + 4.0 / 256));
  CHECK(term(of_paged, "optimizer state") == 0);
  const Setup of_words = setup_of({{"model", "llama3_8b"}, {"trainer", "fsdp1"}, {"optimizer", "paged_adamw"}});
  CHECK(of_words.optimizer == OptimizerKind::kAdamW);
  check_bytes(simulate_memory(of_words).host_bytes_per_node, parameters(of_words) * 2 * 4);  // fp32 moments
  CHECK(term(simulate_memory(of_words), "optimizer state") == 0);
}

TEST_CASE("choices: axolotl's FSDP2 leaves the states in the type of the weights") {
  const Setup cast = setup_of({{"model", "llama3.2_1b"}, {"trainer", "fsdp2"}, {"code-base", "transformers"}});
  for (const Flags& of : {Flags{{"code-base", "axolotl"}}, Flags{{"launch-target", "axolotl"}}}) {
    Flags flags = {{"model", "llama3.2_1b"}, {"trainer", "fsdp2"}};
    flags.insert(flags.end(), of.begin(), of.end());
    const Setup kept = setup_of(flags);
    CHECK(kept.program == cast.program);
    CHECK(kept.loss == cast.loss);
    for (const char* of_states : {"parameter shard", "optimizer state"}) {
      INFO(of_states);
      check_bytes(2 * term(simulate_memory(kept), of_states), term(simulate_memory(cast), of_states));
    }
  }
}

TEST_CASE("choices: axolotl's DDP leaves the states in the type of the weights, adapters in fp32") {
  for (const char* words : {"code-base", "launch-target"}) {
    INFO(words);
    Flags flags = {{"model", "llama3.2_1b"}, {"trainer", "ddp"}, {words, "axolotl"}};
    const Setup full = setup_of(flags);
    CHECK(full.program == "hf_eager");
    CHECK(full.parameter_dtype == Dtype::kBf16);
    CHECK(full.gradient_dtype == Dtype::kBf16);
    CHECK(full.state_dtype == Dtype::kBf16);
    flags.push_back({"finetune", "lora"});
    const Setup adapters = setup_of(flags);
    CHECK(adapters.frozen_dtype == Dtype::kBf16);
    CHECK(adapters.lora.dtype == Dtype::kF32);
    CHECK(adapters.gradient_dtype == Dtype::kF32);
    CHECK(adapters.state_dtype == Dtype::kF32);
  }
}

TEST_CASE("choices: torchtune keeps all states in the type of the weights and makes its logits in chunks") {
  const Flags run = {{"model", "llama3.2_1b"}, {"code-base", "torchtune"}};
  for (const char* trainer : {"fsdp2", "ddp"}) {
    INFO(trainer);
    Flags flags = run;
    flags.insert(flags.end(), {{"trainer", trainer}, {"recompute", "full"}, {"offload-activations", "host"}});
    CHECK(setup_of(flags).program == "torchtitan_eager");
    flags.push_back({"compile", "true"});
    const Setup s = setup_of(flags);
    CHECK(s.program == "torchtitan_compiled");
    CHECK(s.loss == LossHead::kChunkedLogits);
    CHECK(s.parameter_dtype == Dtype::kBf16);
    CHECK(s.state_dtype == Dtype::kBf16);
    CHECK(s.optimizer_implementation == OptimizerImplementation::kFused);
    flags.insert(flags.end(), {{"finetune", "lora"}});
    CHECK(setup_of(flags).lora.dtype == Dtype::kBf16);
  }
  Flags split = run;
  split.push_back({"trainer", "fsdp2"});
  CHECK(resolved(split)->base.precision.master == Dtype::kBf16);
  Flags in_fp32 = split;
  in_fp32.push_back({"master-dtype", "fp32"});
  CHECK(resolved(in_fp32)->base.precision.master == Dtype::kF32);
  check_bytes(term(simulate_memory(setup_of(in_fp32)), "optimizer state"), 8 * parameters(setup_of(in_fp32)) / 8);
  const MemoryEstimate memory = simulate_memory(setup_of(split));
  check_bytes(term(memory, "parameter shard"), 2 * parameters(setup_of(split)) / 8);
  check_bytes(term(memory, "optimizer state"), 4 * parameters(setup_of(split)) / 8);
  Flags other = run;
  other.push_back({"trainer", "fsdp1"});
  CHECK(said(other).find("axolotl, unsloth and torchtune of --trainer ddp") != std::string::npos);
}

TEST_CASE("choices: what a code base that is named has not is planned as the trainer's own, and said") {
  Flags flags = {{"model", "llama3.2_1b"}, {"trainer", "fsdp2"}, {"tp", "2"}};
  const auto says = [](const Flags& of) {
    const Result<Problem> problem = resolved(of);
    REQUIRE(problem.ok());
    const std::vector<std::string>& all = problem->base.assumptions;
    return std::any_of(all.begin(), all.end(), [](const std::string& a) { return a.starts_with("as FSDP2 (torchtitan) does it: "); });
  };
  CHECK_FALSE(says(flags));
  for (const char* code_base : {"torchtune", "axolotl"}) {
    INFO(code_base);
    Flags named = flags;
    named.push_back({"code-base", code_base});
    CHECK(says(named));
    named[2] = {"tp", "1"};
    CHECK_FALSE(says(named));
  }
}

TEST_CASE("choices: logits of DPO's reference are made while those of the policy are there") {
  for (const char* trainer : {"ddp", "fsdp1", "deepspeed"}) {
    INFO(trainer);
    const auto at_loss = [](const Setup& s) {
      const MemoryEstimate memory = simulate_memory(s);
      for (const PhaseMemory& phase : memory.by_phase)
        if (phase.phase == "loss") return phase.allocated_bytes;
      return int64_t{0};
    };
    Setup s =
        setup_of({{"model", "llama3.2_1b"}, {"trainer", trainer}, {"method", "dpo"}, {"finetune", "lora"}, {"micro-batch", "4"}});
    REQUIRE(s.frozen_reference);
    const int64_t logits = 4 * s.model.vocabulary * s.tokens(), of_pairs = at_loss(s);
    CHECK(of_pairs > kLogitsAtReference * logits);
    s.frozen_reference = false;
    const int64_t alone = at_loss(s);
    CHECK(of_pairs > alone);
    CHECK(of_pairs < alone + 2 * logits);
    s.loss = LossHead::kLiger;
    const int64_t fused = at_loss(s);
    s.frozen_reference = true;
    CHECK(at_loss(s) == fused);  // no logits, none of the reference
  }
}

TEST_CASE("choices: DPO with adapters has no second copy of the model") {
  for (const char* trainer : {"ddp", "fsdp1", "deepspeed", "megatron"}) {
    INFO(trainer);
    const auto weights = [&](const char* method, const char* finetune) {
      Setup s = setup_of({{"model", "llama3.2_1b"}, {"trainer", trainer}, {"method", method}, {"finetune", finetune}});
      if (s.framework != Framework::kFsdp1) s.sharding = Sharding::kDdp;
      return term(simulate_memory(s), "parameter shard");
    };
    CHECK(weights("dpo", "lora") == weights("sft", "lora"));
    CHECK(weights("dpo", "full") > 1.4 * static_cast<double>(weights("sft", "full")));
  }
}

TEST_CASE("choices: FSDP offloads parameters and optimizer state together and the reference with them") {
  for (const char* trainer : {"fsdp1", "fsdp2"}) {
    INFO(trainer);
    const Setup s = setup_of({{"model", "13B"}, {"trainer", trainer}, {"method", "dpo"}, {"offload-parameters", "host"}});
    CHECK(s.offload.optimizer == OffloadPlace::kHost);
    check_bytes(simulate_memory(s).host_bytes_per_node, (16 + 2) * parameters(s));  // 208 GB of states and 26 of the reference
    CHECK(estimate_time(s).offload_exposed_s > 0);
    CHECK(said({{"model", "13B"}, {"trainer", trainer}, {"offload-optimizer", "host"}}).find("to the host together, not one alone") !=
          std::string::npos);
  }
}

TEST_CASE("choices: DeepSpeed sends the optimizer to NVMe in stage 3 alone") {
  Setup s = setup_of({{"model", "8B"}, {"trainer", "deepspeed"}, {"offload-optimizer", "nvme"}});
  for (const Sharding sharding : {Sharding::kDdp, Sharding::kZero1, Sharding::kZero2, Sharding::kZero3}) {
    s.sharding = sharding;
    CHECK(has_error(validate(s)) == (sharding != Sharding::kZero3));
  }
}

TEST_CASE("choices: a checkpoint is as large on every mesh") {
  const auto checkpoint = [](Setup s, int dp, int tp, int pp, int cp, int ep, Sharding sharding) {
    s.sharding = sharding;
    (sharding == Sharding::kDdp ? s.dp_replicate : s.dp_shard) = dp;
    (sharding == Sharding::kDdp ? s.dp_shard : s.dp_replicate) = 1;
    s.tp = tp, s.pp = pp, s.cp = cp, s.ep = ep;
    s.gradient_accumulation = 8;
    return simulate_memory(s).checkpoint_bytes;
  };
  const Setup megatron = setup_of({{"model", "llama3_8b"}, {"trainer", "megatron"}});
  const double dense = 14 * parameters(megatron);
  check_bytes(checkpoint(megatron, 8, 1, 1, 1, 1, Sharding::kZero1), dense);
  check_bytes(checkpoint(megatron, 4, 1, 1, 2, 1, Sharding::kDdp), dense);
  check_bytes(checkpoint(megatron, 2, 2, 2, 1, 1, Sharding::kZero1), dense);
  const Setup experts = setup_of({{"model", "mixtral_8x7b"}, {"trainer", "megatron"}});
  check_bytes(checkpoint(experts, 8, 1, 1, 1, 8, Sharding::kDdp), 14 * parameters(experts));
  check_bytes(checkpoint(experts, 8, 1, 1, 1, 4, Sharding::kZero1), 14 * parameters(experts));
  const Setup fsdp2 = setup_of({{"model", "llama3_8b"}, {"trainer", "fsdp2"}});
  check_bytes(checkpoint(fsdp2, 8, 1, 1, 1, 1, Sharding::kZero3), 12 * parameters(fsdp2));
  check_bytes(checkpoint(fsdp2, 2, 1, 4, 1, 1, Sharding::kZero3), 12 * parameters(fsdp2));
  // Muon: one moment of matrices in blocks, two of embedding, head and norms.
  Setup muon = fsdp2;
  muon.optimizer = OptimizerKind::kMuon;
  const double outside = 2.0 * 128256 * 4096 + 65 * 4096;
  check_bytes(checkpoint(muon, 8, 1, 1, 1, 1, Sharding::kZero3), 8 * parameters(muon) + 4 * outside);
  check_bytes(checkpoint(muon, 2, 1, 4, 1, 1, Sharding::kZero3), 8 * parameters(muon) + 4 * outside);
  const Setup lora = setup_of({{"model", "llama3_8b"}, {"trainer", "fsdp2"}, {"finetune", "lora"}});
  CHECK(checkpoint(lora, 2, 1, 4, 1, 1, Sharding::kZero3) == checkpoint(lora, 8, 1, 1, 1, 1, Sharding::kZero3));
}

// Beside frozen matrices autograd keeps an adapter's input and its r columns, no more of the input than a trained matrix would keep.
TEST_CASE("choices: adapters compute in the type that their weights are gathered in") {
  for (const char* trainer : {"fsdp2", "fsdp1", "deepspeed"}) {
    INFO(trainer);
    const auto activations = [&](const char* finetune) {
      Setup s = setup_of({{"model", "llama3_8b"}, {"trainer", trainer}, {"method", "sft"}, {"finetune", finetune}});
      s.sharding = Sharding::kZero3;
      s.dp_shard = 8;
      s.dp_replicate = 1;
      s.recompute = ActivationRecompute::kNone;
      return term(simulate_memory(s), "activation");
    };
    CHECK(activations("lora") < activations("full"));
    CHECK(activations("lora") > activations("full") * 3 / 4);
  }
}

// DeepSeek-V2-Lite by hand: q 2048 -> 3072, kv_a 2048 -> 576, kv_b 512 -> 4096, o 2048 -> 2048 in 27 layers; gate, up and down of the
// one dense layer (10944) and of the shared experts (2816) in the other 26. The stacks of experts get none.
TEST_CASE("choices: adapters on latent attention and beside stacks of experts") {
  const double attention = 5120 + 2624 + 4608 + 4096, dense = 3 * (2048 + 10944), shared = 3 * (2048 + 2816);
  const double adapters = 16 * (27 * attention + dense + 26 * shared);
  for (const char* trainer : {"ddp", "fsdp1", "fsdp2", "deepspeed"}) {
    INFO(trainer);
    Setup s = setup_of({{"model", "deepseek_v2_lite"}, {"trainer", trainer}, {"finetune", "lora"}});
    if (s.framework == Framework::kDdp) s.sharding = Sharding::kDdp;
    check_bytes(simulate_memory(s).checkpoint_bytes, (s.framework == Framework::kDeepspeed ? 12 : 4 + 8) * adapters);
    CHECK(estimate_time(s).step_s > 0);
  }
  const Result<Problem> assumed = resolved({{"model", "mixtral_8x7b"}, {"trainer", "fsdp1"}, {"finetune", "lora"}});
  REQUIRE(assumed.ok());
  const auto& told = assumed->base.assumptions;
  CHECK(std::any_of(told.begin(), told.end(),
                    [](const std::string& a) { return a == "adapters on attention alone, none on stacks of experts"; }));
  CHECK(said({{"model", "mixtral_8x7b"}, {"trainer", "fsdp1"}, {"finetune", "lora"}, {"lora-targets", "gate,up"}})
            .find("every MLP of 'mixtral_8x7b' is a stack of experts") != std::string::npos);
}

// torchtitan's converter freezes fp32 shards; Transformers loads the base in 16 bits.
TEST_CASE("choices: the frozen weights of LoRA by trainer") {
  const auto shard = [](const char* trainer) {
    return term(simulate_memory(setup_of({{"model", "llama3_8b"}, {"trainer", trainer}, {"finetune", "lora"}})), "parameter shard");
  };
  const Setup s = setup_of({{"model", "llama3_8b"}, {"trainer", "fsdp2"}, {"finetune", "lora"}});
  const double adapters = 16 * 32 * (2 * 8192 + 2 * 5120 + 3 * (4096 + 14336));
  check_bytes(shard("fsdp2"), (4 * parameters(s) + 4 * adapters) / 8);
  check_bytes(shard("fsdp1"), (2 * parameters(s) + 4 * adapters) / 8);
  CHECK(said({{"model", "llama3_8b"}, {"trainer", "fsdp2"}, {"finetune", "qlora"}}).find("is planned without qlora") !=
        std::string::npos);
}

TEST_CASE("choices: QLoRA under DeepSpeed keeps what is no linear layer of a block in 16 bits") {
  Setup s = setup_of({{"model", "llama3_8b"}, {"trainer", "deepspeed"}, {"finetune", "qlora"}});
  s.sharding = Sharding::kZero2;
  const double other = 2.0 * 128256 * 4096 + 65 * 4096, linear = parameters(s) - other;
  const double adapters = 16 * 32 * (2 * 8192 + 2 * 5120 + 3 * (4096 + 14336));
  check_bytes(term(simulate_memory(s), "parameter shard"), 2 * (other + adapters) + bytes_of(Dtype::kNf4Double) * linear);
}

TEST_CASE("choices: where 24 GB cards do not hold a model the host or adapters are offered") {
  const Flags recipe = {{"model", "7B"},       {"gpu", "rtx_4090"},           {"gpus", "2"},
                        {"nodes", "1"},        {"trainer", "fsdp1"},          {"method", "dpo"},
                        {"sharding", "zero3"}, {"sequence-length", "4096"},   {"micro-batch", "1"},
                        {"recompute", "full"}, {"gradient-accumulation", "1"}};
  const Result<Problem> problem = resolved(recipe);
  REQUIRE(problem.ok());
  Diagnostics why;
  const std::optional<Plan> plan = solve(*problem, why, Shortfall::kFind);
  REQUIRE(plan.has_value());
  REQUIRE(plan->verdict == Verdict::kDoesNotFit);
  const std::vector<Fix> fixes = find_fixes(*problem, *plan);
  for (const char* flags : {"--offload-parameters host", "--finetune lora"}) {
    INFO(flags);
    CHECK(std::any_of(fixes.begin(), fixes.end(), [&](const Fix& fix) { return fix.flags == flags; }));
  }
}

// torchtitan's adapters stand beside weights as they are stored; torchtune's recipes load them in 16 bits. Llama 3 8B on 24 GB: 29.9
// GiB of frozen weights, or half of it.
TEST_CASE("choices: where frozen weights are in fp32 that is said and 16 bits are offered") {
  Flags recipe = {{"model", "llama3_8b"},
                  {"gpu", "rtx_4090"},
                  {"gpus", "1"},
                  {"nodes", "1"},
                  {"trainer", "fsdp2"},
                  {"finetune", "lora"},
                  {"lora-rank", "8"},
                  {"lora-targets", "q_proj,v_proj"},
                  {"recompute", "full"},
                  {"micro-batch", "2"},
                  {"sequence-length", "2048"}};
  const auto says_it = [](const Problem& problem) {
    const std::vector<std::string>& all = problem.base.assumptions;
    return std::any_of(all.begin(), all.end(), [](const std::string& a) { return a.starts_with("frozen weights in fp32"); });
  };
  const Result<Problem> whole = resolved(recipe);
  REQUIRE(whole.ok());
  CHECK(says_it(*whole));
  const Plan plan = *make_plan(*whole);
  CHECK(plan.verdict == Verdict::kDoesNotFit);
  const std::vector<Fix> fixes = find_fixes(*whole, plan);
  CHECK(std::any_of(fixes.begin(), fixes.end(), [](const Fix& fix) { return fix.flags == "--master-dtype bf16"; }));
  recipe.emplace_back("master-dtype", "bf16");
  const Result<Problem> half = resolved(recipe);
  REQUIRE(half.ok());
  CHECK_FALSE(says_it(*half));
  CHECK(make_plan(*half)->verdict == Verdict::kFits);
}

// Llama 3.1 8B under ZeRO-3 on eight H100 of 80 GB: logits of 65,536 whole tokens take 94 GiB, those of a split sequence a part of it.
TEST_CASE("choices: a plan that splits sequences unasked says what becomes of whole ones") {
  Flags recipe = {{"model", "llama3.1_8b"},     {"gpu", "h100_sxm"},          {"gpus", "8"},         {"nodes", "1"},
                  {"trainer", "deepspeed"},     {"sharding", "zero3"},        {"recompute", "full"}, {"micro-batch", "1"},
                  {"sequence-length", "65536"}, {"offload-optimizer", "host"}};
  const auto says_it = [](const Plan& plan) {
    return std::any_of(plan.reasons.begin(), plan.reasons.end(), [](const std::string& reason) {
      return reason.starts_with("sequences are split over") && reason.find("whole ones (--cp 1) do not fit by") != std::string::npos;
    });
  };
  const Plan unasked = *make_plan(*resolved(recipe));
  CHECK(unasked.mesh.cp > 1);
  CHECK(says_it(unasked));
  recipe.emplace_back("cp", "4");
  CHECK_FALSE(says_it(*make_plan(*resolved(recipe))));
  recipe.back().second = "1";
  const Plan whole = *make_plan(*resolved(recipe));
  CHECK(whole.verdict == Verdict::kDoesNotFit);
  CHECK_FALSE(says_it(whole));
}

// 70B with full sharding, offload and DPO's reference: 18 bytes per parameter in the host memory of one node, 1,270 GB.
TEST_CASE("choices: where the host is too small that is what is said") {
  const auto plan = [](const char* machine) {
    const Result<Problem> problem = resolved({{"model", "70B"},
                                              {"machine", machine},
                                              {"nodes", "1"},
                                              {"trainer", "fsdp1"},
                                              {"method", "dpo"},
                                              {"recompute", "full"},
                                              {"sharding", "zero3"},
                                              {"sequence-length", "2048"},
                                              {"micro-batch", "1"},
                                              {"gradient-accumulation", "1"},  // or whole gradients add up on the device
                                              {"offload-parameters", "host"}});
    INFO(format_diagnostics(problem.diagnostics));
    REQUIRE(problem.ok());
    return *make_plan(*problem);
  };
  CHECK(plan("dgx_a100").verdict == Verdict::kFits);  // 2 TiB
  const Plan small = plan("aws_p4de_24xlarge");       // 1,152 GiB
  CHECK(small.verdict == Verdict::kDoesNotFit);
  CHECK(std::any_of(small.diagnostics.begin(), small.diagnostics.end(), [](const Diagnostic& d) {
    return d.message.starts_with("nothing fits: the host needs 1.2 TiB per node and has 1.1 TiB");
  }));
}

// What ZeRO-3 keeps of an 8B on the host is more than that: the answer is a plan that lacks nothing on the device, not one that lacks
// less in all.
TEST_CASE("choices: a host that is too small is no reason to miss on the device as well") {
  const Result<Problem> problem = resolved({{"model", "8B"},
                                            {"gpu", "rtx_4090"},
                                            {"gpus", "2"},
                                            {"nodes", "1"},
                                            {"trainer", "deepspeed"},
                                            {"sharding", "zero3"},
                                            {"offload-optimizer", "host"},
                                            {"offload-parameters", "host"},
                                            {"host-memory", "96GiB"}});
  REQUIRE(problem.ok());
  const Plan plan = *make_plan(*problem);
  CHECK(plan.verdict == Verdict::kDoesNotFit);
  CHECK(plan.memory.device_bytes < plan.memory.capacity_bytes);
  CHECK(std::any_of(plan.diagnostics.begin(), plan.diagnostics.end(),
                    [](const Diagnostic& d) { return d.message.find("GiB per node and has 96.0 GiB") != std::string::npos; }));
}

TEST_CASE("choices: how often to save follows the rate of failures that is given") {
  const auto interval = [](const char* hours) {
    const Result<Problem> problem = resolved({{"model", "8B"},
                                              {"trainer", "fsdp2"},
                                              {"gpu", "h100_sxm"},
                                              {"nodes", "2"},
                                              {"checkpoint-save-time", "2m"},
                                              {"gpu-hours-per-failure", hours}});
    REQUIRE(problem.ok());
    return make_plan(*problem)->time.checkpoint_every_s;
  };
  CHECK(interval("1600") == Approx(checkpoint_interval_s(120, 16 / (1600 * 3600.0))));
  CHECK(interval("160000") > 9 * interval("1600"));
}

TEST_CASE("4-bit weights that are not split are prepared for training: what runs between the blocks is fp32") {
  const auto prepared = [](const char* trainer, const char* kind, Sharding sharding, const char* target = "trl") {
    const Result<Problem> problem = resolved({{"model", "8B"}, {"trainer", trainer}, {"finetune", kind}, {"launch-target", target}});
    INFO(format_diagnostics(problem.diagnostics));
    REQUIRE(problem.ok());
    Choice choice;
    choice.sharding = sharding;
    return distsetup::setup_of(*problem, 1, choice).software.residual_in_fp32;
  };
  CHECK(prepared("ddp", "qlora", Sharding::kDdp));
  CHECK(prepared("deepspeed", "qlora", Sharding::kZero2));
  CHECK_FALSE(prepared("deepspeed", "qlora", Sharding::kZero3));
  CHECK_FALSE(prepared("fsdp1", "qlora", Sharding::kZero3));
  CHECK_FALSE(prepared("ddp", "lora", Sharding::kDdp));
  CHECK_FALSE(prepared("ddp", "qlora", Sharding::kDdp, "axolotl"));       // casts it all back
  CHECK_FALSE(prepared("ddp", "qlora", Sharding::kDdp, "llamafactory"));  // prepares nothing
}

TEST_CASE("trainer choices: a trainer without a target may be another code base of its kind") {
  const auto is_assumed = [](const char* trainer, const char* target) {
    Flags flags = {{"model", "8B"}, {"nodes", "1"}, {"trainer", trainer}};
    if (*target != 0) flags.emplace_back("launch-target", target);
    const Result<Problem> problem = resolved(flags);
    REQUIRE(problem.ok());
    return problem->setup.software.is_assumed;
  };
  CHECK(is_assumed("fsdp2", ""));
  CHECK(is_assumed("megatron", ""));
  CHECK(is_assumed("deepspeed", "deepspeed"));  // scripts of one's own
  CHECK_FALSE(is_assumed("fsdp2", "torchtitan"));
  CHECK_FALSE(is_assumed("megatron", "megatron-lm"));
}

TEST_CASE("a script of one's own holds its logits while their loss is differentiated") {
  CHECK(setup_of({{"model", "8B"}, {"trainer", "unknown"}}).software.logits_kept);
}

TEST_CASE("torch.compile of a script of one's own, and of the Trainer's model, has the loss in its graph") {
  for (const char* trainer : {"unknown", "ddp"}) {
    const Setup s = setup_of({{"model", "8B"}, {"trainer", trainer}, {"compile", "true"}});
    CHECK(s.program == "unknown_compiled");
    CHECK(s.loss == LossHead::kCompiled);
    CHECK(s.software.logits_kept);
  }
  CHECK(setup_of({{"model", "8B"}, {"trainer", "unknown"}, {"compile", "true"}, {"loss-head", "eager"}}).loss == LossHead::kEager);
}

TEST_CASE("where micro-batch and accumulation are given, no ranks are taken from a step to split sequences") {
  const auto cp_of = [](std::pair<std::string, std::string> batch) {
    const Result<Problem> problem = resolved({{"model", "8B"},
                                              {"nodes", "1"},
                                              {"gpu", "a100_sxm_80"},
                                              {"trainer", "deepspeed"},
                                              {"sharding", "zero2"},
                                              {"recompute", "full"},
                                              {"micro-batch", "1"},
                                              {"sequence-length", "131072"},
                                              std::move(batch)});
    INFO(format_diagnostics(problem.diagnostics));
    REQUIRE(problem.ok());
    const Result<Plan> plan = make_plan(*problem);
    REQUIRE(plan.ok());
    return plan->mesh.cp;
  };
  CHECK(cp_of({"global-batch", "8"}) > 1);
  CHECK(cp_of({"gradient-accumulation", "1"}) == 1);
}

TEST_CASE("a plan takes as long where its axes were searched as where they are given") {
  Flags flags = {{"model", "mixtral_8x7b"},  {"nodes", "1"},        {"gpus", "8"}, {"trainer", "fsdp2"},
                 {"sequence-length", "512"}, {"global-batch", "64"}};
  const auto step_s = [&](int* tp, int* pp) {
    const Result<Problem> problem = resolved(flags);
    INFO(format_diagnostics(problem.diagnostics));
    REQUIRE(problem.ok());
    const Result<Plan> plan = make_plan(*problem);
    REQUIRE(plan.ok());
    *tp = plan->mesh.tp;
    *pp = plan->mesh.pp;
    return plan->time.step_s;
  };
  int tp = 0, pp = 0;
  const double searched_s = step_s(&tp, &pp);
  flags.emplace_back("tp", std::to_string(tp));
  flags.emplace_back("pp", std::to_string(pp));
  CHECK(step_s(&tp, &pp) == searched_s);
  flags.pop_back();
  flags.back().second = "8";  // DTensor's launches are counted once ranks split a layer
  const double split_s = step_s(&tp, &pp);
  CHECK(split_s >= searched_s);
}
