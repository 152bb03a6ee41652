// What `eval "$CMD"` runs: the shell puts the words together and takes them apart once more.
#pragma once
#include <string_view>
#include <vector>

#include "codegen/shell/shell.h"

namespace distsetup::foreign {

// Of any other command, and of a text whose quotes do not close, the words as they are. Places are those of the words that held them.
std::vector<ShellWord> words_of_eval(std::vector<ShellWord> words);

// bash -c "$CMD" of "cd run && torchrun train.py": the shell that is handed it reads several commands, apart at && || ; and |. The
// first stays in `command`, the others come back. Texts in quotes stay whole. `text`: of a command that is one variable what that
// holds.
std::vector<ShellCommand> take_apart(ShellCommand& command, std::string_view text);

}  // namespace distsetup::foreign
