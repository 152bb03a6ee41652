// Variables that a script has before its first line: of the job that a scheduler starts, and its arguments.
#pragma once
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "codegen/shell/shell.h"

namespace distsetup::foreign {

// What SLURM sets from the job's own lines.
std::map<std::string, std::string, std::less<>> job_variables(const ShellScript& script);

// What every job of the script's scheduler has, and what its own lines make it have.
std::set<std::string, std::less<>> set_by_job(const ShellScript& script);

bool is_argument(std::string_view name);

}  // namespace distsetup::foreign
