// The options that a job script gives its scheduler in comments (#SBATCH --nodes=2).
#pragma once
#include <string_view>
#include <vector>

#include "codegen/shell/shell.h"

namespace distsetup::foreign {

// The options of a directive's line, `options` being what follows the mark (#SBATCH).
std::vector<Directive> read_directives(std::string_view text, TextSpan options, Scheduler scheduler);

}  // namespace distsetup::foreign
