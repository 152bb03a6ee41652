#include "codegen/shell/builtins.h"

#include <algorithm>
#include <utility>

#include "codegen/shell/words.h"

namespace distsetup::foreign {

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
