// What a script's variables stand for, where that is known without running it: assignments of literals.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/shell/shell.h"

namespace distsetup::foreign {

// The words of a command with variables of known value spliced in: $ARGS, ${ARGS[@]}; places are those of the assignment.
std::vector<ShellWord> expand_words(const ShellScript& script, const std::vector<ShellWord>& words);

// The text with $NAME and ${NAME} replaced where NAME has a literal value, or one of such variables; ${NAME:-x} is x when it has none.
std::string literal(const ShellScript& script, std::string_view text);

// Names that the text expands, with where; single-quoted parts are left out.
std::vector<std::pair<std::string, size_t>> expansions(std::string_view text, TextSpan range);

}  // namespace distsetup::foreign
