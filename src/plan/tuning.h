// What of a model is trained and what stays as it is: all of it; the parameters whose published names match patterns; or adapters
// (LoRA, arXiv 2106.09685) beside matrices that stay as they are. Decided for each unit of a model, since layers may differ.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

namespace distsetup {

struct Plan;
struct Program;
struct TrainPlan;

inline constexpr std::string_view kAllLinear = "all-linear";

struct Tuning {
  std::vector<std::string> trainable;  // patterns of published names; what none matches is frozen
  int64_t rank = 0;                    // of adapters; 0: there are none
  double scale = 0;                    // what the product of both matrices of an adapter is multiplied by
  std::vector<std::string> targets;    // modules with adapters: the ends of their names, or kAllLinear
  bool is_quantized = false;           // matrices of blocks beside adapters are held as nf4 (nf4.h)
  bool trains_all() const { return trainable.empty() && rank == 0; }
  bool has_adapters() const { return rank > 0; }
  bool operator==(const Tuning&) const = default;
};
Tuning tuning_of(const TrainPlan& train);

// alpha / rank, or alpha / sqrt(rank) with rslora (arXiv 2312.03732).
double adapter_scale(double alpha, int64_t rank, bool rslora);

// Does the name begin with a match of the pattern (an ECMAScript regular expression)? As Python's re.match, which axolotl and
// Spectrum take such patterns with.
bool matches_name(const std::string& pattern, const std::string& name);
// "": the pattern can be used.
std::string pattern_problem(const std::string& pattern);
// Is a module meant by a target, as PEFT takes target_modules: the same name, or the end of it after a dot?
bool is_target(std::string_view target, std::string_view module);

// Of one unit: published names of its parameters, below the unit's prefix.
struct UnitTuning {
  std::set<std::string> trained, adapted;   // parameters that change; matrices that have an adapter
  std::set<std::string> embedding_trained;  // of the embedding, where the head reads its matrix
  bool passes_gradient = true;              // a unit below is trained
  bool operator==(const UnitTuning&) const = default;
  auto operator<=>(const UnitTuning&) const = default;
};

// Of all units of a model, in order: `programs` are those of the units without tuning, `prefixes` those of their parameters' names.
std::vector<UnitTuning> tune_units(const Tuning& tuning, const std::vector<const Program*>& programs,
                                   const std::vector<std::string>& prefixes);
// Patterns and targets that no parameter has: "": none.
std::string unmatched(const Tuning& tuning, const std::vector<const Program*>& programs, const std::vector<std::string>& prefixes);

// "self_attn.q_proj.weight" -> "self_attn.q_proj"
std::string module_of(std::string_view parameter);

}  // namespace distsetup
