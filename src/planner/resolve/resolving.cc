#include "planner/resolve/resolving.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"

namespace distsetup {
namespace {

// Of the trainers that have a feature, one that splits as far as this one does.
std::string nearest(const Resolving& r, const std::vector<std::string>& others) {
  const auto splits = [](const TrainerFacts& facts) {
    return std::find(facts.shardings.begin(), facts.shardings.end(), Sharding::kZero3) != facts.shardings.end();
  };
  for (const std::string& other : others) {
    const Result<TrainerFacts> facts = find_trainer(r.presets, other);
    if (facts.ok() && splits(*facts) == splits(r.problem.trainer)) return other;
  }
  return others.front();
}

}  // namespace

void Resolving::fail(const char* code, std::string_view path, std::string message, std::string help) {
  Diagnostic d = error(code, spec.at(path), std::move(message), std::move(help));
  if (const Setting* setting = spec.find(path)) d.length = std::max<int>(1, static_cast<int>(setting->text.size()));
  said.push_back(std::move(d));
}

bool Resolving::refuse_elsewhere(std::string_view path) {
  if (native() || spec.find(path) == nullptr) return false;
  fail(code::kUnsupportedFeature, path,
       fmt::format("{} is a setting of the bundled trainer; other trainers have switches of their own for it", path),
       "plan with --trainer native, or set it where that trainer reads it");
  return true;
}

bool Resolving::require(std::string_view feature, std::string_view path, std::string_view what) {
  if (problem.trainer.has(feature)) return true;
  const std::vector<std::string> others = trainers_with(presets, feature);
  fail(code::kUnsupportedFeature, path, fmt::format("{} is planned without {}", problem.trainer.label, what),
       others.empty() ? "" : fmt::format("--trainer {}", nearest(*this, others)));
  return false;
}

}  // namespace distsetup
