// Commands (command_reader.h) and the reserved words that hold them together, as the grammar of bash has them (bash 5.2, "Compound
// Commands"). A mistake is noted once, and reading goes on.
#include "codegen/shell/shell.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "codegen/shell/command_reader.h"
#include "codegen/shell/directives.h"
#include "codegen/shell/words.h"

namespace distsetup::foreign {
namespace {

constexpr size_t kMaxOpenCommands = 200;

// A compound command that is open, and what it waits for.
enum class OpenPart { kIf, kThen, kElse, kLoop, kDo, kCase, kArm, kBrace, kParenthesis };
struct OpenCommand {
  OpenPart part;
  TextSpan begun;  // the word that opened it
};

class ShellReader : public CommandReader {
 public:
  using CommandReader::CommandReader;

  void read() {
    if (depth_ == 0 && starts("#!")) script.shebang = std::string(text_.substr(at_, line_end() - at_));
    while (at_ < end_) step();
    finish("");
    take_here_documents();
    take_inner();
    if (!open_.empty()) complain(open_.back().begun, "what opens here is never closed: the shell refuses the script");
  }

 private:
  ShellScript read_inside(std::string_view text, TextSpan range, int depth) override {
    ShellReader reader(text, range, depth);
    reader.joined_ = joined_;
    reader.read();
    return std::move(reader.script);
  }

  bool expects(OpenPart part) const { return !open_.empty() && open_.back().part == part; }

  void step() {
    const char c = peek();
    if (expects(OpenPart::kCase) && is_fresh() && c != '#' && c != '\n' && std::isspace(static_cast<unsigned char>(c)) == 0)
      return arm();
    if (c == '\\' && (peek(1) == '\n' || (peek(1) == '\r' && peek(2) == '\n'))) {
      at_ += peek(1) == '\n' ? 2 : 3;
    } else if (c == '\\' && at_ + 1 == text_.size()) {
      ++at_;  // bash drops one at the end of a script
    } else if (c == '\n') {
      ++at_;
      finish("");
      take_here_documents();
    } else if (c == '\0' || c == kWordJoint || std::isspace(static_cast<unsigned char>(c)) != 0) {  // bash drops a NUL byte too
      ++at_;
    } else if (c == '#') {
      comment();
    } else if ((c == '<' || c == '>') && peek(1) == '(') {
      command_.words.push_back(word_from_bracket());
    } else if (c == '|' || c == '&' || c == ';') {
      separator();
    } else if (c == '(' || c == ')') {
      parenthesis();
    } else if (c == '<' || c == '>' || is_numbered_redirection()) {
      redirection();
    } else {
      item();
    }
  }

  bool is_numbered_redirection() const {
    size_t ahead = 0;
    while (std::isdigit(static_cast<unsigned char>(peek(ahead))) != 0) ++ahead;
    return ahead > 0 && (peek(ahead) == '<' || peek(ahead) == '>');
  }

  void separator() {
    if (starts("&>")) return redirection();
    const size_t begin = at_;
    std::string mark(1, peek());
    for (const std::string_view longer : {";;&", ";&", ";;", "&&", "||", "|&"}) {
      if (starts(longer) && mark.size() == 1) mark = longer;
    }
    at_ += mark.size();
    const bool is_arm_end = mark.size() > 1 && mark[0] == ';';
    if (is_arm_end) {
      finish(";");
      if (!expects(OpenPart::kArm)) return unexpected({begin, at_});
      open_.back().part = OpenPart::kCase;
      control(";;");
      return;
    }
    if (is_fresh() && !is_closed_) unexpected({begin, at_});
    finish(mark == "|&" ? "|" : mark);
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
    const std::string_view line = text_.substr(at_ + mark.size(), line_end() - at_ - mark.size());
    const std::string_view option = line.substr(std::min(line.find_first_not_of(" \t"), line.size()));
    const bool begins_part = scheduler == Scheduler::kSlurm && (option.starts_with("hetjob") || option.starts_with("packjob"));
    if (begins_part && !has_command_ && script.hetjob.end == 0) script.hetjob = {at_, line_end()};
    for (Directive& one : read_directives(text_, {at_ + mark.size(), line_end()}, scheduler)) {
      one.is_late = has_command_ && scheduler != Scheduler::kLsf;  // bsub takes them from every line of the script
      one.is_of_more = scheduler == Scheduler::kSlurm && script.hetjob.end > 0;
      out.push_back(std::move(one));
    }
  }

