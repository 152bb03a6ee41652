#include "planner/report/distance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "base/check.h"
#include "model/approximate.h"
#include "planner/time/constants.h"
#include "planner/time/embedded_calibration.h"

namespace distsetup {
namespace {

constexpr std::string_view kOwnScript = "own_script";
constexpr std::string_view kBundledTrainer = "the bundled trainer";  // as a code base

// The code base without its release or options: "torchtitan 0.3.0" and "torchtitan + torchao" are torchtitan, "megatron-core 0.15" and
// "Megatron-LM" are megatron. What Transformers' Trainer runs with DeepSpeed is what that trainer of ours describes. Of its other runs
// one code base of 2024 is measured: the many scripts above Transformers (TRL, PEFT, loops of one's own) are other code bases.
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

bool lists_nothing(const Setup& s) { return s.program.starts_with("unknown"); }

// What first sights add on each side: nothing to code that was read, and to what is not known of any script. A plan that names no code
// base is as likely run by the one that was read as by another: the mean variance.
double times_wider(std::string_view side, const Setup& setup, Predicted quantity, const Calibration& residuals) {
  if (!is_at_first_sight(setup, quantity, residuals)) return 1;
  const double of_any = residuals.get(fmt::format("unseen.{}.first_sight.{}", measured_group(quantity), side), 1);
  const double offloading = residuals.get(fmt::format("unseen.{}.first_sight_offloading.{}", measured_group(quantity), side), of_any);
  const double times = setup.offload == OffloadPlan{} ? of_any : offloading;
  return setup.software.is_assumed && !lists_nothing(setup) ? std::sqrt((1 + times * times) / 2) : times;
}

Spread times_wider(const Setup& setup, Predicted quantity, const Calibration& residuals) {
  return {times_wider("below", setup, quantity, residuals), times_wider("above", setup, quantity, residuals)};
}

// How far predictions of unseen code err for one difficulty alone.
Spread width_of(const Difficulty& difficulty, const Spread& times, Predicted quantity, const Calibration& residuals) {
  const bool is_own = difficulty.key == kOwnScript;
  const auto of_side = [&](std::string_view side, double wider) {
    return (is_own ? 1 : wider) * residuals.get(fmt::format("unseen.{}.{}.{}", measured_group(quantity), difficulty.key, side), 0);
  };
  return {of_side("below", times.below), of_side("above", times.above)};
}

int percent(const Spread& spread) { return static_cast<int>(std::lround(50 * (std::exp(spread.above) - std::exp(-spread.below)))); }

// "memory ±9 %, tokens/s ±17 %" of a difficulty; empty where it adds nothing.
std::string widths_text(const Difficulty& difficulty, const Setup& setup, bool of_memory, bool of_time, const Calibration& residuals) {
  const auto width = [&](Predicted quantity) {
    return percent(width_of(difficulty, times_wider(setup, quantity, residuals), quantity, residuals));
  };
  const int memory = of_memory ? width(Predicted::kAllocated) : 0, time = of_time ? width(Predicted::kTokensPerSecond) : 0;
  std::string text = memory > 0 ? fmt::format("memory ±{} %", memory) : "";
  if (time > 0) text += fmt::format("{}tokens/s ±{} %", text.empty() ? "" : ", ", time);
  return text;
}

// Programs list the layers of one code base; Transformers' are what many scripts run. Nobody knows whether an unnamed one has them.
bool has_own_layers(const Setup& s) {
  if (s.own_program != nullptr || s.runs_transformers() || s.program == "hand_written") return true;
  if (s.software.is_assumed || lists_nothing(s)) return false;
  constexpr struct {
    std::string_view program, stack;  // the beginning of both
  } kLayersOf[] = {{"torchtitan", "torchtitan"}, {"torchtitan", "torchao"}, {"litgpt", "lit"},       {"mpt", "llm_foundry"},
                   {"megatron", "megatron"},     {"megatron", "nemo"},      {"megatron", "primus"},  {"megatron", "ms_swift_megatron"},
                   {"nanotron", "nanotron"},     {"modded", "modded"},      {"nanochat", "nanochat"}};
  const std::string stack = stack_of(s.software.name);
  return std::any_of(std::begin(kLayersOf), std::end(kLayersOf),
                     [&](const auto& one) { return s.program.starts_with(one.program) && stack.starts_with(one.stack); });
}

bool has_other_stages(const Setup& s) { return s.traits().lifetime_programs && !has_own_layers(s); }

// Launches and gathers count as much as products.
bool works_on_little(const Setup& s) {
  constexpr int64_t kFewTokens = 4096;
  return s.tokens() < kFewTokens;
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
      s.software.is_assumed
          ? Feature{"software", "software.assumed", "no --launch-target says that it is " + s.software.name + " and not another"}
          : Feature{"software", "software." + stack,
                    "no measured run of " + (s.software.name.empty() ? "this code base" : s.software.name)},
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

std::vector<Difficulty> difficulties(const Setup& s, Predicted quantity) {
  const bool is_time = quantity == Predicted::kTokensPerSecond;
  const bool other_layers = is_time && !lists_nothing(s) && !has_own_layers(s);
  const struct {
    Difficulty difficulty;
    bool is_present;
  } all[] = {{{"any", ""}, true},
             {{"reserved", "what the allocator keeps"}, quantity == Predicted::kReserved},
             {{"device", "what libraries keep"}, quantity == Predicted::kDevice},
             {{"experts", "experts"}, s.model.num_experts > 0},
             {{"adapters", "adapters"}, s.finetune != Finetune::kFull},
             {{"quantised", "qlora"}, s.finetune == Finetune::kQlora},
             {{"low_precision", "low-precision products"}, s.fp8 != Fp8Recipe::kNone},
             {{"lengths", "samples of unlike lengths"}, s.sample_lengths.mean > 0},
             {{"tensor", "tensor parallelism"}, s.tp > 1},
             {{"pipeline", "pipeline stages"}, s.pp > 1 && !is_time},
             {{"context", "context parallelism"}, s.cp > 1},
             {{"offload", "offloading"}, s.offload != OffloadPlan{}},
             {{"compiled", "compiled layers"}, s.compiled && !is_time},
             {{"other_layers", "layers of another code base"}, !s.software.is_assumed && other_layers},
             {{"unnamed", "other layers than these"}, s.software.is_assumed && other_layers},
             {{kOwnScript, "operations that no program lists"}, lists_nothing(s)},
             {{"other_stages", "stages of another code base"}, !s.software.is_assumed && has_other_stages(s) && !is_time},
             {{"little", "few tokens per micro-batch"}, works_on_little(s) && is_time},
             {{"without_nvlink", "GPUs without NVLink"}, architecture(s.gpu) == "without_nvlink" && is_time}};
  std::vector<Difficulty> present;
  for (const auto& one : all) {
    if (one.is_present) present.push_back(one.difficulty);
  }
  return present;
}

bool is_at_first_sight(const Setup& setup, Predicted quantity, const Calibration& residuals) {
  return setup.software.name != kBundledTrainer && !is_measured(features(setup).front(), quantity, residuals);
}

Spread unseen_spread(const Setup& setup, Predicted quantity, const Calibration& residuals) {
  const double sizes = width_of_sizes(setup, quantity);
  Spread sum{sizes, sizes, true};
  const Spread times = times_wider(setup, quantity, residuals);
  for (const Difficulty& one : difficulties(setup, quantity)) {
    const Spread width = width_of(one, times, quantity, residuals);
    sum.below = std::hypot(sum.below, width.below);
    sum.above = std::hypot(sum.above, width.above);
  }
  return sum;
}

std::vector<std::string> distance_reasons(const Setup& setup) {
  const Calibration& residuals = embedded_calibration();
  std::vector<std::string> reasons;
  if (const Approximation* as = approximation(setup.model); as != nullptr)
    reasons.push_back(fmt::format("a model of an unknown architecture, read by its sizes alone: memory ±{:.0f} %, tokens/s ±{:.0f} %",
                                  100 * as->memory, 100 * as->time));
  std::string uncovered;
  bool of_memory = false, of_time = false;
  for (const Feature& feature : features(setup)) {
    const bool memory = !is_measured(feature, Predicted::kAllocated, residuals);
    const bool time = !is_measured(feature, Predicted::kTokensPerSecond, residuals);
    if (memory || time) uncovered += (uncovered.empty() ? "" : "; ") + feature.reason;
    of_memory = of_memory || memory;
    of_time = of_time || time;
  }
  if (uncovered.empty()) return reasons;
  std::set<std::string_view> said;
  for (const Predicted quantity : {Predicted::kAllocated, Predicted::kTokensPerSecond}) {
    for (const Difficulty& one : difficulties(setup, quantity)) {
      const std::string widths = widths_text(one, setup, of_memory, of_time, residuals);
      if (widths.empty() || !said.insert(one.key).second) continue;
      reasons.push_back(one.key == "any" ? fmt::format("{}: as other code bases show, {}", uncovered, widths)
                                         : fmt::format("less sure there with {}: {}", one.words, widths));
    }
  }
  return reasons;
}

}  // namespace distsetup
