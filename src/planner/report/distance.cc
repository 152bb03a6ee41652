#include "planner/report/distance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/check.h"
#include "model/approximate.h"
#include "planner/time/constants.h"
#include "planner/time/embedded_calibration.h"

namespace distsetup {
namespace {

// The code base without its release or options: "torchtitan 0.3.0" and "torchtitan + torchao" are torchtitan, "megatron-core 0.15" and
// "Megatron-LM" are megatron. What Transformers' Trainer runs with FSDP or DeepSpeed is what these trainers of ours describe.
std::string stack_of(const std::string& software) {
  std::string stack;
  for (const char c : software) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '[' || c == ',' || std::isdigit(u) != 0) break;
    if (std::isalpha(u) != 0)
      stack += static_cast<char>(std::tolower(u));
    else if (!stack.empty() && stack.back() != '_')
      stack += '_';
  }
  while (!stack.empty() && stack.back() == '_') stack.pop_back();
  if (stack.starts_with("torchtitan")) return "torchtitan";
  if (stack == "megatron_core" || stack == "megatron_lm") return "megatron";
  if (stack == "transformers") return "hf_trainer_accelerate_fsdp";
  if (stack == "deepspeed") return "hf_trainer_deepspeed";
  return stack.empty() ? "unnamed" : stack;
}

std::string_view architecture(const Gpu& gpu) {
  if (gpu.vendor == "amd") return "amd";
  if (gpu.name.starts_with("rtx") || gpu.name.starts_with("l40") || gpu.name.starts_with("titan")) return "without_nvlink";
  switch (gpu_generation(gpu)) {
    case GpuGeneration::kBlackwell: return "blackwell";
    case GpuGeneration::kHopper: return "hopper";
    default: return "older";
  }
}

std::string_view precision(const Setup& s) {
  switch (s.fp8) {
    case Fp8Recipe::kNone: break;
    case Fp8Recipe::kNvfp4: return "nvfp4";
    case Fp8Recipe::kMxfp8: return "mxfp8";
    default: return "fp8";
  }
  if (s.finetune == Finetune::kQlora) return "quantised";
  return s.finetune == Finetune::kLora ? "adapters" : "16_bit";
}

bool is_measured(const Feature& feature, Predicted quantity, const Calibration& residuals) {
  return residuals.constants.contains(fmt::format("measured.{}.{}", measured_group(quantity), feature.key));
}

// How far predictions err beyond what is measured, as a logarithm.
double width_beyond(const Feature& feature, Predicted quantity, const Calibration& residuals) {
  return residuals.get(fmt::format("distance.{}.{}", measured_group(quantity), feature.kind), 0);
}

struct AxisOf {
  std::string_view key, words;
  bool used = false;
};

}  // namespace

std::string_view name(Predicted quantity) {
  switch (quantity) {
    case Predicted::kAllocated: return "allocated";
    case Predicted::kReserved: return "reserved";
    case Predicted::kDevice: return "device";
    case Predicted::kTokensPerSecond: return "tokens_per_s_per_gpu";
  }
  CHECK(false, "quantity", static_cast<int>(quantity));
  return "";
}

std::string_view measured_group(Predicted quantity) { return quantity == Predicted::kTokensPerSecond ? "time" : "memory"; }

std::vector<Feature> features(const Setup& s) {
  const std::string framework(s.traits().id), stack = stack_of(s.software.name);
  const std::string of = "no measured run of " + framework;
  std::vector<Feature> all = {
      {"software", "software." + stack, "no measured run of " + (s.software.name.empty() ? "this code base" : s.software.name)},
      {"program", fmt::format("program.{}.{}", framework, s.program), fmt::format("{} with program {}", of, s.program)},
      {"gpu", fmt::format("gpu.{}.{}", framework, architecture(s.gpu)), fmt::format("{} on GPUs like {}", of, s.gpu.name)},
      {"precision", fmt::format("precision.{}.{}", framework, precision(s)), fmt::format("{} in {}", of, precision(s))}};
  const AxisOf axes[] = {{"tensor", "tensor parallelism", s.tp > 1},
                         {"pipeline", "pipeline parallelism", s.pp > 1},
                         {"context", "context parallelism", s.cp > 1},
                         {"expert", "expert parallelism", s.ep > 1},
                         {"offload", "offloading", s.offload != OffloadPlan{}},
                         {"long", "sequences of more than 65,536 tokens", s.sequence_length > 65536}};
  for (const AxisOf& axis : axes) {
    if (axis.used) all.push_back({"axis", fmt::format("axis.{}.{}", framework, axis.key), fmt::format("{} with {}", of, axis.words)});
  }
  if (s.model.num_experts > 0) all.push_back({"experts", "experts." + framework, of + " with experts"});
  // Four times as many GPUs as any: steps of two bits.
  const int bits = static_cast<int>(std::ceil(std::log2(std::max(1, s.world())) / 2));
  if (bits > 3)
    all.push_back({"scale", fmt::format("scale.{}.up_to_{}", framework, 1 << (2 * bits)), fmt::format("{} on so many GPUs", of)});
  return all;
}

std::vector<Feature> unmeasured(const Setup& setup, Predicted quantity, const Calibration& residuals) {
  std::vector<Feature> all = features(setup);
  std::erase_if(all, [&](const Feature& feature) { return is_measured(feature, quantity, residuals); });
  return all;
}

double width_of_sizes(const Setup& setup, Predicted quantity) {
  const Approximation* as = approximation(setup.model);
  if (as == nullptr) return 0;
  return std::log1p(quantity == Predicted::kTokensPerSecond ? as->time : as->memory);
}

double distance(const Setup& setup, Predicted quantity, const Calibration& residuals) {
  double sum = 0;
  for (const Feature& feature : unmeasured(setup, quantity, residuals)) {
    const double width = width_beyond(feature, quantity, residuals);
    sum += width * width;
  }
  return std::sqrt(sum);
}

std::vector<std::string> distance_reasons(const Setup& setup, double uncertain_memory_share) {
  const Calibration& residuals = embedded_calibration();
  std::vector<std::string> reasons;
  if (const Approximation* as = approximation(setup.model); as != nullptr)
    reasons.push_back(fmt::format("a model of an unknown architecture, read by its sizes alone: memory ±{:.0f} %, tokens/s ±{:.0f} %",
                                  100 * as->memory, 100 * as->time));
  const auto percent = [&](Predicted quantity, const Feature& feature, double share) {
    if (is_measured(feature, quantity, residuals)) return 0;
    return static_cast<int>(std::lround(100 * std::expm1(width_beyond(feature, quantity, residuals) * share)));
  };
  for (const Feature& feature : features(setup)) {
    const int memory = percent(Predicted::kAllocated, feature, uncertain_memory_share);
    const int time = percent(Predicted::kTokensPerSecond, feature, 1);
    if (memory == 0 && time == 0) continue;
    std::string said = feature.reason + ":";
    if (memory > 0) said += fmt::format(" memory ±{} %", memory);
    if (time > 0) said += fmt::format("{} tokens/s ±{} %", memory > 0 ? "," : "", time);
    reasons.push_back(std::move(said));
  }
  return reasons;
}

}  // namespace distsetup
