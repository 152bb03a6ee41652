// Names of variables in a text, and values taken apart into words. Internal to the expander.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/shell/variables.h"

namespace distsetup::foreign {

// Whether something in it is to be put in: $NAME, $( ), `…`.
bool has_reference(std::string_view text);

// "$@", ${@:2}, ${NAME[@]}: a word that is any number of words.
bool is_any_number(std::string_view word);

size_t name_end(std::string_view text, size_t begin);

// With blanks between them.
std::string joined(const std::vector<ShellWord>& words);
std::vector<ShellWord> words_of_text(std::string_view text, TextSpan span);

// All arguments, or those from a place on: ":2" of ${@:2}. Nothing where the place is not known, nor of other slices.
std::optional<std::vector<ShellWord>> arguments_from(const ShellValue& all, std::string_view slice);

// "$NAME" or "${NAME:-8}" and nothing else: the name, and what stands behind it in the brackets.
std::optional<std::pair<std::string_view, std::string_view>> single_reference(std::string_view text);

}  // namespace distsetup::foreign
