// One word of a script, after the quoting rules of POSIX shells (XCU 2.2).
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/shell/shell.h"

namespace distsetup::foreign {

struct WordRead {
  ShellWord word;
  std::vector<TextSpan> substitutions;  // what stands inside $( ) and ` `, in order; of $(( )) too, whose text begins with '('
  size_t end = 0;                       // behind the word
  std::optional<size_t> unclosed;       // where a quote or bracket opens that never closes
};

// A character of a name: NODES, a1.
bool is_name_start(char c);
bool is_name_char(char c);

bool is_shell_blank(char c);

// Stands where a quote was that is none for the text it is a part of: nothing.
inline constexpr char kWordJoint = '\x01';

// A word that was not in quotes.
ShellWord bare_word(std::string text, TextSpan span);

// export, declare, local, readonly, typeset: words of the form NAME=… behind them are assignments.
bool is_declaration(std::string_view word);

// A blank or an operator: no word begins or goes on there. A NUL byte too, which bash drops.
bool ends_word(char c);

// Where the bracket at `open` closes, `(` or `{`, with quotes, comments and here-documents inside respected; `end` where it does not.
size_t closing_bracket(std::string_view text, size_t open, size_t end);

// The word at rest.begin, up to rest.end at most. Where none begins (a blank, an operator) it is empty, and `end` is where it began.
WordRead read_word(std::string_view text, TextSpan rest);

// The text as a running command sees it: "\$" is "$".
std::string without_escapes(std::string_view text);

// Where "<path to data>" ends, a text that somebody is to replace; `at` where there is none. "<in >out" is no such text.
size_t end_of_placeholder(std::string_view text, size_t at, size_t end);

// The one quoted text that a word is: empty quotes around it (CMD="""torchrun ...""") put nothing into it.
const WordPart* only_quoted(const ShellWord& word);

}  // namespace distsetup::foreign
