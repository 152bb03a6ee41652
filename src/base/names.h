// Near misses: "did you mean". Never acted upon, only said.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace distsetup {

// The candidate nearest to `name` by edit distance (case, '-' and '_' ignored), or "" when none is near (distance > 1 + size / 4;
// of up to four letters one may be wrong, and of up to five no digit).
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);
// Letters that are added, left out, replaced or swapped with their neighbour.
size_t edit_distance(std::string_view a, std::string_view b);
// "did you mean 'x'" or "known: a, b, c" (at most 12, then a count).
// Of names that programs write: one letter alone is wrong, and no digit. Other names are other things. "" = none.
std::string misspelt_name(std::string_view name, std::span<const std::string> candidates);
std::string suggest(std::string_view name, std::span<const std::string> candidates);
// Case-insensitive, '-' and '_' the same.
bool same_name(std::string_view a, std::string_view b);
// Bytes of the UTF-8 character at the start of `text`, 0 when it is not one (overlong, surrogate, cut off); `text` is not empty.
size_t utf8_length(std::string_view text);
bool is_utf8(std::string_view text);
std::string lower(std::string_view text);
std::string_view trim(std::string_view text, std::string_view blanks = " \t");  // without blanks at both ends
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }                   // whatever the locale

}  // namespace distsetup
