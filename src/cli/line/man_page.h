// The manual page, generated from the same table as the help.
#pragma once
#include <string>

namespace distsetup {

std::string man_page();  // roff, macros of man(7)

}  // namespace distsetup
