// Which attention Transformers' class of a family has, and what stands for it where nothing is said.
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>

#include "planner/search/framework_setup.h"
#include "planner/time/constants.h"
#include "support/problems.h"

using namespace distsetup;

namespace {

Flags run_of(const char* model, const char* trainer, const Flags& more = {}) {
  Flags flags = {{"model", model}, {"gpu", "a100_sxm_80"}, {"gpus", "8"}, {"nodes", "1"}, {"trainer", trainer}};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

bool is_whole(const Result<Problem>& problem) {
  INFO(format_diagnostics(problem.diagnostics));
  REQUIRE(problem.ok());
  return attention_kernel(base_setup(*problem, 1)) == AttentionKernel::kUnfused;
}

bool is_whole(const char* model, const char* trainer, const Flags& more = {}) {
  return is_whole(resolved(run_of(model, trainer, more)));
}

bool tells(const Flags& flags, std::string_view text) {
  const Result<Problem> problem = resolved(flags);
  REQUIRE(problem.ok());
  const auto& told = problem->base.assumptions;
  return std::any_of(told.begin(), told.end(), [&](const std::string& a) { return a.find(text) != std::string::npos; });
}

std::string refusal(const Flags& flags) {
  const Result<Problem> problem = resolved(flags);
  return problem.ok() ? "" : format_diagnostics(problem.diagnostics);
}

}  // namespace

TEST_CASE("attention: what Transformers' class of the family has is the default") {
  for (const char* model : {"bloom_7b1", "gpt_neo_2.7b", "gpt_j_6b", "gemma2_9b", "mpt_7b", "gpt_oss_20b"}) {
    INFO(model);
    for (const char* trainer : {"ddp", "fsdp1", "deepspeed"}) CHECK(is_whole(model, trainer));
  }
  for (const char* model : {"gpt_neox_20b", "gemma3_4b", "falcon_7b", "llama3_8b"}) {
    INFO(model);
    CHECK_FALSE(is_whole(model, "deepspeed"));
    CHECK(tells(run_of(model, "deepspeed"), "attention sdpa (before Transformers 4.36: --attention eager)"));
  }
  CHECK(tells(run_of("bloom_7b1", "deepspeed"), "attention eager, all scores in memory: Transformers' class of 'bloom' has no sdpa"));
  CHECK_FALSE(is_whole("mpt_7b", "fsdp1", {{"program", "mpt_eager"}}));  // llm-foundry's own layers
}

TEST_CASE("attention: what no release of the class can run is refused, what older ones ran is said") {
  for (const char* model : {"bloom_7b1", "gpt_neo_2.7b", "gpt_j_6b", "mpt_7b", "gpt_oss_20b"})
    CHECK(refusal(run_of(model, "deepspeed", {{"attention", "sdpa"}})).find("has no sdpa") != std::string::npos);
  CHECK(refusal(run_of("bloom_7b1", "deepspeed", {{"attention", "flash2"}})).find("--attention eager") != std::string::npos);
  CHECK_FALSE(is_whole("gpt_neo_2.7b", "deepspeed", {{"attention", "flash2"}}));
  CHECK_FALSE(is_whole("gemma2_9b", "deepspeed", {{"attention", "sdpa"}}));
  CHECK(tells(run_of("gemma2_9b", "deepspeed", {{"attention", "sdpa"}}), "which Transformers 5 refuses for 'gemma2'"));
}

// Transformers 4.36, of December 2023, is the first with sdpa.
TEST_CASE("attention: a trainer's description of an older release has whole scores") {
  const auto kernel_in = [](const char* released) {
    Presets own = presets();
    auto ddp =
        std::find_if(own.files.begin(), own.files.end(), [](const PresetFile& f) { return f.folder == "trainers" && f.id == "ddp"; });
    std::string text(ddp->text);
    text.replace(text.find("released: 202601"), 16, released);
    const auto kept = std::make_shared<std::string>(text);
    ddp->text = *kept;
    Spec spec;
    for (const auto& [flag, value] : run_of("llama3_8b", "ddp"))
      REQUIRE(set_flag(spec, flag, std::string_view(value), {"command line", 0, 0}).empty());
    return is_whole(resolve(spec, own, {}));
  };
  CHECK(kernel_in("released: 202311"));
  CHECK_FALSE(kernel_in("released: 202312"));
}

// torch/cuda/__init__.py, is_bf16_supported; aten's sdp_utils.cpp: neither fused kernel takes bf16 before Ampere.
TEST_CASE("bf16 on GPUs without its units is emulated where it is asked for") {
  const Flags asked = {{"model", "llama3.2_1b"}, {"gpu", "v100_sxm_32"}, {"gpus", "1"},
                       {"nodes", "1"},           {"trainer", "ddp"},     {"precision", "bf16"}};
  const Result<Problem> problem = resolved(asked);
  CHECK(is_whole(problem));
  CHECK(tells(asked, "bf16 on V100 SXM 32 GB by emulation"));
  const Setup s = base_setup(*problem, 1);
  CHECK(s.gpu.peak_bf16_flops_per_s == s.gpu.peak_fp32_flops_per_s);
  for (const char* trainer : {"native", "megatron"})
    CHECK(refusal({{"model", "llama3.2_1b"}, {"gpu", "v100_sxm_32"}, {"gpus", "1"}, {"trainer", trainer}, {"precision", "bf16"}})
              .find("does not compute in bf16") != std::string::npos);
}
