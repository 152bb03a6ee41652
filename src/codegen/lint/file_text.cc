#include "codegen/lint/file_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "codegen/shell/words.h"

namespace distsetup::lint {
namespace {

void blank_keys(const Document& d, const Value& value, Findings& report) {
  for (size_t i = 0; i < value.entries.size(); ++i) {
    const auto& [key, below] = value.entries[i];
    if (ends_in_blank(key)) {
      std::string right = key;
      while (!right.empty() && right.back() == ' ') right.pop_back();
      right.erase(0, std::min(right.find_first_not_of(' '), right.size()));
      report.add("FIL004", d, key_span(d, {&below, &value, i}),
                 fmt::format("the key '{}' has a blank at its end: it is not '{}'", key, right),
                 {fmt::format("write '{}'", right), "", {}, {}});
    }
    blank_keys(d, below, report);
  }
  for (const Value& item : value.items) blank_keys(d, item, report);
}

// Within double quotes: "${1:-'x'}" is 'x' with its quotes.
void kept_quotes(const Document& d, const ShellWord& word, const std::string& name, std::optional<Severity> severity,
                 Findings& report) {
  for (const WordPart& part : word.parts) {
    const std::string_view text = d.cut(part.span);
    const size_t dollar = part.quote == ShellQuote::kDouble ? text.find("${") : std::string_view::npos;
    const size_t dash = dollar == std::string_view::npos ? dollar : text.find("-'", dollar);
    const size_t end = dash == std::string_view::npos ? dash : text.find("'}", dash + 2);
    if (end == std::string_view::npos) continue;
    const std::string_view variable = text.substr(dollar + 2, dash - dollar - 2);
    const bool is_name = std::all_of(variable.begin(), variable.end(),
                                     [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == ':'; });
    if (!is_name) continue;
    const TextSpan at{part.span.begin + dollar, part.span.begin + end + 2};
    const std::string_view value = text.substr(dash + 1, end + 1 - dash - 1);
    report.add("SH001", d, at,
               fmt::format("{} becomes {} with its quotes: within double quotes they belong to the value", name, value),
               {fmt::format("write {}", value.substr(1, value.size() - 2)), "", {}, severity});
  }
}

void kept_quotes(const Document& d, const ScriptPart& part, Findings& report) {
  const bool reads_again = d.text.find("eval ") != std::string::npos || d.text.find("bash -c \"") != std::string::npos;
  const std::optional<Severity> severity = reads_again ? std::optional<Severity>(Severity::kWarning) : std::nullopt;
  for (const ShellCommand& command : part.script.commands) {
    if (command.depth > 0) continue;
    for (const ShellAssignment& one : command.assignments) kept_quotes(d, one.value, one.name, severity, report);
  }
  // What a program is started with; a shell in front of it may read the words again.
  for (const LaunchLine& line : part.lines) {
    const ShellCommand& command = part.script.commands[line.command];
    const auto is_shell = [](const ShellWord& word) { return word.text == "bash" || word.text == "sh" || word.text == "eval"; };
    if (command.depth > 0 || reads_again || std::any_of(command.words.begin(), command.words.end(), is_shell)) continue;
    for (size_t i = 1; i < command.words.size(); ++i) kept_quotes(d, command.words[i], command.words[i - 1].text, severity, report);
  }
}

// "--lr 1e-5" at the beginning of a command. The line before it was to go on and does not.
bool is_option_word(const ShellWord& word) {
  const bool is_plain = !word.parts.empty() && word.parts[0].quote == ShellQuote::kNone && word.parts[0].text.size() > 3;
  return is_plain && word.text.size() > 3 && word.text.rfind("--", 0) == 0 &&
         std::isalpha(static_cast<unsigned char>(word.text[2])) != 0;
}

// "$EXTRA" of options, as the first word of a command.
bool holds_options(const ShellCommand& command) {
  const bool is_variable = command.words[0].text.starts_with('$') && command.words[0].text.find('(') == std::string::npos;
  if (!is_variable || command.expanded.empty()) return false;
  const std::string& first = command.expanded[0].text;
  return first.size() > 3 && first.starts_with("--") && std::isalpha(static_cast<unsigned char>(first[2])) != 0;
}

// Why the command ended before this place: of the lines above it the first that breaks the chain of backslashes.
std::string why_cut_off(const Document& d, size_t begin) {
  const TextSpan own = line_span(d, begin);
  if (own.begin == 0) return "nothing stands before it";
  const TextSpan above = line_span(d, own.begin - 1);
  std::string_view line = d.cut(above);
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  const size_t first = line.find_first_not_of(" \t");
  if (first == std::string_view::npos) return "the empty line above ends the command";
  if (line[first] == '#' || line.find(" #") != std::string_view::npos)
    return "the comment above ends the command, whatever stands behind it";
  const size_t last = line.find_last_not_of(" \t");
  if (line[last] == '\\') return "behind the backslash above is a blank, so the command ends there";
  return "the line above has no backslash at its end";
}

// Whether what the options belong to is a remark itself: the command is out of use, and its rest was forgotten.
bool is_rest_of_remark(const Document& d, size_t begin) {
  bool has_remark = false;
  for (size_t at = line_span(d, begin).begin; at > 0;) {
    const TextSpan above = line_span(d, at - 1);
    std::string_view line = d.cut(above);
    at = above.begin;
    while (!line.empty() && std::string_view(" \t\r\n").find(line.back()) != std::string_view::npos) line.remove_suffix(1);
    const size_t first = line.find_first_not_of(" \t");
    if (first != std::string_view::npos && line[first] == '#') {
      has_remark = has_remark || line.back() == '\\';
      continue;
    }
    return has_remark && (line.empty() || line.back() != '\\');
  }
  return has_remark;
}

void cut_off_options(const Document& d, const ShellScript& script, Findings& report) {
  if (!d.is_script() || !script.mistakes.empty()) return;
  const ShellCommand* first = nullptr;
  size_t num_more = 0;
  for (const ShellCommand& command : script.commands) {
    const bool is_cut_off = !command.words.empty() && command.depth == 0 && !command.is_dead &&
                            (is_option_word(command.words[0]) || holds_options(command));
    if (!is_cut_off) continue;
    num_more += first == nullptr ? 0 : 1;
    if (first == nullptr) first = &command;
  }
  if (first == nullptr) return;
  const TextSpan at = first->words[0].span;
  const bool is_variable = !is_option_word(first->words[0]);  // it may be empty where it runs
  const std::string begin =
      is_variable ? fmt::format("{} ({} …)", first->words[0].text, first->expanded[0].text) : first->words[0].text;
  report.add("SH002", d, at,
             fmt::format("'{}'{} a command here, which the shell does not find: {}", begin,
                         num_more == 0 ? " begins" : fmt::format(" and {} more begin", num_more), why_cut_off(d, at.begin)),
             {"", "", {}, is_variable || is_rest_of_remark(d, at.begin) ? std::optional<Severity>(Severity::kWarning) : std::nullopt});
}

// ENV="A=1 B=2"; $ENV torchrun …: what an expansion makes is no assignment (bash manual, Simple Command Expansion).
void assignments_of_variables(const Document& d, const ShellScript& script, Findings& report) {
  if (!d.is_script()) return;
  for (const ShellCommand& command : script.commands) {
    if (command.is_dead || command.depth > 0 || command.words.empty() || command.expanded.empty()) continue;
    const std::string &word = command.words[0].text, &made = command.expanded[0].text;
    const size_t equals = made.find('=');
    const bool is_assignment = equals != std::string::npos && equals > 0 && is_name_start(made[0]) &&
                               std::all_of(made.begin(), made.begin() + static_cast<std::ptrdiff_t>(equals), is_name_char);
    if (!word.starts_with('$') || word.starts_with("$(") || !is_assignment || made.find('$') < equals) continue;
    report.add("SH004", d, command.words[0].span,
               fmt::format("'{}' becomes '{}', which is no assignment here: the shell looks for a command of that name", word, made),
               {"write env in front of it", "", {{command.words[0].span.begin, command.words[0].span.begin, "env "}}, {}});
  }
}

// The reader of a JSON that takes the mark for a part of it; DeepSpeed's own, Hjson, steps over it.
void byte_order_mark(const LintSetup& setup, const Document& d, Findings& report) {
  if (d.form != TextForm::kJson || !d.text.starts_with("\xef\xbb\xbf")) return;
  const std::string consumer = d.is(file_kind::kDeepspeed) ? setup.consumer(d) : "hf";
  const bool is_strict = consumer == "hf" || consumer == "accelerate" || d.text.find("\"auto\"") != std::string::npos;
  report.add("FIL006", d, {0, 3},
             is_strict ? "the file begins with a byte order mark: the reader stops there"
                       : "the file begins with a byte order mark: DeepSpeed itself takes it, transformers and accelerate stop there",
             {.severity = is_strict ? std::optional<Severity>() : Severity::kWarning});
}

// A carriage return at the end of a line belongs to its last word. A whole file of them comes from an editor of Windows.
void dos_lines(const Document& d, Findings& report) {
  if (!d.is_script()) return;
  for (size_t at = 0; at < d.text.size();) {
    const size_t end = std::min(d.text.find('\n', at), d.text.size());
    const size_t first = d.text.find_first_not_of(" \t", at);
    const bool is_dos = end > at && d.text[end - 1] == '\r';
    const bool says_something = first < end && d.text[first] != '#' && d.text[first] != '\r';
    if (says_something && !is_dos) return;
    if (says_something) {
      const bool is_batch = d.is(file_kind::kSbatch);
      report.add("FIL005", d, {first, end - 1},
                 is_batch ? "the lines end as on Windows (CR LF): sbatch refuses the script"
                          : "the lines end as on Windows (CR LF): the shell takes the CR for a part of each last word",
                 {.bites = is_batch ? "parse" : ""});
      return;
    }
    at = end + 1;
  }
}

}  // namespace

bool ends_in_blank(std::string_view key) {
  return key.size() > 1 && (key.back() == ' ' || key.front() == ' ') && key.find_first_not_of(' ') != std::string_view::npos;
}

void check_file_text(const LintSetup& setup, const Document& d, Findings& report) {
  byte_order_mark(setup, d, report);
  dos_lines(d, report);
  for (const Value& root : d.roots) blank_keys(d, root, report);
  if (d.roots.empty() && d.is_structured()) blank_keys(d, d.root, report);
  for (const ScriptPart& part : d.parts) {
    kept_quotes(d, part, report);
    cut_off_options(d, part.script, report);
    assignments_of_variables(d, part.script, report);
  }
}

}  // namespace distsetup::lint
