#include "codegen/shell/builtins.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/names.h"
#include "codegen/shell/directives.h"
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

// What `read` takes a line apart at: IFS= before it, or as the script has set it; nothing where only the running script knows.
std::optional<std::string> separators_of(const ShellCommand& read, ShellExpander& variables) {
  for (const ShellAssignment& assignment : read.assignments) {
    if (assignment.name != "IFS") continue;
    const ExpandedText value = variables.expand(assignment.value);
    return value.is_known ? std::optional(value.text) : std::nullopt;
  }
  const ShellValue* value = variables.find("IFS");
  if (value == nullptr) return " \t\n";
  return value->is_known && !value->is_array ? std::optional(value->text) : std::nullopt;
}

// The fields of a line, at most `limit` (0: any number), of which the last has the rest (bash 5.2, "Word Splitting"): blanks among the
// separators count once and not at the ends; each other one ends a field.
std::vector<std::string> fields_of(std::string_view line, std::string_view separators, size_t limit) {
  std::string blanks;
  for (const char c : separators)
    if (c == ' ' || c == '\t' || c == '\n') blanks += c;
  line = trim(line, blanks);
  std::vector<std::string> fields;
  while (!line.empty()) {
    const size_t end = limit != 0 && fields.size() + 1 == limit ? line.size() : std::min(line.find_first_of(separators), line.size());
    fields.emplace_back(line.substr(0, end));
    const size_t next = std::min(line.find_first_not_of(blanks, end), line.size());
    const bool is_ended =
        next < line.size() && separators.find(line[next]) != separators.npos && blanks.find(line[next]) == blanks.npos;
    line = line.substr(std::min(is_ended ? line.find_first_not_of(blanks, next + 1) : next, line.size()));
  }
  return fields;
}

void read_fields(const std::vector<std::string>& names, bool is_list, const std::string& line, const ShellCommand& read,
                 ShellExpander& variables) {
  const std::optional<std::string> separators = separators_of(read, variables);
  if (!separators) return;
  const std::vector<std::string> fields = fields_of(line, *separators, is_list ? 0 : names.size());
  if (!is_list) {
    for (size_t i = 0; i < names.size(); ++i) variables.set_text(names[i], i < fields.size() ? fields[i] : "");
    return;
  }
  ShellAssignment array;
  array.name = names[0];
  array.is_array = true;
  for (const std::string& field : fields) array.array.push_back(bare_word(field, read.words[0].span));
  variables.assign(array);
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
    if (value.is_known)
      read_fields(names, is_list, is_whole ? value.text : value.text.substr(0, value.text.find('\n')), one, variables);
  }
}

// cat <<EOF > $CONFIG, of CONFIG="ds.$SLURM_JOB_ID.json": the words that whoever is given the variable sees.
static std::string path_of(ShellWord target, ShellExpander& variables) {
  ExpandedText text = variables.expand(target);
  if (text.is_known) return text.text;
  for (WordPart& part : target.parts) {
    if (part.quote == ShellQuote::kDouble) part.quote = ShellQuote::kNone;
  }
  const std::vector<ShellWord> words = variables.expand_words({std::move(target)});
  return words.size() == 1 ? words[0].text : text.text;
}

void find_written_file(const ShellCommand& one, const std::optional<HereDocument>& piped, ShellExpander& variables,
                       ShellScript& script) {
  constexpr size_t kMaxFiles = 20;
  const std::string& name = one.words[0].text;
  const bool is_submitted = name == "sbatch" || name == "qsub" || name == "bsub";
  const bool writes = name == "cat" || name == "tee" || name == "echo" || name == "printf" || is_submitted;
  if (!writes || script.files.size() >= kMaxFiles) return;
  ScriptFile file;
  if (is_submitted && one.here.size() == 1) file.path = "job of " + name;
  for (const ShellRedirection& redirection : one.redirections) {
    if (redirection.how == ">" || redirection.how == ">|") {
      file.path = path_of(redirection.target, variables);
      file.spelled = variables.expand(redirection.target).text;
    }
  }
  if (name == "tee" && one.expanded.size() == 2) file.path = one.expanded[1].text;
  if (file.path.empty()) return;
  const bool is_piped = name == "tee" && one.reads_pipe && piped && one.here.empty();
  const bool is_here = is_piped || ((name == "cat" || name == "tee" || is_submitted) && one.here.size() == 1);
  const bool is_said = (name == "echo" || name == "printf") && one.words.size() == 2 && one.words[1].parts.size() == 1;
  if (!is_here && !is_said) return;
  const HereDocument* here = is_piped ? &*piped : is_here ? &one.here[0] : nullptr;
  file.body = is_here ? here->body : one.words[1].parts[0].span;
  file.expands = is_here ? here->expands : one.words[1].parts[0].quote == ShellQuote::kDouble;
  const std::string_view body =
      is_here ? script.text.substr(file.body.begin, file.body.end - file.body.begin) : std::string_view(one.words[1].parts[0].text);
  file.text = file.expands ? without_escapes(variables.expand_text(body, true).text) : std::string(body);
  if (name == "sbatch" && file.path.starts_with("job of "))
    file.text = with_options(std::move(file.text), options_of_sbatch(one, one.expanded.size()));
  script.files.push_back(std::move(file));
}

std::optional<HereDocument> piped_document(const ShellCommand& one) {
  const bool is_shown = one.words.size() == 1 && one.words[0].text == "cat" && one.here.size() == 1 && one.redirections.empty();
  return is_shown && one.ends_with == "|" ? std::optional(one.here[0]) : std::nullopt;
}

void add_local_names(const ShellCommand& one, std::set<std::string>& names) {
  if (one.words.empty()) return;
  const std::string& how = one.words[0].text;
  const bool is_global = std::any_of(one.words.begin(), one.words.end(), [](const ShellWord& word) { return word.text == "-g"; });
  if ((how != "local" && how != "declare" && how != "typeset") || is_global) return;
  for (const ShellAssignment& assignment : one.assignments) names.insert(assignment.name);
  for (size_t i = 1; i < one.words.size(); ++i) names.insert(one.words[i].text);
}

}  // namespace distsetup::foreign
