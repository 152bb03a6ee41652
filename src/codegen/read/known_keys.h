// Which keys of a structured file a kind of files has: its own lists, those of the tool (templates/_lint/names), and what its key
// tables have rows for.
#pragma once
#include <cstddef>
#include <set>
#include <string>

#include "base/value.h"
#include "codegen/tables/key_table.h"
#include "codegen/tables/kind.h"
#include "codegen/tables/templates.h"

namespace distsetup {

// Keys with '-' as '_' (accepted_form).
struct KnownKeys {
  std::set<std::string> top;       // at the top of a file
  std::set<std::string> accepted;  // paths below the top ("trainer.devices")
  std::set<std::string> within;    // keys of sections that rows are about ("training.batch_size", "data.*")

  // A section whose own keys are listed is known where most of them are.
  bool knows(const std::string& key, const Value* value) const;
  // Most keys within the sections of the file have rows: section names alone ("model", "training") are those of everybody's files.
  bool knows_sections(const Value& root) const;
};

void add_known_keys(KnownKeys& known, const KeyTable& table);

// Errors: a table that the kind names is not there, or has a mistake.
Result<KnownKeys> known_keys(const TemplateSet& templates, const FileKind& kind);

// Half of them or more.
inline bool is_most(size_t part, size_t whole) { return 2 * part >= whole; }

}  // namespace distsetup
