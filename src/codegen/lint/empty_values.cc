#include "codegen/lint/empty_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/names.h"

namespace distsetup::lint {
namespace {

// "$NAME" or "${NAME}" without quotes, and nothing else: the name.
std::string bare_variable(const ShellWord& word) {
  if (word.parts.size() != 1 || word.parts[0].quote != ShellQuote::kNone || word.text.size() < 2 || word.text[0] != '$') return "";
  std::string name = word.text.substr(1);
  if (name.front() == '{' && name.back() == '}') name = name.substr(1, name.size() - 2);
  const bool is_name = std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  return is_name && !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0 ? name : "";
}

// Set in the script, each time to nothing, and by no command that reads a value.
bool is_left_empty(const ShellScript& script, const std::string& name) {
  bool is_set = false;
  for (const ShellCommand& command : script.commands) {
    for (const ShellAssignment& one : command.assignments) {
      if (one.name != name) continue;
      if (!one.value.text.empty() || one.is_array || one.appends) return false;
      is_set = true;
    }
    static constexpr std::array<std::string_view, 7> kSetting = {"read", "for", "mapfile", "readarray", "getopts", "source", "."};
    const bool may_set =
        !command.words.empty() && std::find(kSetting.begin(), kSetting.end(), command.words[0].text) != kSetting.end();
    const bool is_named =
        std::any_of(command.words.begin(), command.words.end(), [&name](const ShellWord& word) { return word.text == name; });
    if (may_set && (is_named || command.words[0].text == "source" || command.words[0].text == ".")) return false;
  }
  return is_set && !script.has_outer(name);
}

// "--actor_model_name_or_path $ACTOR_MODEL_PATH": the variable is named after the option, so that it is its value. Behind a switch may
// stand a list of further arguments, which may well be empty.
bool is_named_after(std::string_view option, const std::string& variable) {
  const std::string name = lower(variable), whole = lower(option);
  for (const std::string_view list : {"arg", "opt", "extra", "flag"}) {
    if (name.find(list) != std::string::npos) return false;
  }
  for (size_t at = 0; at < name.size();) {
    const size_t end = std::min(name.find('_', at), name.size());
    if (end - at >= 4 && whole.find(name.substr(at, end - at)) != std::string::npos) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

void check_empty_values(const LintSetup& /*setup*/, const Document& d, Findings& report) {
  for (const ScriptPart& part : d.parts) {
    for (const LaunchLine& line : part.lines) {
      const LaunchStage* program = line.find(LaunchProgram::kScript);
      const std::vector<ShellWord>& words = part.script.commands[line.command].words;
      if (program == nullptr) continue;
      const ShellWord *first = nullptr, *option = nullptr;
      size_t num_more = 0;
      for (size_t i = 1; i < words.size(); ++i) {
        const ShellWord& before = words[i - 1];
        const bool is_option = before.text.starts_with("--") && before.text.size() > 2 && before.text.find('=') == std::string::npos;
        if (!is_option || before.span.begin < program->span.begin) continue;
        const std::string name = bare_variable(words[i]);
        if (name.empty() || !is_named_after(before.text, name) || !is_left_empty(part.script, name)) continue;
        num_more += first == nullptr ? 0 : 1;
        if (first == nullptr) {
          first = &words[i];
          option = &before;
        }
      }
      if (first == nullptr) continue;
      const std::string others = num_more == 0 ? "" : fmt::format(", and so {} {} more", num_more == 1 ? "does" : "do", num_more);
      report.add("TR016", d, {option->span.begin, first->span.end},
                 fmt::format("'{}' is empty: '{}' gets no value{}", first->text, option->text, others));
    }
  }
}

}  // namespace distsetup::lint
