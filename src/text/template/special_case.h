// The characters whose upper case is more than one character (Unicode's SpecialCasing.txt, without what depends on a language).
#pragma once
#include <string_view>

namespace distsetup::jinja {

struct SpecialCase {
  char32_t code_point;
  std::u32string_view upper, title;
};
const SpecialCase* find_special_case(char32_t c);  // nullptr: has a simple one, or none

}  // namespace distsetup::jinja
