// One pass over the text: words (words.h) become commands. A here-document belongs to the command it is announced with. Contents of
// $( ) are read where they stand, so their commands come before the one they are part of.
#include "codegen/shell/command_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "codegen/shell/words.h"

namespace distsetup::foreign {
namespace {

constexpr int kMaxShellDepth = 8;
constexpr size_t kMaxWords = 200'000;

}  // namespace

void CommandReader::complain(TextSpan at, std::string message, std::string help) {
  if (script.mistakes.empty()) script.mistakes.push_back({at, std::move(message), std::move(help)});
}

void CommandReader::unexpected(TextSpan at) {
  complain(at, fmt::format("found '{}' where the shell expects no such word: it refuses the script",
                           text_.substr(at.begin, at.end - at.begin)));
}

ShellWord CommandReader::word_from_bracket() {
  const size_t begin = at_++;
  const size_t close = closing_bracket(text_, at_, end_);
  if (close == end_) complain({begin, begin + 2}, "the bracket that opens here is never closed: the shell refuses the script");
  substitution({at_ + 1, close});
  at_ = std::min(close + 1, end_);
  return bare_word(std::string(text_.substr(begin, at_ - begin)), {begin, at_});
}

void CommandReader::redirection() {
  const size_t begin = at_;
  while (std::isdigit(static_cast<unsigned char>(peek())) != 0) ++at_;
  ShellRedirection out;
  for (const std::string_view how : {"&>>", "<<<", "<<-", "&>", ">>", "<<", ">&", "<&", ">|", "<>", ">", "<"}) {
    if (out.how.empty() && starts(how)) out.how = how;
  }
  at_ += out.how.size();
  skip_blanks();
  const bool is_process = (peek() == '<' || peek() == '>') && peek(1) == '(';
  if (!is_process && (at_ >= end_ || peek() == '\n' || (ends_word(peek()) && peek() != '\0' && peek() != '\r'))) {
    const bool is_mark = peek() == '\n' || at_ >= end_;
    return complain({begin, at_},
                    is_mark
                        ? fmt::format("'{}' ends the line, and the shell expects a file behind it: it refuses the script", out.how)
                        : fmt::format("'{}' stands before '{}', and the shell expects a file: it refuses the script", out.how, peek()),
                    placeholder_help(begin));
  }
  out.target = is_process ? word_from_bracket() : word();
  if (out.how == "<<" || out.how == "<<-") {
    const bool is_quoted = std::any_of(out.target.parts.begin(), out.target.parts.end(),
                                       [](const WordPart& part) { return part.quote != ShellQuote::kNone; });
    const TextSpan span = out.target.span;
    const bool is_escaped = text_.substr(span.begin, span.end - span.begin).find('\\') != std::string_view::npos;
    command_.here.push_back({{0, 0}, !is_quoted && !is_escaped, out.target.text});
    return;
  }
  command_.redirections.push_back(std::move(out));
}

std::string CommandReader::placeholder_help(size_t at) const {
  const size_t line = at == 0 ? 0 : text_.rfind('\n', at - 1) + 1;
  const bool is_filled_in_later = text_.substr(line, at - line).find('<') != std::string_view::npos;
  return is_filled_in_later ? "put a value in place of <…>, or quotes around it" : "";
}

void CommandReader::skip_blanks() {
  while (peek() == ' ' || peek() == '\t') ++at_;
}

void CommandReader::take_here_documents() {
  for (size_t i = first_of_line_; i < script.commands.size(); ++i) {
    if (script.commands[i].depth != depth_ || script.commands[i].in_substitution) continue;
    for (HereDocument& here : script.commands[i].here) {
      if (here.body.end != 0) continue;
      take_here_document(here);
      if (feeds_shell(script.commands[i]) && depth_ < kMaxShellDepth) nested(here.body, false);
    }
  }
  first_of_line_ = script.commands.size();
}

void CommandReader::take_here_document(HereDocument& here) {
  here.body = {at_, end_};
  while (at_ < end_) {
    const size_t line = at_;
    const size_t stop = line_end();
    at_ = std::min(stop + 1, end_);
    std::string_view trimmed = text_.substr(line, stop - line);
    while (!trimmed.empty() && (trimmed.front() == ' ' || trimmed.front() == '\t')) trimmed.remove_prefix(1);
    while (!trimmed.empty() && (trimmed.back() == '\r' || trimmed.back() == ' ')) trimmed.remove_suffix(1);
    if (trimmed == here.delimiter) {
      here.body.end = line;
      return;
    }
  }
}

bool CommandReader::feeds_shell(const ShellCommand& command) {
  if (command.words.empty()) return false;
  const std::string& last = command.words.back().text;
  const std::string base = last.substr(last.rfind('/') + 1);
  return base == "bash" || base == "sh" || base == "zsh" || base == "-s" || command.words[0].text == "ssh";
}

void CommandReader::assignment(size_t name_end, bool appends) {
  ShellAssignment out;
  out.span.begin = at_;
  out.name = std::string(text_.substr(at_, name_end - at_));
  out.appends = appends;
  at_ = name_end + (appends ? 2 : 1);
  if (peek() == '(') {
    out.is_array = true;
    const size_t open_bracket = at_++;
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
    if (at_ >= end_)
      complain({open_bracket, open_bracket + 1}, "the bracket that opens here is never closed: the shell refuses the script");
    if (at_ < end_) ++at_;
  } else {
    out.value = word();
    const bool is_placeholder = out.value.parts.empty() && peek() == '<' && peek(1) != '<' && peek(1) != '(';
    const size_t close = is_placeholder ? std::min(text_.find('>', at_), end_) : end_;
    if (close < line_end()) {
      complain(
          {at_, close + 1},
          fmt::format("'{}' is no value: the shell takes < and > for files to read and to write", text_.substr(at_, close + 1 - at_)),
          "put the value in its place");
      at_ = close + 1;
      out.value = word();  // "<path>/vocab.json": what follows belongs to it
      out.value.text.clear();
      out.value.parts.clear();
    }
  }
  out.span.end = at_;
  command_.assignments.push_back(std::move(out));
}

bool CommandReader::is_declaring() const {
  const std::string& word = command_.words[0].text;
  if (word == "env")
    return std::all_of(command_.words.begin() + 1, command_.words.end(),
                       [](const ShellWord& one) { return one.text.rfind('-', 0) == 0; });
  return is_declaration(word);
}

ShellWord CommandReader::word() {
  WordRead read = read_word(text_, {at_, end_});
  at_ = read.end;
  if (++num_words_ > kMaxWords) {
    complain(read.word.span, fmt::format("found more than {} words, expected fewer: the rest is not read", kMaxWords));
    at_ = end_;
  }
  note_odd_quote(read.word);
  if (read.unclosed) {
    const bool is_quote = std::string_view("'\"`").find(text_[*read.unclosed]) != std::string_view::npos;
    const size_t at = is_quote ? odd_quote_.value_or(*read.unclosed) : *read.unclosed;
    complain({at, at + 1}, at != *read.unclosed ? "a quote that opens here or later is never closed: the shell refuses the script"
                                                : fmt::format("the {} that opens here is never closed: the shell refuses the script",
                                                              is_quote ? "quote" : "bracket"));
  }
  for (const TextSpan& range : read.substitutions) substitution(range);
  return std::move(read.word);
}

// A closing quote that is missing shows where the next quote begins a text: that one ends it, and a word follows.
void CommandReader::note_odd_quote(const ShellWord& word) {
  for (size_t i = 0; i + 1 < word.parts.size() && !odd_quote_; ++i) {
    const WordPart &part = word.parts[i], &next = word.parts[i + 1];
    const bool has_lines = part.quote == ShellQuote::kDouble && part.text.find('\n') != std::string::npos;
    if (has_lines && next.quote == ShellQuote::kNone && next.span.begin == part.span.end + 1) odd_quote_ = part.span.begin - 1;
  }
}

void CommandReader::substitution(TextSpan range) {
  if (depth_ >= kMaxShellDepth || range.begin >= range.end || text_[range.begin] == '(') return;  // $(( … )) is arithmetic
  nested(range, true);
}

void CommandReader::nested(TextSpan range, bool in_substitution, bool is_joined) {
  ShellScript inside = read_inside(is_joined ? *joined_ : text_, range, depth_ + 1);
  const size_t base = inner_.commands.size();
  inner_.controls.push_back({"open", base, {}, ""});
  for (ControlWord& one : inside.controls) {
    one.command += base;
    inner_.controls.push_back(std::move(one));
  }
  for (ShellCommand& command : inside.commands) {
    command.in_substitution = command.in_substitution || in_substitution;
    inner_.commands.push_back(std::move(command));
  }
  inner_.controls.push_back({"close", inner_.commands.size(), {}, ""});
}

// bcprun -c 'python train.py', sbatch --wrap="srun python train.py": the text of an option that begins as a command line of a launcher
// does.
const ShellWord* CommandReader::command_text(const ShellWord& option, const ShellWord* next) {
  const std::string_view name = std::string_view(option.text).substr(0, option.text.find('='));
  if (name != "-c" && name != "--command" && name != "--commandline" && name != "--wrap") return nullptr;
  const bool is_behind = name.size() == option.text.size();
  const ShellWord* holder = is_behind ? next : &option;
  if (holder == nullptr || holder->parts.empty()) return nullptr;
  const WordPart& begin = is_behind ? holder->parts.front() : holder->parts.back();
  if (begin.quote == ShellQuote::kNone) return nullptr;
  const std::string_view text = begin.text;
  const std::string_view inside = text.substr(std::min(text.find_first_not_of(" \t\n"), text.size()));
  for (const std::string_view launcher : {"python ", "python3 ", "torchrun ", "deepspeed ", "accelerate launch ", "srun ", "bash "}) {
    if (inside.rfind(launcher, 0) == 0) return holder;
  }
  return nullptr;
}

void CommandReader::nested_text(const ShellWord& word) {
  const bool is_whole =
      word.parts.size() == 1 &&
      (word.parts[0].quote == ShellQuote::kSingle ||
       text_.substr(word.parts[0].span.begin, word.parts[0].span.end - word.parts[0].span.begin).find('\\') == std::string_view::npos);
  if (is_whole) return nested(word.parts[0].span, false);
  if (!joined_) joined_ = std::make_shared<std::string>(text_);
  std::string& text = *joined_;
  for (size_t i = 0; i < word.parts.size(); ++i) {
    const TextSpan span = word.parts[i].span;
    const bool is_open = word.parts[i].quote == ShellQuote::kNone;
    if (i > 0)
      std::fill(text.begin() + static_cast<std::ptrdiff_t>(word.parts[i - 1].span.end),
                text.begin() + static_cast<std::ptrdiff_t>(span.begin), kWordJoint);
    for (size_t at = span.begin; at + 1 < span.end && word.parts[i].quote != ShellQuote::kSingle; ++at) {
      if (text[at] != '\\') continue;
      const char escaped = text[at + 1];
      if (is_open || escaped == '"' || escaped == '\\') text[at] = kWordJoint;
      ++at;
      if (is_open && escaped == '\n') text[at] = kWordJoint;
    }
  }
  nested({word.parts.front().span.begin, word.parts.back().span.end}, false, true);
}

// ssh worker 'cd run && torchrun train.py': what the other machine's shell runs.
const ShellWord* CommandReader::text_for_ssh() const {
  if (command_.words.size() < 3) return nullptr;
  const std::string& name = command_.words[0].text;
  const ShellWord& last = command_.words.back();
  const bool is_text = !last.parts.empty() && last.parts[0].quote != ShellQuote::kNone && last.text.find(' ') != std::string::npos;
  const std::string base = name.substr(name.rfind('/') + 1);
  return is_text && (base == "ssh" || base == "pdsh") ? &last : nullptr;
}

void CommandReader::inner_script() {
  if (depth_ >= kMaxShellDepth) return;
  if (const ShellWord* text = text_for_ssh()) return nested_text(*text);
  for (size_t i = 1; i < command_.words.size(); ++i) {
    const ShellWord* next = i + 1 < command_.words.size() ? &command_.words[i + 1] : nullptr;
    const ShellWord* text = command_text(command_.words[i], next);
    if (text == nullptr) continue;
    return text == next ? nested_text(*text) : nested(text->parts.back().span, false);
  }
  for (size_t i = 0; i + 2 < command_.words.size(); ++i) {
    const std::string& shell = command_.words[i].text;
    const std::string base = shell.substr(shell.rfind('/') + 1);
    if (base != "bash" && base != "sh" && base != "zsh") continue;
    for (size_t k = i + 1; k + 1 < command_.words.size(); ++k) {
      const std::string& option = command_.words[k].text;
      if (option.empty() || option[0] != '-') break;
      if (option[1] == '-' || option.back() != 'c') continue;
      if (!command_.words[k + 1].parts.empty()) nested_text(command_.words[k + 1]);
      return;
    }
  }
}

void CommandReader::take_inner() {
  // The words in front of this command's own (if, for) stay behind what is inside of it.
  for (ControlWord& one : inner_.controls) {
    one.command += script.commands.size();
    script.controls.push_back(std::move(one));
  }
  for (ShellCommand& one : inner_.commands) script.commands.push_back(std::move(one));
  inner_ = {};
}

void CommandReader::finish(const std::string& ends_with) {
  const bool is_empty = command_.words.empty() && command_.assignments.empty() && command_.here.empty();
  if (!is_empty) {
    inner_script();
    command_.ends_with = ends_with;
    command_.depth = depth_;
    command_.reads_pipe = last_was_pipe_;
    const bool has_header = !script.controls.empty() &&
                            (script.controls.back().word == "for" || script.controls.back().word == "case") &&
                            !command_.words.empty() && command_.words[0].text == script.controls.back().word &&
                            script.controls.back().command == script.commands.size();
    if (has_header) script.controls.back().command += inner_.commands.size();
    ControlWord header;
    if (has_header) {
      header = std::move(script.controls.back());
      script.controls.pop_back();
    }
    take_inner();
    if (has_header) script.controls.push_back(std::move(header));
    script.commands.push_back(std::move(command_));
  } else {
    take_inner();
    if (is_closed_) script.controls[last_close_].ends_with = ends_with;
    if (!script.commands.empty() && !ends_with.empty() && script.commands.back().ends_with.empty())
      script.commands.back().ends_with = ends_with;  // ") | tee"
  }
  if (!is_empty || !ends_with.empty()) last_was_pipe_ = ends_with == "|";
  command_ = {};
  is_closed_ = false;
}

void CommandReader::test(const ShellWord& begin) {
  command_.words.push_back(begin);
  bool is_pattern = false;
  while (at_ < end_) {
    const char c = peek();
    if (c == '\\' && peek(1) == '\n') {
      at_ += 2;
    } else if (c == '\0' || std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++at_;
    } else if (is_pattern) {
      command_.words.push_back(regular_expression());
      is_pattern = false;
    } else if (ends_word(c)) {
      const size_t length = starts("&&") || starts("||") ? 2 : 1;
      command_.words.push_back(bare_word(std::string(text_.substr(at_, length)), {at_, at_ + length}));
      at_ += length;
    } else {
      command_.words.push_back(word());
      const ShellWord& last = command_.words.back();
      is_pattern = last.text == "=~";
      if (last.text != "]]" || last.parts[0].quote != ShellQuote::kNone) continue;
      is_closed_ = true;
      return;
    }
  }
  complain(begin.span, "'[[' is never closed with ']]': the shell refuses the script");
}

ShellWord CommandReader::regular_expression() {
  ShellWord out;
  out.span.begin = at_;
  int level = 0;
  while (at_ < end_ && (level > 0 || std::isspace(static_cast<unsigned char>(peek())) == 0)) {
    level += peek() == '(' ? 1 : peek() == ')' ? -1 : 0;
    if (peek() == '\n') break;
    if (peek() == '\'' || peek() == '"' || peek() == '$') {
      const ShellWord inside = word();
      out.text += inside.text;
      if (inside.span.end > inside.span.begin) continue;
    }
    out.text += peek();
    ++at_;
  }
  out.span.end = at_;
  out.parts = {{ShellQuote::kNone, out.text, out.span}};
  return out;
}

}  // namespace distsetup::foreign
