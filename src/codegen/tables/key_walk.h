// The walk that writes: the keys of a table with the values that the fields give them.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "codegen/tables/key_table.h"

namespace distsetup {

bool holds(const FieldCondition& condition, const Fields& fields);

// The written keys in table order. Errors: rules that fire, values without a mapping. Warnings: rules, and kKeyNotRead.
using Entries = std::vector<std::pair<std::string, Json>>;
Result<Entries> walk_keys(const KeyTable& table, const Fields& fields, const Location& at);

}  // namespace distsetup
