#include "codegen/read/own_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "codegen/read/best_table.h"
#include "codegen/read/match.h"

namespace distsetup {

std::optional<Result<Reading>> over_file_of_torchtitan(const TemplateSet& templates, const std::vector<FoundKey>& found,
                                                       const std::string& file) {
  const auto names_file = [](const FoundKey& one) { return is_same_key(one.key, "job.config_file") && !one.stands_alone; };
  const auto named = std::find_if(found.begin(), found.end(), names_file);
  std::vector<FoundKey> rest;
  std::remove_copy_if(found.begin(), found.end(), std::back_inserter(rest), names_file);
  if (named == found.end() || rest.empty()) return std::nullopt;
  Result<Reading> over = reading_by(templates, "torchtitan-0.2/keys.yaml", {nullptr, std::move(rest), nullptr}, file);
  if (!over.ok()) return over;
  std::erase_if(over->fields, [](const auto& one) { return one.second.is_assumed; });
  over->is_over_file = true;
  LostKey lost{named->key, named->text, "it is a file of its own: give it beside this one", named->at};
  lost.is_file = named->unknown.empty();
  if (!lost.is_file) lost.reason = named->unknown;
  over->lost.push_back(std::move(lost));
  return over;
}

void explain_own_arguments(const std::string& program, Reading& reading) {
  if (!program.ends_with(".py")) return;
  for (LostKey& lost : reading.lost) {
    if (lost.why != LostKey::Why::kUnknownKey) continue;
    lost.reason = reading.table == "config-argument/keys.yaml"
                      ? "no table knows the arguments of " + program
                      : fmt::format("none of the arguments of {}: the script declares it, or stops at it", reading.tool);
  }
}

}  // namespace distsetup
