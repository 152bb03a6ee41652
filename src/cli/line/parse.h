// argv -> Arguments. Every mistake of a line is found in one pass.
#pragma once
#include <string>
#include <vector>

#include "cli/line/flags.h"

namespace distsetup {

// `words` are those after the command's name. Unknown flags (with the nearest known one), missing and doubled values, too many or too
// few positionals are errors.
Result<Arguments> parse(const Command& command, const std::vector<std::string>& words);

// -h or --help anywhere before a "--", also after a wrong flag.
bool asks_for_help(const std::vector<std::string>& words);
// A switch or value flag that is needed before the line is known to be right (--json, --color, --quiet).
bool has_word(const std::vector<std::string>& words, std::string_view flag);
std::string value_of_word(const std::vector<std::string>& words, std::string_view flag);

}  // namespace distsetup
