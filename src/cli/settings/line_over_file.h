// train.py --config sft.yaml --max_length 16384: arguments beside a file that their program takes as a whole.
#pragma once
#include <vector>

#include "base/diagnostic.h"
#include "codegen/read/reading.h"
#include "codegen/tables/templates.h"

namespace distsetup {

// Few arguments name no tool by themselves, or another one. Where the file that they stand beside is read as a tool's, they are that
// tool's, too, and go over it (trl/scripts/utils.py, TrlParser.parse_args_and_config: "command line arguments can override values set
// by the config file"), unless that tool knows fewer of them. Errors: the table of the tool has a mistake.
Diagnostics read_lines_over_files(const TemplateSet& templates, std::vector<Reading>& readings);

}  // namespace distsetup
