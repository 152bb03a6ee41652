// The options that a job script gives its scheduler in comments (#SBATCH --nodes=2).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "codegen/shell/shell.h"

namespace distsetup::foreign {

// The options of a directive's line, `options` being what follows the mark (#SBATCH).
std::vector<Directive> read_directives(std::string_view text, TextSpan options, Scheduler scheduler);

// sbatch --nodes=4 -t 2:00:00 job.sh: a command's options as directives have them, on one line; "" without any. `end`: the first of
// its words that is none of them, nor the value of one.
std::string options_of_sbatch(const ShellCommand& sbatch, size_t end);
// The job with `options` behind those of its own lines, since a command's go over them (sbatch(1)), on as many lines as before where
// it has any of its own.
std::string with_options(std::string job, const std::string& options);

}  // namespace distsetup::foreign
