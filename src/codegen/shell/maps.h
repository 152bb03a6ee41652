// Maps of bash (declare -A NAME): every entry NAME[key] is a variable of its own here.
#pragma once
#include <string>
#include <string_view>

#include "codegen/shell/expander.h"

namespace distsetup::foreign {

// declare -A NAME, local -A NAME=( … )
void declare_maps(const ShellCommand& command, ShellExpander& variables);
bool is_map(const ShellVariables& variables, std::string_view name);

// The variable of an entry, the key with variables put in; "" where the key is not known.
std::string map_entry(ShellExpander& variables, std::string_view name, std::string_view key);

// NAME[key]=value, NAME=([key]=value …). False: the name is no map.
bool assign_in_map(ShellExpander& variables, ShellAssignment& assignment);

}  // namespace distsetup::foreign
