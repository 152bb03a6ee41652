// One key of a file against one row of a table: is this what the row writes, and if so, of which field value?
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "codegen/read/found.h"
#include "codegen/tables/key_table.h"

namespace distsetup {

// The file's text means the same as the constant: numbers by value (5e8, 500000000), truth by word, text without regard to case.
bool is_same(const FoundKey& found, const Json& constant);

// A field's text as a value: true, 8, or text.
Json value_of_text(const std::string& text);

// What the row's field was when the row wrote this; nothing when the row cannot have written it.
std::optional<Json> read_backwards(const KeyRow& row, const FoundKey& found);

// nullopt: the text is no number.
std::optional<double> number_of(const std::string& text);

// A value of this kind, whatever it says.
bool is_of_type(const FoundKey& found, KeyType type);

// '-' and '_' the same: flags are written both ways.
bool is_same_key(std::string_view one, std::string_view other);

}  // namespace distsetup
