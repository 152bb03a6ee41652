// Rows of the table of settings that are about a run and not about a step: its data, checkpoints and how it is started.
#pragma once
#include <vector>

#include "planner/spec/spec_table.h"

namespace distsetup {

void add_run_keys(std::vector<SpecKey>& keys);

}  // namespace distsetup
