// What is wrong with the text of a file before any tool's rules: keys with blanks, quotes that a shell keeps.
#pragma once
#include <string>
#include <string_view>

#include "codegen/lint/findings.h"

namespace distsetup::lint {

bool ends_in_blank(std::string_view key);  // or begins with one

void check_file_text(const LintSetup& setup, const Document& d, Findings& report);

}  // namespace distsetup::lint
