#include "codegen/shell/builtins.h"

#include <algorithm>
#include <utility>

#include "base/names.h"
#include "codegen/shell/words.h"

namespace distsetup::foreign {
namespace {

// "N++", "N+=2": the variable, and what it becomes; "" of both where nothing is changed, and of the sum where it cannot be told.
struct ArithmeticChange {
  std::string name, sum;
};

ArithmeticChange change_of(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  text = trim(text, kBlanks);
  const bool is_before = text.starts_with("++") || text.starts_with("--");
  const std::string_view sign = is_before ? text.substr(0, 1) : "";
  if (is_before) text = trim(text.substr(2), kBlanks);
  size_t end = 0;
  while (end < text.size() && is_name_char(text[end])) ++end;
  if (end == 0 || !is_name_start(text[0])) return {};
  const std::string name(text.substr(0, end));
  const std::string_view rest = trim(text.substr(end), kBlanks);
  if (is_before) return {name, rest.empty() ? name + std::string(sign) + "1" : ""};
  if (rest == "++" || rest == "--") return {name, name + rest[0] + "1"};
  if (rest.starts_with("==")) return {};
  if (rest.starts_with("=")) return {name, "(" + std::string(rest.substr(1)) + ")"};
  const bool is_assigned = rest.size() > 2 && rest[1] == '=' && std::string_view("+-*/%").find(rest[0]) != std::string_view::npos;
  if (is_assigned) return {name, name + rest[0] + "(" + std::string(rest.substr(2)) + ")"};
  const bool compares = rest.starts_with("<=") || rest.starts_with(">=") || rest.starts_with("!=");
  const bool may_change = rest.find('=') != std::string_view::npos || rest.find("++") != std::string_view::npos ||
                          rest.find("--") != std::string_view::npos;
  return may_change && !compares ? ArithmeticChange{name, ""} : ArithmeticChange{};
}

}  // namespace

std::vector<std::string> change_by_arithmetic(const ShellCommand& one, ShellExpander& variables, bool is_once) {
  std::vector<std::string> names;
  for (size_t i = 1; i < one.words.size(); ++i) {
    const std::string_view text = one.words[i].text;
    const bool is_list = text.find(',') != std::string_view::npos && text.find('(') == std::string_view::npos;
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = is_list ? std::min(text.find(',', begin), text.size()) : text.size();
      const ArithmeticChange change = change_of(text.substr(begin, end - begin));
      begin = end + 1;
      if (change.name.empty()) continue;
      names.push_back(change.name);
      const ShellValue* before = variables.find(change.name);
      const bool is_certain = before == nullptr || before->is_certain;
      const ExpandedText sum = is_once && !change.sum.empty() ? variables.sum_text(change.sum) : ExpandedText{"", false, false};
      variables.set_unknown(change.name);
      if (!sum.is_known) continue;
      ShellValue value;
      value.text = sum.text;
      value.words = {bare_word(sum.text, one.words[i].span)};
      value.is_certain = is_certain;
      variables.set(change.name, std::move(value));
    }
  }
  return names;
}

void read_into_variables(const ShellCommand& one, ShellExpander& variables) {
  std::vector<std::string> names;
  bool is_list = false, is_whole = false;
  for (size_t i = 1; i < one.words.size(); ++i) {
    const std::string& word = one.words[i].text;
    const bool is_option = word.size() > 1 && word[0] == '-';
    if (is_option && word.find('a') != std::string::npos) is_list = true;
    if (is_option && word.back() == 'd') is_whole = true;
    if (is_option && std::string_view("dnNptui").find(word.back()) != std::string_view::npos) {
      ++i;
    } else if (!is_option) {
      names.push_back(word);
    }
  }
  for (const std::string& each : names) variables.set_unknown(each);
  if (names.empty()) return;
  const auto text =
      std::find_if(one.redirections.begin(), one.redirections.end(), [](const ShellRedirection& r) { return r.how == "<<<"; });
  if (!one.here.empty() && names.size() == 1 && is_whole) {
    variables.assign_span(names[0], one.here[0].body, one.here[0].expands);
  } else if (text != one.redirections.end()) {
    const ExpandedText value = variables.expand(text->target);
    if (!value.is_known) return;
    if (is_list) {
      ShellAssignment array;
      array.name = names[0];
      variables.set_text("", value.text);
      array.is_array = true;
      array.array = variables.find("")->words;
      variables.assign(array);
    } else if (names.size() == 1) {
      variables.set_text(names[0], value.text);
    }
  }
}

void find_written_file(const ShellCommand& one, ShellExpander& variables, ShellScript& script) {
  constexpr size_t kMaxFiles = 20;
  const std::string& name = one.words[0].text;
  const bool is_submitted = name == "sbatch" || name == "qsub" || name == "bsub";
  const bool writes = name == "cat" || name == "tee" || name == "echo" || name == "printf" || is_submitted;
  if (!writes || script.files.size() >= kMaxFiles) return;
  ScriptFile file;
  if (is_submitted && one.here.size() == 1) file.path = "job of " + name;
  for (const ShellRedirection& redirection : one.redirections) {
    if (redirection.how == ">" || redirection.how == ">|") file.path = variables.expand(redirection.target).text;
  }
  if (name == "tee" && one.expanded.size() == 2) file.path = one.expanded[1].text;
  if (file.path.empty()) return;
  const bool is_here = (name == "cat" || name == "tee" || is_submitted) && one.here.size() == 1;
  const bool is_said = (name == "echo" || name == "printf") && one.words.size() == 2 && one.words[1].parts.size() == 1;
  if (!is_here && !is_said) return;
  file.body = is_here ? one.here[0].body : one.words[1].parts[0].span;
  const bool expands = is_here ? one.here[0].expands : one.words[1].parts[0].quote == ShellQuote::kDouble;
  const std::string_view body =
      is_here ? script.text.substr(file.body.begin, file.body.end - file.body.begin) : std::string_view(one.words[1].parts[0].text);
  file.text = expands ? without_escapes(variables.expand_text(body, true).text) : std::string(body);
  script.files.push_back(std::move(file));
}

}  // namespace distsetup::foreign
