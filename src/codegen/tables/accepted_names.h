// Names that a tool takes, read off the tool itself (templates/_lint/names), for a reader: a key that no row of a table is about is no
// mistake when the tool has it.
#pragma once
#include <string>

#include "codegen/tables/key_table.h"
#include "codegen/tables/templates.h"

namespace distsetup {

// Fills `accepted` from `accepts`. A list of names that is not there adds none: templates/_lint has a test of its own.
void add_accepted_names(const TemplateSet& templates, KeyTable& table);

// As names are kept: '-' as '_'.
std::string accepted_form(std::string name);

}  // namespace distsetup
