// What loops say of the variables that they change.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "codegen/shell/expander.h"
#include "codegen/shell/shell.h"

namespace distsetup::foreign {

// for pair in "${PAIRS[@]}", by its header: the list is the script's. Arguments ("$@") are those of whoever starts it, and a script is
// read as it is started without any.
bool is_over_list(const ShellCommand& header);

// TOTAL="$TOTAL,$one", N=$((N + 1)), TOTAL+=x, and what is made of one of these (`grown`): in each round another. Of a loop over known
// words (`is_listed`) so is whatever is not known in the first.
bool changes_each_time(const ShellAssignment& assignment, const std::set<std::string>& grown, bool is_listed,
                       ShellExpander& variables);

// for x in a b c: at least two words, each known as it stands there. Then the body runs.
bool has_known_items(const ShellCommand& header);

// while [ $# -gt 0 ]; do … shift; done, for one in "$@", while getopts …: a loop over the arguments, of which `commands` are in it,
// and the script was given none. What moves them leaves them unknown behind it.
bool goes_over_no_arguments(const ShellScript& script, const ShellCommand* header, const std::vector<size_t>& commands,
                            ShellExpander& variables);

// What such a loop takes from arguments and nothing has set before it, is not set: LR=${LR:-1e-5} behind it is the default.
void leave_unset(const ShellExpander& variables, ShellVariables::Changes& changes);

// How often a loop runs is not known: of a list that grows in it only the options that are seen once count, of a sum nothing.
void forget_grown(ShellExpander& variables, const std::string& name);

}  // namespace distsetup::foreign
