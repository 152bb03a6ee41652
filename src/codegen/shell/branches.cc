// Which branches of a script's ifs its own settings take. Conditions are looked at in order, with the assignments of the commands
// before them that are left; one that is not a single test of known words is taken both ways.
#include "codegen/shell/branches.h"

#include <fnmatch.h>

#include <optional>

#include "codegen/shell/expand.h"

namespace distsetup::foreign {
namespace {

std::optional<std::string> known_word(const ShellScript& script, const ShellWord& word) {
  std::string text = literal(script, word.text);
  if (text.find_first_of("$`") != std::string::npos) return std::nullopt;
  return text;
}

// [[ … ]], [ … ] and test …; nothing when it is none of them, or a word is not known.
std::optional<bool> truth(const ShellScript& script, const ShellCommand& command) {
  std::vector<ShellWord> words = command.words;
  if (words.empty() || !command.assignments.empty() || command.reads_pipe) return std::nullopt;
  const bool is_double = words.back().text == "]]";  // its first bracket is a reserved word
  if (is_double || (words[0].text == "[" && words.back().text == "]")) words.pop_back();
  if (!is_double) {
    if (words.empty() || (words[0].text != "[" && words[0].text != "test")) return std::nullopt;
    words.erase(words.begin());
  }
  if (words.size() == 2 && (words[0].text == "-n" || words[0].text == "-z")) {
    const auto text = known_word(script, words[1]);
    if (!text) return std::nullopt;
    return text->empty() == (words[0].text == "-z");
  }
  if (words.size() != 3) return std::nullopt;
  const auto left = known_word(script, words[0]), right = known_word(script, words[2]);
  const std::string& relation = words[1].text;
  const bool is_equal = relation == "==" || relation == "=";
  if (!left || !right || (!is_equal && relation != "!=")) return std::nullopt;
  const bool is_pattern = is_double && words[2].parts.size() == 1 && words[2].parts[0].quote == ShellQuote::kNone;
  const bool are_same = is_pattern ? ::fnmatch(right->c_str(), left->c_str(), 0) == 0 : *left == *right;
  return are_same == is_equal;
}

struct Branches {
  bool is_outer_dead = false;  // the whole if stands in a branch that is not taken
  bool is_settled = false;     // a branch before this one is taken
  bool is_dead = false;        // this one is not
  bool is_negated = false;
  std::vector<ShellCommand> condition;
};

}  // namespace

ShellScript taken_branches(const ShellScript& script) {
  ShellScript out = script;
  out.commands.clear();
  out.keywords.clear();
  std::vector<Branches> open;
  bool in_condition = false;
  auto keyword = script.keywords.begin();
  for (size_t i = 0; i <= script.commands.size(); ++i) {
    for (; keyword != script.keywords.end() && keyword->command == i; ++keyword) {
      if (keyword->word == "if") {
        const bool is_dead = !open.empty() && open.back().is_dead;
        open.push_back({is_dead, false, is_dead, false, {}});
        in_condition = true;
      } else if (open.empty()) {
        continue;
      } else if (keyword->word == "fi") {
        open.pop_back();
        in_condition = false;
      } else if (Branches& branches = open.back(); keyword->word == "!") {
        branches.is_negated = branches.is_negated || in_condition;
      } else if (keyword->word == "then") {
        std::optional<bool> is_true;
        if (branches.condition.size() == 1 && !branches.is_negated) is_true = truth(out, branches.condition[0]);
        branches.is_dead = branches.is_outer_dead || branches.is_settled || is_true == false;
        branches.is_settled = branches.is_settled || is_true == true;
        in_condition = false;
      } else {
        branches.is_dead = branches.is_outer_dead || branches.is_settled;
        branches.is_negated = false;
        branches.condition.clear();
        in_condition = keyword->word == "elif";
      }
    }
    if (i == script.commands.size()) break;
    const ShellCommand& command = script.commands[i];
    if (in_condition && !open.empty()) open.back().condition.push_back(command);
    if (open.empty() || !open.back().is_dead) out.commands.push_back(command);
  }
  return out;
}

}  // namespace distsetup::foreign
