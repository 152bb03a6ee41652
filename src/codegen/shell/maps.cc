#include "codegen/shell/maps.h"

#include "codegen/shell/cut_text.h"

namespace distsetup::foreign {
namespace {

std::string mark_of(std::string_view name) { return std::string(name) + "[]"; }  // no variable is called so

bool assign_entry(ShellExpander& variables, const std::string& name, ShellAssignment& one) {
  const size_t bracket = one.name.find('[');
  if (one.name.back() != ']') return false;
  const std::string entry = map_entry(variables, name, std::string_view(one.name).substr(bracket + 1, one.name.size() - bracket - 2));
  const ExpandedText text = variables.expand(one.value);
  one.known = text.text;
  if (entry.empty()) return true;
  if (one.appends || !text.is_known) {
    variables.set_unknown(entry);
  } else {
    variables.set_text(entry, text.text);
  }
  return true;
}

}  // namespace

void declare_maps(const ShellCommand& command, ShellExpander& variables) {
  const std::vector<ShellWord>& words = command.words;
  if (words.size() < 2 || words[1].text.size() < 2 || words[1].text[0] != '-' || words[1].text.find('A') == std::string::npos) return;
  for (size_t i = 2; i < words.size(); ++i) variables.set_text(mark_of(words[i].text), "");
  for (const ShellAssignment& one : command.assignments) variables.set_text(mark_of(one.name), "");
}

bool is_map(const ShellVariables& variables, std::string_view name) { return variables.find(mark_of(name)) != nullptr; }

std::string map_entry(ShellExpander& variables, std::string_view name, std::string_view key) {
  const ExpandedText text = variables.expand_text(unquoted_default(key, false), true);
  return text.is_known && !text.text.empty() ? std::string(name) + "[" + text.text + "]" : "";
}

bool assign_in_map(ShellExpander& variables, ShellAssignment& one) {
  const size_t bracket = one.name.find('[');
  const std::string name = one.name.substr(0, bracket);
  if (!is_map(variables, name)) return false;
  if (bracket != std::string::npos) return assign_entry(variables, name, one);
  for (const ShellWord& item : one.array) {
    const ExpandedText text = variables.expand(item);
    const size_t end = text.text.find("]=");
    if (end == std::string::npos || text.text[0] != '[' || !text.is_known) continue;
    const std::string entry = map_entry(variables, name, std::string_view(text.text).substr(1, end - 1));
    if (!entry.empty()) variables.set_text(entry, text.text.substr(end + 2));
  }
  variables.set_unknown(name);
  return true;
}

}  // namespace distsetup::foreign
