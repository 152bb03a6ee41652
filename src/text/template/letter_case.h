// Upper and lower case of whole texts, as Python's str methods have them.
#pragma once
#include <string>
#include <string_view>

namespace distsetup::jinja {

std::string upper_case(std::string_view text);
std::string lower_case(std::string_view text);
std::string capitalised(std::string_view text);  // the first character in title case, the others in lower case
std::string title_case(std::string_view text);   // a word begins after anything that has no case
std::string swapped_case(std::string_view text);

}  // namespace distsetup::jinja
