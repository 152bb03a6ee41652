// Patterns of the shell (*, ?, [a-z]), and ${NAME%pattern} and its like: parts of a value that is known.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace distsetup::foreign {

// The whole text, as `case` and [[ a == b ]] ask.
bool matches_pattern(std::string_view text, std::string_view pattern);

// The value after `how`: "%.json", "##*/", "/a/b", "//a/b", ":0:3", ",,", "^^". Nothing where it is none of these.
std::optional<std::string> cut_text(const std::string& value, std::string_view how);

// ${1:-'x'}: quotes of a default count outside of double quotes.
std::string unquoted_default(std::string_view text, bool is_quoted);

}  // namespace distsetup::foreign
