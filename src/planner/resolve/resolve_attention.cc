#include "planner/resolve/resolve_attention.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "model/families.h"
#include "planner/replay/built_in_programs.h"
#include "planner/replay/program_file.h"
#include "planner/time/constants.h"

namespace distsetup {
namespace {

// Kernels of FlashAttention 3 are for Ampere, Ada and Hopper (Dao-AILab/flash-attention, hopper/setup.py builds files of sm80, and
// hopper/flash_api.cpp asks for capability 8), those of 4 for Hopper and Blackwell (README.md).
bool has_kernels(int package, GpuGeneration generation) {
  switch (generation) {
    case GpuGeneration::kVolta:
    case GpuGeneration::kTuring:
    case GpuGeneration::kOther: return false;
    case GpuGeneration::kHopper: return true;
    case GpuGeneration::kBlackwell: return package != 3;
    default: return package <= 3;
  }
}

bool lacks_bf16_units(GpuGeneration generation) { return generation == GpuGeneration::kVolta || generation == GpuGeneration::kTuring; }

// Whether a program says what attention keeps when its scores are whole.
bool lists_scores(const Setup& s) {
  const replay::BlockProgram* blocks = s.own_program ? s.own_program.get() : replay::find_program(s.program);
  if (blocks == nullptr) return true;  // layers of a stage, which do
  constexpr uint64_t flash = replay::bit_of(replay::Condition::kFlash);
  return std::any_of(blocks->block.ops.begin(), blocks->block.ops.end(),
                     [](const replay::ProgramOp& op) { return (op.when.none & flash) != 0; });
}

// Transformers 4.36 is the first that takes PyTorch's fused attention by itself (modeling_utils.py, _check_and_enable_sdpa).
constexpr int kTransformersSdpaSince = 202312;

// What the class of the model's family has, where Transformers' classes run: Unsloth, whose usual program has fused kernels, brings
// attention of its own.
FamilyAttention class_attention(const Resolving& r) {
  const std::string& family = r.problem.base.model.family;
  const auto& programs = r.problem.trainer.programs;
  const auto usual = programs.find("eager");
  const bool is_its_class = r.problem.setup.runs_transformers() && usual != programs.end() && usual->second != "hf_fused";
  if (!is_its_class || !is_family(r.presets, family)) return {};
  const Result<Family> found = find_family(r.presets, family, r.spec.at("model"));
  return found.ok() ? found->attention : FamilyAttention{};
}

// Of a setting that nobody made: "sdpa" unless the class or the release has none.
void assume_class_attention(Resolving& r, const FamilyAttention& has, std::optional<std::string>& asked) {
  const Setup& s = r.problem.setup;
  const bool before_sdpa = s.runs_transformers() && s.software.released > 0 && s.software.released < kTransformersSdpaSince;
  if (asked.has_value() || !lists_scores(s) || (has.by_default != "eager" && !before_sdpa)) return;
  asked = "eager";
  if (has.by_default == "eager")
    r.assume(
        fmt::format("attention eager, all scores in memory: Transformers' class of '{}' has no sdpa", r.problem.base.model.family));
  else
    r.assume("attention eager: Transformers takes sdpa from 4.36 on");
}

}  // namespace

void resolve_attention_kernel(Resolving& r) {
  auto asked = r.spec.text("trainer.attention");
  Setup& s = r.problem.setup;
  const replay::BlockProgram* blocks = replay::find_program(s.program);
  // PyTorch's attention has no sinks: Transformers makes GPT-OSS's scores whole unless a kernel with sinks is asked for
  // (modeling_gpt_oss.py, _supports_sdpa).
  if (!asked.has_value() && blocks != nullptr && r.problem.base.model.attention_sinks && lists_scores(s)) {
    asked = "eager";
    r.assume("attention with sinks, scores in memory (--attention flash3: a kernel that has them)");
  }
  const FamilyAttention has = class_attention(r);
  if (asked.has_value() && std::find(has.lacks.begin(), has.lacks.end(), *asked) != has.lacks.end())
    return r.fail(code::kUnsupportedFeature, "trainer.attention",
                  fmt::format("Transformers' class of '{}' has no {}", r.problem.base.model.family, *asked),
                  fmt::format("--attention {}, or a --program with other layers", has.by_default));
  // Without units for bf16 neither of PyTorch's fused kernels takes it (sdp_utils.cpp, less_than_sm80_mem_efficient_dtypes).
  const auto gpu = r.problem.gpus.find(r.plan().hardware.gpu);
  const bool is_known = gpu != r.problem.gpus.end();
  const bool is_emulated = s.compute == Dtype::kBf16 && is_known && lacks_bf16_units(gpu_generation(gpu->second));
  if (is_emulated && asked.value_or("sdpa") == "sdpa" && lists_scores(s)) {
    asked = "eager";
    r.assume(
        fmt::format("attention by PyTorch's operations, all scores in memory: no fused kernel has bf16 on {}", gpu->second.label));
  }
  if (asked == "sdpa" && has.by_default == "eager")
    r.assume(fmt::format("attention sdpa as asked for, which Transformers 5 refuses for '{}'", r.problem.base.model.family));
  assume_class_attention(r, has, asked);
  if (!asked.has_value() || *asked == "sdpa") return;
  if (*asked == "eager") {
    if (!lists_scores(s)) {
      r.fail(code::kUnsupportedFeature, "trainer.attention",
             fmt::format("program '{}' does not say what attention keeps when its scores are whole", s.program),
             "--attention sdpa, or --program hf_eager");
      return;
    }
    s.flash_attention = false;
    return;
  }
  s.flash_package = asked->back() - '0';
  if (!is_known || has_kernels(s.flash_package, gpu_generation(gpu->second))) return;
  r.fail(code::kUnsupportedFeature, "trainer.attention",
         fmt::format("FlashAttention {} has no kernels for {}", s.flash_package, gpu->second.label), "--attention sdpa");
}

void resolve_linear_attention(Resolving& r) {
  constexpr std::string_view kPath = "trainer.linear_attention";
  const auto asked = r.spec.text(kPath);
  if (!asked.has_value()) return;
  const Geometry& g = r.problem.base.model;
  Setup& s = r.problem.setup;
  if (g.delta_heads == 0)
    return r.fail(
        code::kConflict, kPath,
        g.scan_channels > 0
            ? fmt::format("the recurrent layers of '{}' are not Gated DeltaNet, and are planned with their kernels alone", g.name)
            : fmt::format("'{}' has no layers of linear attention", g.name),
        "leave it out");
  if (*asked == "fla") return;
  if (!s.runs_transformers())
    return r.fail(code::kUnsupportedFeature, kPath,
                  fmt::format("program '{}' does not run Transformers' layers, whose loop stands in for the kernels", s.program),
                  "--linear-attention fla, or --trainer fsdp1, ddp or deepspeed");
  s.torch_delta_rule = true;
  r.assume("without flash-linear-attention: the loop of Transformers 4.57 to 5.16, row by row (5.20 solves a chunk at once)");
}

}  // namespace distsetup
