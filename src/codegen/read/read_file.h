// A file as the fields of a plan, by the key tables.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "codegen/read/document.h"
#include "codegen/read/reading.h"
#include "codegen/tables/templates.h"

namespace distsetup {

// A document by the table that knows most of its keys; `table` names one instead ("" = find it). A script can give several readings:
// its #SBATCH lines, a torchrun line, the arguments of the program. Errors: syntax, a file of which no table knows a key.
Result<std::vector<Reading>> read_document(const TemplateSet& templates, const foreign::Document& document,
                                           const std::string& table = "", const ReadChoices& choices = {});

// Files that the script writes itself (cat <<EOF > ds_config.json) and that a command of it, or another file of `readings`, names:
// they are read with these, and no longer lost.
void add_written_files(const TemplateSet& templates, const foreign::Document& script, const ReadChoices& choices,
                       std::vector<Reading>& readings, Diagnostics& diagnostics);

// The same of a text, which is parsed first.
Result<std::vector<Reading>> read_config(const TemplateSet& templates, std::string_view text, const std::string& file,
                                         const std::string& table = "", const ReadChoices& choices = {});

}  // namespace distsetup
