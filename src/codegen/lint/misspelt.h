// Names that are a slip of the pen away from a known one. Nearer than nearest_name(), which only proposes: what a parser that others
// may extend does not know is an error when it is misspelt, and somebody's own otherwise.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/tables/name_table.h"

namespace distsetup::lint {

// The candidate that differs in one or two words by a letter or two ("cutof_len"), or only in case, '-', '_' and blanks; "" when there
// is none. Other digits are another name ("adam_beta1", "adam_beta2").
std::string misspelt_name(std::string_view name, std::span<const std::string> candidates);

// Of options: with the dashes that the table has.
std::string misspelt_option(const std::vector<NameEntry>& entries, std::string_view spelled);

// Options that plugins of sites bring along: shifter's, pyxis' and others'.
bool is_spank_option(std::string_view spelled);

}  // namespace distsetup::lint
