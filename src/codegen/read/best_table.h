// Which key table a file is read by: the one that knows most of its keys.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/value.h"
#include "codegen/read/found.h"
#include "codegen/read/reading.h"
#include "codegen/tables/key_table.h"
#include "codegen/tables/templates.h"

namespace distsetup {

// What is read: a tree, whose parts a table knows, or keys as they are.
struct FileSource {
  const Value* root = nullptr;
  std::vector<FoundKey> found;  // beside a tree: what is known of it besides
  const ReadChoices* choices = nullptr;
};

// Tables of these formats ("json", "arguments"), by path.
std::vector<std::string> tables_of(const TemplateSet& templates, const std::vector<std::string_view>& formats);

// The table that knows most of the keys, of these the one that leaves fewest unread, of these the one that would add least, of these
// the one that assumes least. Reading::table is empty when none of them knows a key.
Result<Reading> best_reading(const TemplateSet& templates, const std::vector<std::string>& tables, const FileSource& source,
                             const std::string& file);

// The arguments of a program, by the table of its tool: one that knows half of them and is told by one of them. Those of a script that
// no table is told by are read by the names that most tools use, without what a tool would assume.
Result<Reading> reading_of_program(const TemplateSet& templates, const std::string& program, const std::vector<FoundKey>& found,
                                   const std::string& file);

// A key that no file has: it says that TRL's own program reads the others, whose defaults hold then, and not only its names.
FoundKey script_of_trl(const std::string& program);

// What a table made of arguments of a program of one's own: what they say by their usual names, without what the table's tool assumes.
Reading as_own_script(Reading reading, const std::string& program, const std::vector<FoundKey>& found);

// By one table.
Result<Reading> reading_by(const TemplateSet& templates, const std::string& path, const FileSource& source, const std::string& file);

}  // namespace distsetup
