#include "codegen/shell/loops.h"

#include <algorithm>
#include <string>

#include "codegen/shell/arguments.h"
#include "codegen/shell/words.h"

namespace distsetup::foreign {
namespace {

// $NAME, ${NAME…}, and NAME alone in $((…)).
bool mentions(std::string_view text, const std::string& name) {
  const bool counts = text.find("$((") != std::string_view::npos || text.find("$[") != std::string_view::npos;
  for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const size_t end = at + name.size();
    const bool is_whole = (end >= text.size() || !is_name_char(text[end])) && (at == 0 || !is_name_char(text[at - 1]));
    const bool is_taken = at > 0 && (text[at - 1] == '$' || (text[at - 1] == '{' && at > 1 && text[at - 2] == '$'));
    if (is_whole && (is_taken || counts)) return true;
  }
  return false;
}

}  // namespace

bool is_over_list(const ShellCommand& header) {
  const std::vector<ShellWord>& words = header.words;
  if (words.size() < 4 || words[2].text != "in") return false;
  return std::none_of(words.begin() + 3, words.end(), [](const ShellWord& word) {
    return word.text.find("$@") != std::string::npos || word.text.find("$*") != std::string::npos;
  });
}

bool has_known_items(const ShellCommand& header) {
  const std::vector<ShellWord>& words = header.expanded;
  return words.size() > 4 && words[2].text == "in" && std::all_of(words.begin() + 3, words.end(), [](const ShellWord& word) {
           return word.text.find_first_of("$`*?[{") == std::string::npos;
         });
}

bool goes_over_no_arguments(const ShellScript& script, const ShellCommand* header, const std::vector<size_t>& commands,
                            ShellExpander& variables) {
  bool is_one = false;
  for (size_t i = 2; header != nullptr && i < header->words.size(); ++i) is_one = is_one || header->words[i].text == "$@";
  const bool has_none = variables.find("#") == nullptr;
  for (const size_t i : commands) {
    if (i >= script.commands.size() || script.commands[i].words.empty()) continue;
    const bool moves = moves_arguments(script.commands[i]);
    if (moves) forget_arguments(variables);
    is_one = is_one || moves || script.commands[i].words[0].text == "getopts";
  }
  return is_one && has_none;
}

void leave_unset(const ShellExpander& variables, ShellVariables::Changes& changes) {
  std::erase_if(changes, [&variables](const auto& one) { return !one.second.is_known && variables.find(one.first) == nullptr; });
}

void forget_grown(ShellExpander& variables, const std::string& name) {
  const ShellValue* now = variables.find(name);
  if (now == nullptr) return;
  ShellValue value = *now;
  value.is_known = value.is_certain = false;
  const auto is_option = [](const ShellWord& word) { return word.text.size() > 1 && word.text[0] == '-'; };
  if (std::none_of(value.words.begin(), value.words.end(), is_option)) value.words.clear();
  variables.set(name, std::move(value));
}

bool changes_each_time(const ShellAssignment& one, const std::set<std::string>& grown, bool is_listed, ShellExpander& variables) {
  if (one.appends || mentions(one.value.text, one.name)) return true;
  if (std::any_of(grown.begin(), grown.end(), [&one](const std::string& name) { return mentions(one.value.text, name); })) return true;
  const ShellValue* now = variables.find(one.name);
  return is_listed && now != nullptr && !now->is_known;
}

}  // namespace distsetup::foreign
