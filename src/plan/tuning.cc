#include "plan/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <regex>

#include "plan/expert_rules.h"
#include "plan/plan.h"
#include "plan/program.h"

namespace distsetup {
namespace {

constexpr size_t kLongestPattern = 400;

const std::regex& compiled(const std::string& pattern) {
  static std::mutex mutex;
  static std::map<std::string, std::regex> known;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = known.find(pattern);
  return found != known.end() ? found->second : known.emplace(pattern, std::regex(pattern)).first->second;
}

std::vector<const ParameterDecl*> parameters_of(const Program& program) {
  std::vector<const ParameterDecl*> out;
  for (const std::vector<ParameterDecl>* list : {&program.parameters, &program.shared_parameters, &program.expert_parameters})
    for (const ParameterDecl& p : *list) out.push_back(&p);
  return out;
}

// A matrix that rows are multiplied by: not an embedding, not a norm; nor a router's, which is no linear layer to PEFT (Transformers
// has modules of its own for routers).
bool is_linear(const Program& program, const ParameterDecl& p) {
  return p.shape.size() == 2 && std::any_of(program.forward.begin(), program.forward.end(), [&](const Op& op) {
           return op.kernel.starts_with("linear") && op.reads[1] == "p:" + p.slot && !scores_experts(op, program.forward);
         });
}

bool is_meant(const std::string& target, const Program& program, const ParameterDecl& p, const std::string& prefix) {
  if (!is_linear(program, p)) return false;
  if (target == kAllLinear) return program.kind == UnitKind::kBlock;  // PEFT leaves the output layer out
  return is_target(target, module_of(prefix + p.name));
}

bool is_adapted(const Tuning& tuning, const Program& program, const ParameterDecl& p, const std::string& prefix) {
  return std::any_of(tuning.targets.begin(), tuning.targets.end(),
                     [&](const std::string& target) { return is_meant(target, program, p, prefix); });
}

bool is_trained(const Tuning& tuning, const std::string& name) {
  if (tuning.trains_all()) return true;
  return std::any_of(tuning.trainable.begin(), tuning.trainable.end(),
                     [&](const std::string& pattern) { return matches_name(pattern, name); });
}

}  // namespace

double adapter_scale(double alpha, int64_t rank, bool rslora) {
  const auto r = static_cast<double>(rank);
  return alpha / (rslora ? std::sqrt(r) : r);
}

Tuning tuning_of(const TrainPlan& train) {
  Tuning tuning;
  tuning.trainable = train.trainable;
  if (train.finetune != "lora" && train.finetune != "qlora") return tuning;
  tuning.rank = train.lora_rank;
  tuning.scale = adapter_scale(train.lora_alpha, train.lora_rank, train.rslora);
  tuning.targets = train.lora_targets;
  tuning.is_quantized = train.finetune == "qlora";
  return tuning;
}

std::string pattern_problem(const std::string& pattern) {
  if (pattern.size() > kLongestPattern) return fmt::format("has {} characters, expected at most {}", pattern.size(), kLongestPattern);
  try {
    (void)compiled(pattern);
  } catch (const std::regex_error& wrong) {
    return fmt::format("is no regular expression: {}", wrong.what());
  }
  return "";
}

bool matches_name(const std::string& pattern, const std::string& name) {
  return std::regex_search(name, compiled(pattern), std::regex_constants::match_continuous);
}

bool is_target(std::string_view target, std::string_view module) {
  if (!module.ends_with(target)) return false;
  return module.size() == target.size() || module[module.size() - target.size() - 1] == '.';
}

std::string module_of(std::string_view parameter) {
  constexpr std::string_view kWeight = ".weight";
  return std::string(parameter.ends_with(kWeight) ? parameter.substr(0, parameter.size() - kWeight.size()) : parameter);
}

std::vector<UnitTuning> tune_units(const Tuning& tuning, const std::vector<const Program*>& programs,
                                   const std::vector<std::string>& prefixes) {
  std::vector<UnitTuning> units;
  bool any_below = false;
  for (size_t u = 0; u < programs.size(); ++u) {
    UnitTuning unit;
    for (const ParameterDecl* p : parameters_of(*programs[u])) {
      if (tuning.has_adapters() && is_adapted(tuning, *programs[u], *p, prefixes[u])) unit.adapted.insert(p->name);
      if (!tuning.has_adapters() && is_trained(tuning, prefixes[u] + p->name)) unit.trained.insert(p->name);
    }
    unit.passes_gradient = any_below;
    if (!programs[u]->borrowed_slots.empty()) unit.embedding_trained = units.front().trained;
    any_below = any_below || !unit.trained.empty() || !unit.adapted.empty();
    units.push_back(std::move(unit));
  }
  return units;
}

std::string unmatched(const Tuning& tuning, const std::vector<const Program*>& programs, const std::vector<std::string>& prefixes) {
  const auto any = [&](const auto& holds) {
    for (size_t u = 0; u < programs.size(); ++u)
      for (const ParameterDecl* p : parameters_of(*programs[u]))
        if (holds(*programs[u], *p, prefixes[u])) return true;
    return false;
  };
  for (const std::string& pattern : tuning.trainable)
    if (!any(
            [&](const Program&, const ParameterDecl& p, const std::string& prefix) { return matches_name(pattern, prefix + p.name); }))
      return fmt::format("no parameter's name begins with a match of '{}'", pattern);
  for (const std::string& target : tuning.targets)
    if (!any([&](const Program& program, const ParameterDecl& p, const std::string& prefix) {
          return is_meant(target, program, p, prefix);
        }))
      return fmt::format("no linear layer is called '{}'", target);
  return "";
}

}  // namespace distsetup
