// Device bytes also have an offset: what libraries load into the device beside context and communicators, in GiB.
// A class stores two numbers per quantity: percentiles, over its held-out rows, of log(measured / predicted) divided by the share of
// the prediction that can be wrong; of memory the 4th and the 96th, of tokens/s the 5th and the 95th. Other levels scale both as a
// normal distribution's tails do.
#include "planner/report/uncertainty.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "planner/frameworks/memory.h"
#include "planner/time/constants.h"
#include "planner/time/embedded_calibration.h"

namespace distsetup {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;

// z of a two-sided interval: 0.9 -> 1.645. Between the tabulated levels linear in the level.
double two_sided_z(double level) {
  constexpr double kLevels[] = {0.5, 0.68, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999};
  constexpr double kZ[] = {0.674, 0.994, 1.282, 1.645, 1.960, 2.326, 2.576, 2.807, 3.291};
  if (level <= kLevels[0]) return kZ[0] * level / kLevels[0];
  for (size_t i = 1; i < std::size(kLevels); ++i) {
    if (level <= kLevels[i]) return kZ[i - 1] + (kZ[i] - kZ[i - 1]) * (level - kLevels[i - 1]) / (kLevels[i] - kLevels[i - 1]);
  }
  return kZ[std::size(kZ) - 1];
}

// The same for a heavy spread: of Student's t of 2 degrees of freedom, which has a closed form.
double two_sided_heavy_z(double level) { return level * std::sqrt(2 / (1 - level * level)); }

// What a prediction has to get right beside the program: runs that differ in it differ in how well they are predicted.
std::string_view mesh_name(const Setup& s) {
  if (s.software.traced) return "traced";
  if (s.pp > 1) return "pipeline";
  if (s.tp > 1) return "tensor";
  if (s.cp > 1) return "context";
  return s.offload == OffloadPlan{} ? "data" : "offload";
}

// What tensor parallelism gathered is freed when the CPU finds that other streams are done with it.
bool frees_through_record_stream(const Setup& s) {
  return s.tp > 1 && s.software.released > 0 && s.software.released < s.traits().record_stream_until;
}

// What an allocator can do with freed blocks: sizes that change from batch to batch, blocks that come back later, segments that grow,
// segments of a fixed size.
std::string_view allocation_name(const Setup& s) {
  if (s.sample_lengths.mean > 0) return "unlike_lengths";
  if (frees_through_record_stream(s)) return "record_stream";
  return s.software.expandable_segments ? "expandable" : "segments";
}

// Whose kernels multiply, and with what copies: the library of 4-bit and 8-bit weights, the recipe of low-precision training.
std::string_view number_name(const Setup& s) {
  if (s.finetune == Finetune::kQlora) {
    const bool whole = s.frozen_dtype == Dtype::kInt4 || s.frozen_dtype == Dtype::kInt8;  // GPTQ's integers
    return whole ? "integer" : "four_bit";
  }
  if (s.fp8 == Fp8Recipe::kDelayed) return "delayed_scales";  // Transformer Engine
  return s.fp8 == Fp8Recipe::kNvfp4 ? "four_bit" : "plain";
}

// Kernels of attention and of multiplication differ by architecture, and with them what they keep.
std::string_view architecture_name(const Gpu& gpu) {
  if (gpu.vendor == "amd") return "amd";
  return gpu_generation(gpu) == GpuGeneration::kBlackwell ? "blackwell" : "cuda";
}

}  // namespace

std::vector<std::string> residual_classes(const Setup& s, Predicted quantity) {
  if (s.program.starts_with(kUnknownProgram)) return {std::string(kUnknownProgram)};
  const std::string_view framework = s.traits().id;
  const std::string_view finetune = s.finetune == Finetune::kFull ? "full" : "adapter";
  if (quantity == Predicted::kTokensPerSecond) {
    const bool is_lower = mesh_name(s) == "data" && s.compute == Dtype::kF8;
    const std::string_view mesh = s.model.num_experts > 0 ? "experts" : is_lower ? "low_precision" : mesh_name(s);
    const std::string program = fmt::format("{}.{}.{}", framework, s.program, finetune);
    return {fmt::format("{}.{}", program, mesh), program, fmt::format("{}.any.{}", framework, finetune), "all"};
  }
  const std::string kind = fmt::format("{}.{}", mesh_name(s), allocation_name(s));
  const std::string_view number = number_name(s);
  const std::string own = fmt::format("{}.{}.{}.", framework, s.program, finetune);
  const std::string program = fmt::format("any.{}.{}.", s.program, finetune);
  return {fmt::format("{}{}.{}.{}", own, kind, number, architecture_name(s.gpu)),
          fmt::format("{}{}.{}", own, kind, number),
          own + kind,
          fmt::format("{}{}", own, mesh_name(s)),
          fmt::format("{}{}.{}", program, kind, number),
          program + kind,
          fmt::format("{}{}", program, mesh_name(s)),
          fmt::format("{}.{}.{}", framework, s.program, finetune),
          fmt::format("any.any.{}.{}", finetune, kind),
          fmt::format("any.any.any.{}", kind),
          fmt::format("any.any.any.{}", mesh_name(s)),
          "all"};
}

