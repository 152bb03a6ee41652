// Reading files that people already have: the fifth walk over the key tables. A file is read as the plan fields for which the table
// would write just this file:
//   - Fields that the table's conditions ask about take every value of their domain; the combination under which most keys of the file
//     are what the table writes wins. Of several the first in the order of the domains wins (fields.cc of this folder lists them:
//     ddp before zero1 before zero2 before zero3, so accelerate's SHARD_GRAD_OP is zero2, not zero3 with parameters kept).
//   - A field is *carried* when the file settles it: when some value of it would explain fewer keys.
//   - Rows with a field are read backwards, through their value map: the first entry that maps to the file's text.
//   - `reads` rows of a table say what else a key can hold (templates/README.md).
// Every key of a file is carried, the same in every plan, or in `lost` with the reason.
// Left out: files that a file names (they are given beside it), and programs (a value that only a running shell knows is in `lost`).
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/read/found.h"
#include "codegen/tables/fields.h"
#include "codegen/tables/key_table.h"
#include "codegen/tables/templates.h"

namespace distsetup {

struct ReadField {
  Json value;
  std::string key;          // of the file
  Location at;              // its place
  bool is_assumed = false;  // what the tool takes when the key is not there
  bool is_guess = false;    // the file leaves other values open, and this is the first of them
};
using ReadFields = std::map<std::string, ReadField, std::less<>>;

// A key that says something which no plan field holds.
struct LostKey {
  enum class Why { kNotSupported, kUnknownKey, kValue };  // kValue: the key is known and its value is none that it takes
  std::string key, text, reason;
  Location at;
  Why why = Why::kNotSupported;
  std::string help{};    // what to write instead; empty: nothing is known
  bool is_file = false;  // `text` names a file of settings
};

// What the user says beside a file: which of its named parts, and values over its own.
struct ReadChoices {
  std::string stage, setup;
  std::vector<std::pair<std::string, std::string>> assignments;  // key of the file -> text
};

// What a table's `checks` say of the keys; `trainer`: only when this one runs them, "" = whoever does; `weights`: only where this is
// no folder without weights.
struct Complaint {
  std::string trainer, weights;
  Diagnostic diagnostic;
};

// What one table read out of a file. A script can have several: its #SBATCH lines, a torchrun line, the arguments of the program.
struct Reading {
  std::string file;
  std::string table;  // "deepspeed/keys.yaml"
  std::string tool;   // "DeepSpeed"
  ReadFields fields;
  std::vector<LostKey> lost;
  std::vector<std::pair<std::string, ReadField>> contradictions;  // a second key that says otherwise of a field
  std::vector<Complaint> complaints;
  int num_missing = 0;                // constants that the table would write and the file does not have
  std::string stage, setup;           // the parts that were taken
  ReadChoices chosen;                 // a command line names parts of another file (`choice` of a row)
  std::vector<std::string> assigned;  // keys of ReadChoices::assignments that it knows
};

// The keys of a file under a table's names: the chosen parts in their places, what was not chosen told.
struct TakenParts {
  std::vector<Found> found;
  std::vector<LostKey> lost;
  std::string stage, setup;
  std::vector<std::string> assigned;
  size_t num_sections = 0;  // sections of the table's that the file has
  Diagnostics diagnostics;  // no such stage
};
TakenParts take_parts(const KeyTable& table, const Value& root, const ReadChoices& choices);

std::vector<Complaint> complaints_about(const KeyTable& table, const std::vector<Found>& found);

// One table over the keys of one file.
Reading read_keys(const KeyTable& table, const std::vector<Found>& found, const std::string& file);

// A whole file: its kind, then the table that knows most of its keys. `table` names one instead ("" = find it). Errors: syntax, a file
// of which no table knows a key.
Result<std::vector<Reading>> read_config(const TemplateSet& templates, std::string_view text, const std::string& file,
                                         const std::string& table = "", const ReadChoices& choices = {});

// Derived fields in terms of plan fields: derived.zero_stage 2 is strategy.sharding zero2, and so on. What nothing follows from is
// dropped.
void settle_derived(ReadFields& fields);

// Settings of a run file that say what the fields say, in the order of the fields.
struct ReadSetting {
  std::string path;  // "parallel.micro_batch"; "model.hidden": a key of an inline geometry
  std::string text;
  std::string key;
  Location at;
  bool is_assumed = false;
};
struct ReadSettings {
  std::vector<ReadSetting> settings;
  std::vector<LostKey> lost;  // fields of a job or of a file's own form, which a run has no key for
};
ReadSettings settings_of(const ReadFields& fields);

// Fields for writing another target: derived fields filled in, plan defaults where a file says nothing and a form needs a value.
Fields fields_to_write(const ReadFields& fields);

// Several files as one. Errors: two files that say different things (both places are told).
Result<ReadFields> merge_readings(const std::vector<Reading>& readings);

}  // namespace distsetup