  // ( … ), (( … )), name ().
  void parenthesis() {
    const size_t begin = at_;
    if (peek() == ')') {
      ++at_;
      finish("");
      if (!expects(OpenPart::kParenthesis)) return unexpected({begin, at_});
      open_.pop_back();
      return close(")");
    }
    if (command_.words.size() == 1 && command_.assignments.empty()) {
      size_t next = at_ + 1;
      while (next < end_ && (text_[next] == ' ' || text_[next] == '\t')) ++next;
      if (next < end_ && text_[next] == ')') {
        at_ = next + 1;
        std::vector<ShellWord> name = std::move(command_.words);
        command_ = {};
        return control("function", std::move(name));
      }
    }
    const bool is_for = command_.words.size() == 1 && command_.words[0].text == "for";
    if (starts("((") && (is_fresh() || is_for) && arithmetic()) return;
    ++at_;
    if (!is_fresh()) unexpected({begin, at_});
    finish("");
    open(OpenPart::kParenthesis, {begin, at_});
    control("(");
  }

  // (( … )) as one word; false where the brackets do not close together.
  bool arithmetic() {
    const size_t close = closing_bracket(text_, at_, end_);
    if (close >= end_ || text_[close - 1] != ')' || closing_bracket(text_, at_ + 1, end_) != close - 1) return false;
    has_command_ = true;
    ShellWord inside;
    inside.span = {at_ + 2, close - 1};
    inside.text = std::string(text_.substr(at_ + 2, close - at_ - 3));
    inside.parts = {{ShellQuote::kDouble, inside.text, inside.span}};
    if (is_fresh()) command_.words.push_back(bare_word("((", {at_, at_ + 2}));
    command_.words.push_back(std::move(inside));
    at_ = close + 1;
    is_closed_ = true;
    if (command_.words[0].text == "for") {  // "do" may follow at once
      skip_blanks();
      if (peek() != ';') finish("");
    }
    return true;
  }

  // A word, an assignment in front of one, or a word that begins, divides or ends a compound command.
  void item() {
    has_command_ = true;
    size_t name_end = at_;
    if (command_.words.empty() || is_declaring()) {
      while (name_end < end_ && is_name_char(text_[name_end])) ++name_end;
      const bool is_name = name_end > at_ && is_name_start(peek());
      if (is_name && name_end < end_ && text_[name_end] == '[') {
        const size_t close = text_.find(']', name_end);
        if (close < end_ && text_.find('\n', name_end) > close && close + 1 < end_ &&
            (text_[close + 1] == '=' || text_[close + 1] == '+'))
          name_end = close + 1;
      }
      const bool appends = name_end + 1 < end_ && text_[name_end] == '+' && text_[name_end + 1] == '=';
      if (is_name && name_end < end_ && (text_[name_end] == '=' || appends)) return assignment(name_end, appends);
    }
    ShellWord one = word();
    const bool is_bare = one.parts.size() == 1 && one.parts[0].quote == ShellQuote::kNone;
    const bool has_name_only = command_.words.size() == 2 && (command_.words[0].text == "for" || command_.words[0].text == "select");
    if (has_name_only && is_bare && one.text == "do") finish("");  // for NAME do: through "$@"
    if (is_fresh() && is_bare && reserved(one)) return;
    if (is_fresh() && is_closed_) unexpected(one.span);
    command_.words.push_back(std::move(one));
  }

  void control(std::string word, std::vector<ShellWord> words = {}) {
    script.controls.push_back({std::move(word), script.commands.size(), std::move(words), ""});
    is_closed_ = false;
  }

  void open(OpenPart part, TextSpan at) {
    open_.push_back({part, at});
    if (open_.size() > kMaxOpenCommands) {
      complain(at, fmt::format("found commands inside one another deeper than {} levels, expected less", kMaxOpenCommands));
      at_ = end_;
    }
  }

  // The end of a compound command: only a separator or a redirection may follow.
  void close(const std::string& word) {
    control(word);
    is_closed_ = true;
    last_close_ = script.controls.size() - 1;
  }

  // From one part of a compound command to its next; false: none is open that waits for it.
  bool divides(OpenPart from, OpenPart to, const ShellWord& word) {
    if (!expects(from)) return false;
    open_.back().part = to;
    control(word.text);
    return true;
  }

  bool ends(OpenPart part, const ShellWord& word) {
    if (!expects(part)) return false;
    open_.pop_back();
    close(word.text);
    return true;
  }

