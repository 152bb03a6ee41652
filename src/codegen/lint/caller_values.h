// Values that whoever starts a script may set. A rule that relies on one knows only what happens when nobody does.
#pragma once
#include "codegen/lint/lint_setup.h"

namespace distsetup::lint {

// Whether the text depends on what the script does not set itself: an argument, a default (${NAME:-x}), a variable that is set
// nowhere, or more than once to different values, a command's output. Single-quoted parts are left out.
bool comes_from_caller(const Document& d, const ShellScript& script, TextSpan range);
bool comes_from_caller(const Document& d, const ShellScript& script, const LaunchOption& option);

// Whether the script itself says where it runs: a scheduler's directives, or commands that reach other machines. A plain script may be
// started where an operator or a platform sets what torchrun reads (PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR).
bool knows_its_cluster(const Document& d, const ShellScript& script);

}  // namespace distsetup::lint
