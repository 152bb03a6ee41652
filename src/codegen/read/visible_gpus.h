// CUDA_VISIBLE_DEVICES=0,1 in front of what trains on every device that it sees.
#pragma once
#include <string>

#include "base/tree_builder.h"
#include "codegen/read/document.h"
#include "codegen/read/reading.h"

namespace distsetup {

// How many GPUs the line has where nothing in it counts processes. Without fields: it is not said, or not all of them are used.
Reading visible_gpus(const SourceText& source, const foreign::ScriptPart& part, const foreign::LaunchLine& line,
                     const std::string& file);

}  // namespace distsetup
