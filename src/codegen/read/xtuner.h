// xtuner's command line. The run itself stands in a Python program that it names, which nobody reads.
#pragma once
#include <string>
#include <vector>

#include "codegen/read/found.h"
#include "codegen/read/reading.h"
#include "codegen/shell/launch_line.h"

namespace distsetup {

bool is_xtuner(const foreign::LaunchStage& stage);

// What the line says, with a warning that it is not all.
Reading reading_of_xtuner(const foreign::LaunchStage& stage, const std::vector<FoundKey>& keys, const std::string& file,
                          const Location& at);

}  // namespace distsetup