  bool reserved(const ShellWord& one) {
    const std::string& w = one.text;
    if (is_closed_ && (w == "if" || w == "while" || w == "for" || w == "{")) unexpected(one.span);
    const bool is_known = w == "then"   ? divides(OpenPart::kIf, OpenPart::kThen, one)
                          : w == "elif" ? divides(OpenPart::kThen, OpenPart::kIf, one)
                          : w == "else" ? divides(OpenPart::kThen, OpenPart::kElse, one)
                          : w == "fi"   ? ends(OpenPart::kThen, one) || ends(OpenPart::kElse, one)
                          : w == "do"   ? divides(OpenPart::kLoop, OpenPart::kDo, one)
                          : w == "done" ? ends(OpenPart::kDo, one)
                          : w == "esac" ? ends(OpenPart::kArm, one) || ends(OpenPart::kCase, one)
                          : w == "}"    ? ends(OpenPart::kBrace, one)
                          : w == "]]"   ? false
                                        : begins(one);
    const bool divides_or_ends =
        w == "then" || w == "elif" || w == "else" || w == "fi" || w == "do" || w == "done" || w == "esac" || w == "}";
    if (!is_known && divides_or_ends) unexpected(one.span);
    if (w == "if" || w == "while" || w == "until" || w == "elif" || w == "!") command_.in_control = true;
    return is_known || divides_or_ends;
  }

  // if, while, until, {, !, function, [[, for, case; false: an ordinary word.
  bool begins(const ShellWord& one) {
    const std::string& w = one.text;
    if (w == "if") {
      open(OpenPart::kIf, one.span);
    } else if (w == "while" || w == "until") {
      open(OpenPart::kLoop, one.span);
    } else if (w == "{") {
      open(OpenPart::kBrace, one.span);
    } else if (w == "function") {
      skip_blanks();
      std::vector<ShellWord> name = {word()};
      skip_blanks();
      if (peek() == '(' && peek(1) == ')') at_ += 2;
      control(w, std::move(name));
      return true;
    } else if (w == "[[") {
      test(one);
      return true;
    } else if (w == "for" || w == "select") {
      open(OpenPart::kLoop, one.span);
      control("for");
      command_.words.push_back(one);
      return true;
    } else if (w == "case") {
      begin_case(one);
      return true;
    } else if (w == "time") {
      return true;
    } else if (w != "!") {
      return false;
    }
    control(w);
    return true;
  }

  // case WORD in
  void begin_case(const ShellWord& one) {
    command_.words.push_back(one);
    for (int i = 0; i < 2; ++i) {
      while (at_ < end_ && (peek() == ' ' || peek() == '\t' || peek() == '\r' || (i == 1 && peek() == '\n'))) ++at_;
      command_.words.push_back(word());
    }
    const bool is_case = command_.words.back().text == "in";
    if (!is_case) unexpected(command_.words.back().span);
    control("case");
    finish("");
    open(OpenPart::kCase, one.span);
  }

  // pattern | pattern )
  void arm() {
    if (peek() == '(') ++at_;
    std::vector<ShellWord> patterns;
    const size_t begin = at_;
    while (at_ < end_ && peek() != ')' && peek() != '\n') {
      const size_t before = at_;
      if (peek() == '|' || ends_word(peek())) {
        ++at_;
        continue;
      }
      patterns.push_back(word());
      if (at_ == before) ++at_;
      if (patterns.size() == 1 && patterns[0].text == "esac" && patterns[0].parts.size() == 1) {
        ends(OpenPart::kCase, patterns[0]);
        return;
      }
    }
    if (peek() != ')') {
      complain({begin, at_}, "found no ')' behind a pattern of 'case': the shell refuses the script");
      at_ = std::min(at_ + 1, end_);
      return;
    }
    ++at_;
    open_.back().part = OpenPart::kArm;
    control("arm", std::move(patterns));
  }

  bool has_command_ = false;
  std::vector<OpenCommand> open_;
};

}  // namespace

std::string_view option_behind(std::string_view variable) {
  if (variable == "SLURM_NNODES" || variable == "SLURM_JOB_NUM_NODES") return "nodes";
  return variable == "SLURM_GPUS_PER_NODE" ? "gpus-per-node" : "";
}

const Directive* ShellScript::directive(std::string_view name) const {
  const Directive* found = nullptr;
  for (const Directive& one : directives) {
    if (!one.is_late && !one.is_of_more && one.name == name) found = &one;
  }
  return found;
}

bool ShellScript::has_outer(std::string_view name) const {
  return std::any_of(outer.begin(), outer.end(), [name](const OuterVariable& one) { return one.name == name && one.is_known; });
}

bool ShellScript::has_arguments() const {
  return std::any_of(outer.begin(), outer.end(), [](const OuterVariable& one) { return one.name == "#"; });
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
