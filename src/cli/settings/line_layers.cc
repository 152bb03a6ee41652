#include "cli/settings/line_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "base/text.h"
#include "planner/spec/spec_lookup.h"
#include "planner/spec/spec_table.h"

extern char** environ;

namespace distsetup {
namespace {

constexpr std::string_view kPrefix = "DISTSETUP_";
// Read by scripts and tests of this project, not keys of a run.
const std::vector<std::string> kOtherVariables = {"DISTSETUP_BIN",       "DISTSETUP_SOURCE", "DISTSETUP_PRESETS",
                                                  "DISTSETUP_TEMPLATES", "DISTSETUP_SERVER", "DISTSETUP_TOKEN_FILE"};

// The key of "key=value" where no run has it; nothing: it is a run's.
std::optional<std::string> key_of_file(const std::string& assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || find_spec_key(assignment.substr(0, equals)) != nullptr) return std::nullopt;
  return assignment.substr(0, equals);
}

}  // namespace

Result<Spec> read_variables() {
  Spec spec;
  Diagnostics diagnostics;
  std::vector<std::string> known = kOtherVariables;
  for (const SpecKey& key : spec_keys()) {
    known.emplace_back(key.env);
    const char* text = std::getenv(std::string(key.env).c_str());
    if (text != nullptr && *text != '\0') append(diagnostics, set(spec, key.path, text, {std::string(key.env)}));
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    const std::string name(variable.substr(0, variable.find('=')));
    if (name.compare(0, kPrefix.size(), kPrefix) != 0) continue;
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    diagnostics.push_back(warning(code::kUnknownKey, {"environment"}, fmt::format("nothing reads the variable '{}'", name),
                                  nearest_name(name, known).empty() ? "distsetup help keys" : suggest(name, known)));
  }
  return {std::move(spec), std::move(diagnostics)};
}

Result<Spec> read_flags(const Arguments& arguments) {
  Spec spec;
  Diagnostics diagnostics;
  std::map<std::string, std::string> set_by;  // path -> the flag as typed
  for (const Arguments::RunFlag& flag : arguments.run_flags) {
    const std::optional<std::string_view> text = flag.value ? std::optional<std::string_view>(*flag.value) : std::nullopt;
    const std::string shown = fmt::format("--{}{}", flag.spelling, flag.value ? " " + *flag.value : "");
    Spec alone;
    Diagnostics mistakes = set_flag(alone, flag.spelling, text, command_line());
    for (const auto& [path, setting] : alone.settings) {
      const auto [before, is_new] = set_by.emplace(path, shown);
      const bool may_repeat = std::holds_alternative<std::vector<std::string>>(setting.value);
      if (is_new || before->second == shown || may_repeat) continue;
      mistakes.push_back(error(code::kConflict, command_line(),
                               fmt::format("'{}' and '{}' both set {}, expected one of them", before->second, shown, path),
                               "keep one of them"));
    }
    if (!has_error(mistakes)) (void)set_flag(spec, flag.spelling, text, command_line());
    append(diagnostics, std::move(mistakes));
  }
  return {std::move(spec), std::move(diagnostics)};
}

Result<Spec> read_assignments(const Arguments& arguments, bool has_foreign_files) {
  Spec spec;
  Diagnostics diagnostics;
  for (const std::string& one : lines_of(arguments.text("set"))) {
    if (has_foreign_files && key_of_file(one).has_value()) continue;
    append(diagnostics, set_by_path(spec, one, command_line()));
  }
  return {std::move(spec), std::move(diagnostics)};
}

std::vector<std::pair<std::string, std::string>> foreign_assignments(const Arguments& arguments) {
  std::vector<std::pair<std::string, std::string>> assignments;
  for (const std::string& one : lines_of(arguments.text("set"))) {
    const std::optional<std::string> key = key_of_file(one);
    if (key.has_value()) assignments.emplace_back(*key, one.substr(key->size() + 1));
  }
  return assignments;
}

Diagnostics set_by_path(Spec& spec, const std::string& assignment, const Location& at) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == assignment.size())
    return {error(code::kMissingArgument, at, fmt::format("'--set {}': expected key.path=value", assignment),
                  "write --set train.steps=50")};
  const std::string name = assignment.substr(0, equals);
  const SpecKey* key = find_spec_key(name);
  if (key == nullptr) key = find_spec_flag(name);
  if (key == nullptr) {
    std::vector<std::string> known;
    for (const SpecKey& one : spec_keys()) known.emplace_back(one.path);
    for (const std::string& flag : spec_flag_names()) known.push_back(flag.substr(2));
    return {error(code::kUnknownKey, at, fmt::format("'--set {}': no key '{}'", assignment, name), suggest(name, known))};
  }
  return set(spec, key->path, assignment.substr(equals + 1), at);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines = split(text, '\n');
  std::erase(lines, "");
  return lines;
}

}  // namespace distsetup
