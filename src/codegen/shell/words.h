// One word of a script, after the quoting rules of POSIX shells (XCU 2.2).
#pragma once
#include <string_view>
#include <vector>

#include "codegen/shell/shell.h"

namespace distsetup::foreign {

struct WordRead {
  ShellWord word;
  std::vector<TextSpan> substitutions;  // what stands inside $( ) and ` `, in order; of $(( )) too, whose text begins with '('
  size_t end = 0;                       // behind the word
};

// A blank or an operator: no word begins or goes on there. A NUL byte too, which bash drops.
bool ends_word(char c);

// The word at rest.begin, up to rest.end at most. Where none begins (a blank, an operator) it is empty, and `end` is where it began.
WordRead read_word(std::string_view text, TextSpan rest);

}  // namespace distsetup::foreign
