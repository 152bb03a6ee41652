// The parts of a key table that only readers of files use: `reads`, `parts`, `checks` (templates/README.md).
#pragma once
#include "base/value.h"
#include "codegen/tables/key_table.h"
#include "codegen/tables/table_mistakes.h"

namespace distsetup {

// Each adds what the value says to the table.
void read_read_row(const Value& value, KeyTable& table, TableMistakes& mistakes);
void read_part(const Value& value, KeyTable& table, TableMistakes& mistakes);
void read_check(const Value& value, KeyTable& table, TableMistakes& mistakes);

}  // namespace distsetup