namespace {

// Few sources print all kinds of memory: a class that lacks one borrows from the nearest kind before a wider class is asked. What is
// allocated does not depend on what the allocator makes of it: there the same program in other classes comes first, and what other
// programs print last.
struct Asked {
  std::string_view residual_class;
  Predicted quantity = Predicted::kDevice;
};
std::vector<Asked> asked(const std::vector<std::string>& classes, Predicted quantity) {
  std::vector<Asked> all;
  if (quantity == Predicted::kTokensPerSecond) {
    for (const std::string& one : classes) all.push_back({one, quantity});
    return all;
  }
  std::vector<Predicted> quantities = {quantity};
  for (const Predicted nearest :
       {Predicted::kReserved, quantity == Predicted::kReserved ? Predicted::kDevice : Predicted::kAllocated, Predicted::kDevice})
    if (std::find(quantities.begin(), quantities.end(), nearest) == quantities.end()) quantities.push_back(nearest);
  if (quantity != Predicted::kAllocated) {
    for (const std::string& one : classes)
      for (const Predicted of : quantities) all.push_back({one, of});
    return all;
  }
  const auto far = std::find_if(classes.begin(), classes.end(), [](const std::string& one) { return one.starts_with("any.any."); });
  const auto add = [&](auto begin, auto end) {
    for (const Predicted of : quantities)
      for (auto one = begin; one != end; ++one) all.push_back({*one, of});
  };
  add(classes.begin(), far);
  add(far, classes.end());
  return all;
}

}  // namespace

double widening(std::string_view residual_class) {
  constexpr double kOfOtherPrograms = 1.5;
  return residual_class.starts_with("any.any.") || residual_class == "all" ? kOfOtherPrograms : 1;
}

double uncertain_share(const Setup& setup, Predicted quantity, double predicted) {
  constexpr double kLeast = 0.1;
  if (quantity == Predicted::kTokensPerSecond || predicted <= 0) return 1;
  return std::max(kLeast, 1 - static_cast<double>(bound_bytes(setup)) / predicted);
}

namespace {

// What is allocated says little of what the allocator and libraries keep beside it: as much is added as that errs in other code bases.
double width_between(Predicted measured, Predicted wanted, const Calibration& residuals) {
  if (measured != Predicted::kAllocated || wanted == Predicted::kAllocated || wanted == Predicted::kTokensPerSecond) return 0;
  return residuals.get(fmt::format("unseen.memory.{}.above", name(wanted)), 0);
}

// By what was measured of the setup's class, without a doubt about what was not.
Interval interval_of_class(const Setup& setup, Predicted quantity, double predicted, double level, const Calibration& residuals) {
  const double given = predicted;
  double low = quantity == Predicted::kTokensPerSecond ? -0.2 : -0.1, high = -low, wider = 1, borrowed = 0;
  const bool unknown = setup.program.starts_with(kUnknownProgram);
  // Of 29 repositories scored before anything was made for them, half of the errors of memory lay within 22 %, of tokens/s within 23
  // %.
  if (unknown) low = quantity == Predicted::kTokensPerSecond ? -0.5 : -0.3, high = 0.3;
  const double scale = unknown ? 1 : uncertain_share(setup, quantity, predicted);
  const std::vector<std::string> classes = residual_classes(setup, quantity);
  for (const Asked& one : asked(classes, quantity)) {
    const std::string name_of_class = fmt::format("residual.{}.{}", name(one.quantity), one.residual_class);
    const auto found = residuals.constants.find(name_of_class + ".low");
    if (found == residuals.constants.end()) continue;
    low = found->second;
    high = residuals.at(name_of_class + ".high");
    if (quantity != Predicted::kTokensPerSecond) wider = widening(one.residual_class);
    borrowed = width_between(one.quantity, quantity, residuals);
    if (quantity == Predicted::kDevice) predicted += residuals.get(name_of_class + ".offset_gib", 0) * kGib;
    break;
  }
  const double middle = scale * (low + high) / 2;
  const double half = std::hypot(scale * wider * (high - low) / 2, scale * borrowed, width_of_sizes(setup, quantity)) *
                      two_sided_z(level) / two_sided_z(0.9);
  // The prediction itself is inside, also where all that was measured lies on one side of it.
  return {std::min(given, predicted * std::exp(middle - half)), std::max(given, predicted * std::exp(middle + half))};
}

}  // namespace

bool is_unseen(const Setup& setup, Predicted quantity, const Calibration& residuals) {
  return residuals.constants.contains(fmt::format("unseen.{}.any.below", measured_group(quantity))) &&
         !unmeasured(setup, quantity, residuals).empty();
}

Interval interval_of(const Setup& setup, Predicted quantity, double predicted, double level, const Calibration& residuals) {
  const auto of_class = [&] { return interval_of_class(setup, quantity, predicted, level, residuals); };
  if (!is_unseen(setup, quantity, residuals)) return of_class();
  const Spread spread = unseen_spread(setup, quantity, residuals);
  const double scale = two_sided_heavy_z(level) / two_sided_heavy_z(0.9);
  const Interval unseen = interval_90(predicted, {scale * spread.below, scale * spread.above});
  // What other code bases show of the class says nothing of this one. Of a known one, and of a script that is like none, it does.
  const bool is_of_unseen_code = unmeasured(setup, quantity, residuals).front().kind == "software";
  if (is_of_unseen_code && setup.program != kUnknownProgram) return unseen;
  const Interval own = of_class();
  return {std::min(own.low, unseen.low), std::max(own.high, unseen.high)};
}

Interval interval_of(const Setup& setup, Predicted quantity, double predicted, double level) {
  return interval_of(setup, quantity, predicted, level, embedded_calibration());
}

}  // namespace distsetup
