// How much of a model a program lists: weights of its sections over the model's parameters. 1 but for small vectors, unless the
// program is of another architecture.
#pragma once
#include "planner/replay/program_file.h"

namespace distsetup {

double share_listed(const replay::BlockProgram& program, const Geometry& model);

}  // namespace distsetup
