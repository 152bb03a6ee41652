// What `eval "$CMD"` runs: the shell puts the words together and takes them apart once more.
#pragma once
#include <vector>

#include "codegen/shell/shell.h"

namespace distsetup::foreign {

// Of any other command, and of a text whose quotes do not close, the words as they are. Places are those of the words that held them.
std::vector<ShellWord> words_of_eval(std::vector<ShellWord> words);

}  // namespace distsetup::foreign
