// Options of launchers that take no value, under their names without dashes.
#pragma once
#include <set>
#include <string>

#include "codegen/shell/launch_line.h"

namespace distsetup::foreign {

using SwitchNames = std::set<std::string, std::less<>>;

const SwitchNames* switches_of(LaunchProgram program);  // nullptr: of no launcher

}  // namespace distsetup::foreign
