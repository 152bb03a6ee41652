#include "codegen/shell/arguments.h"

#include <algorithm>
#include <string>
#include <utility>

#include "codegen/shell/job_variables.h"
#include "codegen/shell/launch_line.h"
#include "codegen/shell/references.h"
#include "codegen/shell/words.h"

namespace distsetup::foreign {
namespace {

constexpr size_t kMostArguments = 64, kUsualArguments = 9;

// How many of them have a number that is known.
size_t num_counted(const std::vector<ShellWord>& words) {
  const auto open = std::find_if(words.begin(), words.end(), [](const ShellWord& word) { return is_any_number(word.text); });
  return static_cast<size_t>(open - words.begin());
}

bool are_counted(const std::vector<ShellWord>& words) { return num_counted(words) == words.size(); }

// Where the words of `set -- A B` begin; of other forms of set they are options.
size_t first_of_set(const std::vector<ShellWord>& words) {
  if (words.size() < 2 || words[0].text != "set") return 0;
  const std::string& how = words[1].text;
  if (how == "--") return 2;
  return how.empty() || how[0] == '-' || how[0] == '+' ? 0 : 1;
}

}  // namespace

bool may_hold_arguments(const ShellWord& word) {
  if (is_any_number(word.text)) return true;
  const bool is_bare = word.parts.size() == 1 && word.parts[0].quote == ShellQuote::kNone;
  const std::string_view text = word.text;
  if (!is_bare || text.size() < 2) return false;
  if (text[0] == '`') return text.find('`', 1) == text.size() - 1;
  if (text.starts_with("$(") && !text.starts_with("$((")) return closing_bracket(text, 1, text.size()) == text.size() - 1;
  const auto reference = single_reference(text);
  if (!reference || !is_name_start(reference->first[0]) || reference->second.starts_with("[")) return false;
  // A number of the scheduler's, the variable of a loop.
  return reference->first.size() > 1 && !reference->first.starts_with("SLURM_") && !reference->first.starts_with("PBS_");
}

void set_arguments(ShellVariables& variables, const std::vector<ShellWord>& words) {
  const size_t num = std::min(num_counted(words), kMostArguments);
  const bool is_whole = num == words.size();
  for (size_t i = 0; i < std::max(num, kUsualArguments); ++i) {
    const std::string name = std::to_string(i + 1);
    ShellValue value;
    if (i < num) value.text = words[i].text;
    value.is_known = i < num ? !has_reference(value.text) : is_whole;
    if (!value.is_known) value.text.clear();
    if (!value.text.empty()) value.words = words_of_text(value.text, words[i].span);
    variables.set(name, std::move(value));
  }
  ShellValue count;
  count.is_known = is_whole;
  if (is_whole) count.text = std::to_string(num);
  count.words = words_of_text(count.text, {0, 0});
  variables.set("#", std::move(count));
  ShellValue all;
  all.is_array = true;
  all.words = words;
  all.text = joined(words);
  variables.set("*", all);
  variables.set("@", std::move(all));
}

void forget_arguments(ShellVariables& variables) {
  const auto forget = [&variables](std::string_view name) {
    if (variables.find(name) != nullptr) variables.set_unknown(name);
  };
  for (size_t i = 1; i <= kMostArguments; ++i) forget(std::to_string(i));
  for (const char* name : {"#", "@", "*"}) forget(name);
}

std::vector<ShellWord> common_arguments(const std::vector<ShellWord>& a, const std::vector<ShellWord>& b) {
  std::vector<ShellWord> out;
  const size_t num = std::min(num_counted(a), num_counted(b));
  for (size_t i = 0; i < num; ++i) {
    out.push_back(a[i].text == b[i].text ? a[i] : bare_word("${" + std::to_string(i + 1) + "}", a[i].span));
  }
  const bool are_alike = a.size() == b.size() && are_counted(a) && are_counted(b);
  if (!are_alike) out.push_back(bare_word("$@", {0, 0}));
  return out;
}

bool moves_arguments(const ShellCommand& command) {
  return !command.words.empty() && (command.words[0].text == "shift" || first_of_set(command.words) > 0);
}

void move_arguments(const ShellCommand& command, ShellVariables& variables) {
  if (const size_t first = first_of_set(command.expanded); first > 0)
    return set_arguments(variables, {command.expanded.begin() + static_cast<std::ptrdiff_t>(first), command.expanded.end()});
  const ShellValue* all = variables.find("@");
  if (all == nullptr || command.words[0].text != "shift") return;
  const auto places = command.expanded.size() > 1 ? number(command.expanded[1].text) : 1;
  std::vector<ShellWord> words = all->words;
  const bool is_told = all->is_known && places && *places >= 0 && static_cast<size_t>(*places) <= num_counted(words);
  if (!is_told) return forget_arguments(variables);
  words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(*places));
  set_arguments(variables, words);
}

}  // namespace distsetup::foreign
