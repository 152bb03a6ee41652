#include "codegen/lint/unset_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>

#include "base/names.h"
#include "codegen/shell/expand.h"
#include "codegen/shell/words.h"

namespace distsetup::lint {
namespace {

constexpr size_t kShortestName = 4;  // of shorter names many are nearly the same

bool is_numbered(std::string_view name) { return std::any_of(name.begin(), name.end(), is_digit); }

// A variable may be set by what a file brings, and by what is put together while the script runs.
bool brings_variables(const ShellScript& script) {
  static constexpr std::array<std::string_view, 5> kBringing = {"source", ".", "eval", "mapfile", "readarray"};
  return std::any_of(script.commands.begin(), script.commands.end(), [](const ShellCommand& one) {
    return !one.words.empty() && std::find(kBringing.begin(), kBringing.end(), one.words[0].text) != kBringing.end();
  });
}

// Every place of the name puts its value in, and none has another value for it (${N:-8}): nothing here sets it, or expects it unset.
bool is_only_read(std::string_view text, std::string_view name) {
  for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + name.size())) {
    const size_t end = at + name.size();
    const bool is_whole =
        (at == 0 || !foreign::is_name_char(text[at - 1])) && (end == text.size() || !foreign::is_name_char(text[end]));
    if (!is_whole) continue;
    const bool is_plain = at > 0 && text[at - 1] == '$';
    const bool is_braced = at > 1 && text[at - 1] == '{' && text[at - 2] == '$' && end < text.size() && text[end] == '}';
    if (!is_plain && !is_braced) return false;
  }
  return true;
}

// What the script sets by a name with one letter more, less or other; "": none.
std::string nearly_set(const ShellScript& script, const std::string& name) {
  for (const ShellCommand& command : script.commands) {
    for (const ShellAssignment& one : command.assignments) {
      if (one.name.size() >= kShortestName && !is_numbered(one.name) && edit_distance(one.name, name) == 1) return one.name;
    }
  }
  return "";
}

}  // namespace

void check_unset_values(const LintSetup& /*setup*/, const Document& d, Findings& report) {
  if (!d.is_script()) return;
  for (const ScriptPart& part : d.parts) {
    if (brings_variables(part.script)) continue;
    std::set<std::string> told;
    for (const LaunchLine& line : part.lines) {
      for (const LaunchStage& stage : line.stages) {
        for (const LaunchOption& option : stage.options) {
          if (option.value.find('$') == std::string::npos) continue;
          for (const auto& [name, at] : expansions(d.text, option.span)) {
            const bool is_open = name.size() >= kShortestName && !is_numbered(name) && option.value.find(name) != std::string::npos;
            if (!is_open || part.script.has_outer(name) || !foreign::option_behind(name).empty()) continue;
            const std::string near = is_only_read(d.text, name) ? nearly_set(part.script, name) : "";
            if (near.empty() || !told.insert(name).second) continue;
            report.add("TR017", d, option.span, fmt::format("'{}' is set nowhere here, and '{}' is", name, near),
                       {.help = fmt::format("did you mean '{}'", near)});
          }
        }
      }
    }
  }
}

}  // namespace distsetup::lint
