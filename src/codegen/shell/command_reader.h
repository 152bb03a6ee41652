// The parts of a script that know nothing of if, for and case: words, assignments, redirections, here-documents, and the commands they
// make. Internal to the reader of scripts (shell.cc).
#pragma once
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/shell/shell.h"

namespace distsetup::foreign {

class CommandReader {
 public:
  CommandReader(std::string_view text, TextSpan range, int depth) : text_(text), at_(range.begin), end_(range.end), depth_(depth) {
    script.text = text;
  }
  virtual ~CommandReader() = default;
  CommandReader(const CommandReader&) = delete;
  CommandReader& operator=(const CommandReader&) = delete;

  ShellScript script;

 protected:
  // The commands of a $( ) or bash -c, which stand deeper by one.
  virtual ShellScript read_inside(std::string_view text, TextSpan range, int depth) = 0;

  char peek(size_t ahead = 0) const { return at_ + ahead < end_ ? text_[at_ + ahead] : '\0'; }
  bool starts(std::string_view what) const { return text_.substr(at_, std::min(what.size(), end_ - at_)) == what; }
  size_t line_end() const { return std::min(text_.find('\n', at_), end_); }
  bool is_fresh() const { return command_.words.empty() && command_.assignments.empty() && command_.redirections.empty(); }
  void complain(TextSpan at, std::string message, std::string help = "");
  void unexpected(TextSpan at);
  // <(…) or >(…): a file as far as the command knows.
  ShellWord word_from_bracket();
  void redirection();
  // X=<put the path here>
  std::string placeholder_help(size_t at) const;
  void skip_blanks();
  // The bodies of the here-documents that the line announced, in order.
  void take_here_documents();
  void take_here_document(HereDocument& here);
  // bash <<EOF, ssh HOST <<EOF: the document is a script.
  static bool feeds_shell(const ShellCommand& command);
  void assignment(size_t name_end, bool appends);
  // export, and env as long as its own options go on: what follows are assignments.
  bool is_declaring() const;
  // [[ … ]]: operators are words here.
  void test(const ShellWord& begin);
  // Behind =~, where brackets and bars are part of the word.
  ShellWord regular_expression();
  // The word at the cursor; commands that it substitutes are read where they stand.
  ShellWord word();
  void note_odd_quote(const ShellWord& word);
  void substitution(TextSpan range);
  // Commands inside, to be put before the one that they are part of.
  void nested(TextSpan range, bool in_substitution, bool is_joined = false);
  // bash -c '…', sh -lc "…": the words behind are commands.
  static const ShellWord* command_text(const ShellWord& option, const ShellWord* next);
  // sh -c 'torchrun --lr '"$LR"' train.py': one text, with what the outer shell puts in between its quotes.
  void nested_text(const ShellWord& word);
  const ShellWord* text_for_ssh() const;
  void inner_script();
  // Moves the commands of substitutions to where the script's own commands are.
  void take_inner();
  void finish(const std::string& ends_with);

  std::string_view text_;
  std::shared_ptr<std::string> joined_;  // the text with words of several parts put together, for what is read inside of them
  size_t at_, end_;
  int depth_;
  std::optional<size_t> odd_quote_;  // a quote that opens a text of several lines which a word goes on behind
  bool last_was_pipe_ = false;
  bool is_closed_ = false;  // a compound command ends here: no word may follow
  size_t last_close_ = 0;   // in script.controls
  size_t first_of_line_ = 0, num_words_ = 0;
  ShellCommand command_;
  ShellScript inner_;  // commands of substitutions in `command_`
};

}  // namespace distsetup::foreign
