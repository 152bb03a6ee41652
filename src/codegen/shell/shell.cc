// One pass over the text: words (words.h) become commands. Reserved words and brackets only separate commands. A here-document belongs
// to the line it is announced on. Contents of $( ) are read where they stand, so their commands come before the one they are part of.
#include "codegen/shell/shell.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "codegen/shell/directives.h"
#include "codegen/shell/words.h"

namespace distsetup::foreign {
namespace {

constexpr int kMaxShellDepth = 8;

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

class ShellReader {
 public:
  ShellReader(std::string_view text, TextSpan range, int depth) : text_(text), at_(range.begin), end_(range.end), depth_(depth) {
    script.text = text;
  }

  ShellScript script;

  void read() {
    if (depth_ == 0 && starts("#!")) script.shebang = std::string(text_.substr(at_, line_end() - at_));
    while (at_ < end_) step();
    finish("");
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < end_ ? text_[at_ + ahead] : '\0'; }
  bool starts(std::string_view what) const { return text_.substr(at_, std::min(what.size(), end_ - at_)) == what; }
  size_t line_end() const { return std::min(text_.find('\n', at_), end_); }

  void step() {
    const char c = peek();
    if (c == '\\' && (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n'))) {
      at_ += peek(1) == '\n' ? 2 : 3;
    } else if (c == '\n') {
      ++at_;
      finish("");
      take_here_documents();
    } else if (c == '\0' || std::isspace(static_cast<unsigned char>(c)) != 0) {  // bash drops a NUL byte too
      ++at_;
    } else if (c == '#') {
      comment();
    } else if (c == '|' || c == '&' || c == ';') {
      separator();
    } else if (c == '(' || c == ')') {
      ++at_;
      finish("");
    } else if (c == '<' || c == '>' || (std::isdigit(static_cast<unsigned char>(c)) != 0 && (peek(1) == '<' || peek(1) == '>'))) {
      redirection();
    } else {
      item();
    }
  }

  void separator() {
    if (starts("&>")) return redirection();
    for (const std::string_view two : {"&&", "||", "|&", ";;"}) {
      if (!starts(two)) continue;
      at_ += 2;
      return finish(two == "|&" ? "|" : std::string(two == ";;" ? ";" : two));
    }
    const std::string one(1, peek());
    ++at_;
    finish(one);
  }

  void comment() {
    if (at_ == 0 || text_[at_ - 1] == '\n') {
      directive("#SBATCH", Scheduler::kSlurm, script.directives);
      directive("#PBS", Scheduler::kPbs, script.pbs);
      directive("#BSUB", Scheduler::kLsf, script.lsf);
    }
    at_ = line_end();
  }

  void directive(std::string_view mark, Scheduler scheduler, std::vector<Directive>& out) {
    const char after = at_ + mark.size() < end_ ? text_[at_ + mark.size()] : ' ';
    if (!starts(mark) || (scheduler != Scheduler::kSlurm && after != ' ' && after != '\t')) return;
    for (Directive& one : read_directives(text_, {at_ + mark.size(), line_end()}, scheduler)) {
      one.is_late = has_command_;
      out.push_back(std::move(one));
    }
  }

  void redirection() {
    while (std::isdigit(static_cast<unsigned char>(peek())) != 0 || peek() == '&') ++at_;
    if (starts("<<<")) {
      at_ += 3;
      skip_blanks();
      word();
      return;
    }
    if (starts("<<")) {
      at_ += peek(2) == '-' ? 3 : 2;
      skip_blanks();
      const ShellWord delimiter = word();
      const bool is_quoted = std::any_of(delimiter.parts.begin(), delimiter.parts.end(),
                                         [](const WordPart& part) { return part.quote != ShellQuote::kNone; });
      const bool is_escaped =
          text_.substr(delimiter.span.begin, delimiter.span.end - delimiter.span.begin).find('\\') != std::string_view::npos;
      waiting_.push_back({delimiter.text, !is_quoted && !is_escaped});
      return;
    }
    ++at_;
    if (peek() == '>' || peek() == '&' || peek() == '|') ++at_;
    skip_blanks();
    if ((peek() == '(') || std::isspace(static_cast<unsigned char>(peek())) != 0) return;  // >( … )
    word();
  }

  void skip_blanks() {
    while (peek() == ' ' || peek() == '\t') ++at_;
  }

  void take_here_documents() {
    for (const auto& [delimiter, expands] : waiting_) {
      const size_t begin = at_;
      size_t body_end = end_;
      while (at_ < end_) {
        const size_t line = at_;
        const size_t stop = line_end();
        at_ = std::min(stop + 1, end_);
        std::string_view trimmed = text_.substr(line, stop - line);
        while (!trimmed.empty() && (trimmed.front() == ' ' || trimmed.front() == '\t')) trimmed.remove_prefix(1);
        while (!trimmed.empty() && (trimmed.back() == '\r' || trimmed.back() == ' ')) trimmed.remove_suffix(1);
        if (trimmed == delimiter) {
          body_end = line;
          break;
        }
      }
      if (!script.commands.empty()) script.commands.back().here.push_back({{begin, body_end}, expands});
    }
    waiting_.clear();
  }

  // A word, or an assignment in front of one.
  void item() {
    has_command_ = true;
    size_t name_end = at_;
    if (command_.words.empty() || is_declaration(command_.words[0].text)) {
      while (name_end < end_ && is_name_char(text_[name_end])) ++name_end;
      const bool is_name = name_end > at_ && is_name_start(peek());
      const bool appends = name_end + 1 < end_ && text_[name_end] == '+' && text_[name_end + 1] == '=';
      if (is_name && name_end < end_ && (text_[name_end] == '=' || appends)) return assignment(name_end, appends);
    }
    ShellWord one = word();
    static const std::set<std::string, std::less<>> kReserved = {"if",    "then", "else",     "elif", "fi",   "for", "while",
                                                                 "until", "do",   "done",     "case", "esac", "{",   "}",
                                                                 "!",     "in",   "function", "[[",   "]]"};
    const bool is_bare = one.parts.size() == 1 && one.parts[0].quote == ShellQuote::kNone;
    if (command_.words.empty() && command_.assignments.empty() && is_bare && kReserved.count(one.text) > 0) {
      static const std::set<std::string, std::less<>> kBranches = {"if", "then", "elif", "else", "fi", "!"};
      if (kBranches.count(one.text) > 0) script.keywords.push_back({one.text, script.commands.size()});
      if (one.text == "if" || one.text == "while" || one.text == "until" || one.text == "elif" || one.text == "!")
        command_.in_control = true;
      if (one.text == "for" || one.text == "case" || one.text == "function") command_.words.push_back(std::move(one));
      return;
    }
    command_.words.push_back(std::move(one));
  }

  static bool is_declaration(std::string_view word) {
    return word == "export" || word == "declare" || word == "local" || word == "readonly" || word == "typeset" || word == "env";
  }

  void assignment(size_t name_end, bool appends) {
    ShellAssignment out;
    out.span.begin = at_;
    out.name = std::string(text_.substr(at_, name_end - at_));
    out.appends = appends;
    at_ = name_end + (appends ? 2 : 1);
    if (peek() == '(') {
      out.is_array = true;
      ++at_;
      while (at_ < end_ && peek() != ')') {
        if (peek() == '\\' && peek(1) == '\n') {
          at_ += 2;
        } else if (peek() == '#') {
          at_ = line_end();
        } else if (ends_word(peek())) {  // no word begins here: `a=(b; c)` is a mistake of the file, to be read over
          ++at_;
        } else {
          out.array.push_back(word());
        }
      }
      if (at_ < end_) ++at_;
    } else {
      out.value = word();
    }
    out.span.end = at_;
    command_.assignments.push_back(std::move(out));
  }

  // The word at the cursor; commands that it substitutes are read where they stand.
  ShellWord word() {
    WordRead read = read_word(text_, {at_, end_});
    at_ = read.end;
    for (const TextSpan& range : read.substitutions) substitution(range);
    return std::move(read.word);
  }

  void substitution(TextSpan range) {
    if (depth_ >= kMaxShellDepth || range.begin >= range.end || text_[range.begin] == '(') return;  // $(( … )) is arithmetic
    nested(range, true);
  }

  void nested(TextSpan range, bool in_substitution) {
    ShellReader reader(text_, range, depth_ + 1);
    reader.read();
    for (ShellCommand& command : reader.script.commands) {
      command.in_substitution = command.in_substitution || in_substitution;
      inner_.push_back(std::move(command));
    }
  }

  // bash -c '…', sh -lc "…": the words behind are commands.
  void inner_script() {
    for (size_t i = 0; i + 2 < command_.words.size(); ++i) {
      const std::string& shell = command_.words[i].text;
      const std::string base = shell.substr(shell.rfind('/') + 1);
      if (base != "bash" && base != "sh" && base != "zsh") continue;
      for (size_t k = i + 1; k + 1 < command_.words.size(); ++k) {
        const std::string& option = command_.words[k].text;
        if (option.empty() || option[0] != '-') break;
        if (option[1] == '-' || option.back() != 'c') continue;
        if (depth_ >= kMaxShellDepth) return;
        for (const WordPart& part : std::vector<WordPart>(command_.words[k + 1].parts)) nested(part.span, false);
        return;
      }
    }
  }

  void finish(const std::string& ends_with) {
    const bool is_empty = command_.words.empty() && command_.assignments.empty();
    if (!is_empty) {
      inner_script();
      command_.ends_with = ends_with;
      command_.depth = depth_;
      command_.reads_pipe = last_was_pipe_;
      for (ShellCommand& one : inner_) script.commands.push_back(std::move(one));
      script.commands.push_back(std::move(command_));
    } else if (!script.commands.empty() && !ends_with.empty() && script.commands.back().ends_with.empty()) {
      script.commands.back().ends_with = ends_with;  // ") | tee"
    }
    inner_.clear();
    if (!is_empty || !ends_with.empty()) last_was_pipe_ = ends_with == "|";
    command_ = {};
  }

  std::string_view text_;
  size_t at_, end_;
  int depth_;
  bool has_command_ = false, last_was_pipe_ = false;
  ShellCommand command_;
  std::vector<ShellCommand> inner_;
  std::vector<std::pair<std::string, bool>> waiting_;
};

}  // namespace

const Directive* ShellScript::directive(std::string_view name) const {
  const Directive* found = nullptr;
  for (const Directive& one : directives) {
    if (!one.is_late && one.name == name) found = &one;
  }
  return found;
}

const ShellAssignment* ShellScript::assignment(std::string_view name) const {
  for (const ShellCommand& command : commands) {
    for (const ShellAssignment& one : command.assignments) {
      if (one.name == name && !one.appends) return &one;
    }
  }
  return nullptr;
}

ShellScript parse_shell(std::string_view text, TextSpan range) {
  ShellReader reader(text, {range.begin, std::min(range.end, text.size())}, 0);
  reader.read();
  return std::move(reader.script);
}

}  // namespace distsetup::foreign
