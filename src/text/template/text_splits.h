// Taking texts apart and putting them together, as Python's str does. max: at most so many splits or times; negative: all.
#pragma once
#include "text/template/python_value.h"

namespace distsetup::jinja {

using Texts = std::vector<std::string>;

Texts split_at(std::string_view text, std::string_view separator, Integer max);
Texts split_from_right(std::string_view text, std::string_view separator, Integer max);
Texts split_at_space(std::string_view text, Integer max);
Texts split_at_space_from_right(std::string_view text, Integer max);
Texts split_lines(std::string_view text, bool keeps_ends);  // at every line break of Unicode
std::string replaced(std::string_view text, std::string_view old, std::string_view with, Integer max);

enum class Align { kLeft, kRight, kCentre };
std::string aligned(std::string_view text, Align align, Integer width, std::string_view fill);

}  // namespace distsetup::jinja
