#include "codegen/lint/caller_values.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "codegen/shell/expand.h"

namespace distsetup::lint {
namespace {

constexpr int kMostSteps = 8;  // A=$B, B=$C, …

// $1, ${2:-x}, $@, where nobody says what the script is given
bool has_argument(const ShellScript& script, std::string_view text) {
  if (script.has_arguments()) return false;
  for (size_t at = text.find('$'); at != std::string_view::npos; at = text.find('$', at + 1)) {
    const size_t name = at + (text.substr(at + 1, 1) == "{" ? 2 : 1);
    if (name < text.size() && (std::isdigit(static_cast<unsigned char>(text[name])) != 0 || text[name] == '@' || text[name] == '*'))
      return true;
  }
  return false;
}

bool is_open(const Document& d, const ShellScript& script, TextSpan range, int steps) {
  const std::string_view text = d.cut(range);
  if (const size_t open = text.find("$("); open != std::string_view::npos && text.find("$((") == std::string_view::npos) {
    const size_t close = text.find(')', open);
    const bool is_of_manifest = close != std::string_view::npos && script.has_outer(text.substr(open + 2, close - open - 2));
    if (!is_of_manifest) return true;
  }
  if (text.find('`') != std::string_view::npos || has_argument(script, text)) return true;
  for (const auto& [name, at] : expansions(d.text, range)) {
    if (script.has_outer(name)) continue;  // the manifest sets it
    const std::string_view option = option_behind(name);
    if (!option.empty() && script.directive(option) != nullptr) continue;  // SLURM sets it
    const std::string_view rest = std::string_view(d.text).substr(at, range.end - at);
    const std::string_view inside = rest.substr(0, rest.find('}'));
    const bool has_default = rest.rfind("${", 0) == 0 && inside.find('-', name.size()) != std::string_view::npos;
    const bool sets_default = rest.rfind("${", 0) == 0 && inside.find(":=") != std::string_view::npos;
    if (has_default || sets_default || steps == 0) return true;
    const ShellAssignment* first = nullptr;
    for (const ShellCommand& command : script.commands) {
      for (const ShellAssignment& one : command.assignments) {
        if (one.name != name) continue;
        if (first != nullptr && one.value.text != first->value.text) return true;
        if (first == nullptr) first = &one;
      }
    }
    if (first == nullptr || is_open(d, script, first->span, steps - 1)) return true;
  }
  return false;
}

}  // namespace

bool comes_from_caller(const Document& d, const ShellScript& script, TextSpan range) { return is_open(d, script, range, kMostSteps); }

bool comes_from_caller(const Document& d, const ShellScript& script, const LaunchOption& option) {
  return comes_from_caller(d, script, option.span) || comes_from_caller(d, script, option.value_span);
}

bool knows_its_cluster(const Document& d, const ShellScript& script) {
  static constexpr std::array<std::string_view, 6> kMarks = {"srun ", "ssh ", "pdsh ", "mpirun ", "mpiexec ", "clush "};
  return !script.directives.empty() || !script.pbs.empty() || !script.lsf.empty() ||
         std::any_of(kMarks.begin(), kMarks.end(), [&d](std::string_view mark) { return d.text.find(mark) != std::string::npos; });
}

}  // namespace distsetup::lint
