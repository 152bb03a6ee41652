// The one place that loads key tables: emit, coverage and the readers of files take theirs from here, each read once for a set of
// templates.
#pragma once
#include <memory>
#include <string>

#include "codegen/tables/key_table.h"
#include "codegen/tables/templates.h"

namespace distsetup {

// The text of a file; an error that names the nearest one when it is not there. `at`: who asks for it.
Result<std::string> template_text(const TemplateSet& templates, const std::string& path, const Location& at);

// A table as its file says it: rows that include another table still name it.
Result<std::shared_ptr<const KeyTable>> load_table_alone(const TemplateSet& templates, const std::string& path, const Location& at);

// A table with the tables that it includes, as it is written by. `at`: where the user asked for it. Errors: no such table, or a
// mistake in one (kTemplate, with its place).
Result<std::shared_ptr<const KeyTable>> load_key_table(const TemplateSet& templates, const std::string& path, const Location& at);

// As files are read by it: also with what reads.yaml beside it adds, and the names that the tool takes.
Result<std::shared_ptr<const KeyTable>> load_read_table(const TemplateSet& templates, const std::string& path, const Location& at);

}  // namespace distsetup
