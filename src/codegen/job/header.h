// The comment at the top of every emitted script and YAML file: what it was made from, so that a stale file can be told from a fresh
// one, and the arithmetic a reader wants to check first. No dates, no host names: same input, same bytes.
#pragma once
#include <string>

#include "codegen/tables/emit_target.h"

namespace distsetup {

// '#' lines: version, digest of what the files follow from, the command, the arithmetic of the plan. No final newline.
std::string header(const TargetInput& input);

}  // namespace distsetup
