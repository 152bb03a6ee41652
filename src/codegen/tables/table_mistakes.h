// What reading a key table collects and what its rows have in common: mistakes, conditions, names of types and severities.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/value.h"
#include "codegen/tables/key_table.h"

namespace distsetup {

struct TableMistakes {
  Diagnostics diagnostics;

  void fail(const Location& at, std::string message, std::string help = "");
  // A field name must exist; `at` is where it is written.
  void check_field(const std::string& field, const Location& at);
};

std::optional<KeyType> key_type_of(std::string_view name);  // "text_list"

// A map from field names to the texts that hold; nullptr: none.
FieldCondition field_condition(const Value* map, TableMistakes& mistakes);
// A map from keys of the file that is read, which may be any.
FieldCondition key_condition(const Value* map);

Severity severity_of(const std::string& word, const Location& at, TableMistakes& mistakes);

}  // namespace distsetup
