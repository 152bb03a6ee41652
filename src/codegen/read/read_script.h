// Scripts as the keys of tables: #SBATCH lines, the flags of each launcher, the arguments of the program it starts, each with the
// table of its own; manifests likewise, with the commands in them.
#pragma once
#include <string>
#include <vector>

#include "codegen/read/document.h"
#include "codegen/read/reading.h"
#include "codegen/tables/templates.h"

namespace distsetup {

// The key of a script that a job starts (srun bash run.sh): its path is the text.
inline constexpr char kStartedScript[] = "(script)";

// Branches that the script's own settings do not take are left out. Empty: nothing in it is known.
Result<std::vector<Reading>> read_script(const TemplateSet& templates, const foreign::Document& document);

// A hostfile, or variables for every rank.
Result<std::vector<Reading>> read_lines(const TemplateSet& templates, const foreign::Document& document);

Result<std::vector<Reading>> read_manifest(const TemplateSet& templates, const foreign::Document& document);

// A list of arguments without a program; `table` "" = the one that knows most of them.
Result<std::vector<Reading>> read_arguments(const TemplateSet& templates, const foreign::Document& document, const std::string& table);

}  // namespace distsetup
