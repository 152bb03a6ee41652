// A key table: everything we know about one configuration format, as data (templates/<target>/*.yaml; templates/README.md has the
// grammar). load_table.h loads them, key_walk.h writes files by them, codegen/read reads files by them.
#pragma once
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/diagnostic.h"
#include "base/json.h"
#include "codegen/tables/fields.h"

namespace distsetup {

// name -> texts of which the field's text must be one; "null" matches what is not known. All must hold.
using FieldCondition = std::vector<std::pair<std::string, std::vector<std::string>>>;

enum class KeyType { kBool, kInt, kNumber, kText, kTextList, kIntList, kCommaList };
enum class TableFormat { kJson, kYaml, kToml, kDirectives, kArguments };

// The first row of a key whose conditions hold and that has a value writes the key; the others of that key are passed over.
struct KeyRow {
  std::string key;  // path, '.' between levels
  KeyType type = KeyType::kText;
  std::string field;                                    // empty: `value`
  Json value;                                           // a constant
  Json fallback;                                        // `default`: when the field is null; null: the key is left out
  std::vector<std::pair<std::string, Json>> value_map;  // text of the field -> what the tool calls it; empty = as it is
  FieldCondition when, unless;
  std::string not_read;  // why no current tool reads this key; empty = it is read
  std::string table;     // instead of all that: the rows and rules of another table, under `key` (load_table.h)
  Location location;
};

struct Rule {
  Severity severity = Severity::kError;
  FieldCondition when, unless;
  std::string message, help;  // {name} is the field's text
};

// What a reader makes of a key that no row above writes so (src/codegen/read/read.h; `reads` in templates/README.md).
struct ReadRow {
  std::string key;       // "aio.*": every key below
  std::vector<Json> of;  // only these values; empty: any; null: the file says null; "*name.json": a text that ends so
  FieldCondition when, unless;
  std::string field;  // takes the value, in `type`, through `values` (the tool's text -> the field's)
  KeyType type = KeyType::kText;
  bool has_type = false;                             // stated: another value is none that the key takes, also where it is dropped
  std::vector<std::pair<std::string, Json>> values;  // as KeyRow::value_map: the field's text -> the tool's
  std::string drop;                                  // the tool takes the key, no plan field holds it: why
  std::string choice;    // of a part of another file: "stage", "distributed", or the key of that file that it sets
  bool is_file = false;  // `file: true`: its text is a path, relative to the file's folder or to where one is
  bool has_absent = false;
  std::string absent;  // what the tool takes when the key is not there ...
  // Other keys of the file have these texts ("null": are not there; "*": are; "!@other": another than the key `other`): then this is
  // assumed, or without `absent` the row holds.
  FieldCondition given;
  std::string part_of;      // the key's number is a share of this key's: their product is read
  bool is_counted = false;  // `count: true`: whole numbers in a list stand for how many there are
  bool is_first = false;    // `first: true`: asked before the rows that write the key
  Location location;
};

// Keys that do not go together, or that the bundled trainer cannot do what they say.
struct KeyCheck {
  FieldCondition
      given;  // as of a ReadRow, and ">1" a number above 1, "~{}" a text that has "{}", "!{}" one that has it not; all must hold
  std::string trainer;  // only when this trainer runs it; empty: whoever does
  std::string weights;  // only where the folder that this key names has weights, or is none of this machine
  Severity severity = Severity::kError;
  std::string message, help;  // {key} is the key's text
};

// A section of a file whose lines belong elsewhere: one of several named ones, one entry of a list, or defaults.
struct ReadPart {
  std::string section;                        // "training_stages"
  std::string into;                           // "distributed": where its lines go; "" = the top
  std::string choose;                         // "stage" or "distributed": the user says which entry (ReadChoices)
  std::string by;                             // or this key of the file names it
  std::string fallback;                       // `default`: the entry when nobody says; without one the first (stage) or none
  std::pair<std::string, std::string> where;  // of a list of maps: the entry that has this text at this key
  std::vector<std::pair<std::string, std::string>> keys;  // defaults of the file: a key of the section -> the key it is a default of
  std::string mixture;  // or all entries are data sets with their percentage and subset: as one list, data.sources's, under this key
};

// Names of templates/_lint/names/<file>.yaml that a tool takes below `section`.
struct AcceptedNames {
  std::string file, type, section;
};

// What follows from the program alone: train_dpo is started, whatever its flags are.
struct ProgramRow {
  std::string program;                                      // "train_dpo": of openrlhf.cli.train_dpo, of train_dpo.py; "*": any other
  std::vector<std::pair<std::string, std::string>> fields;  // of a plan -> text
  std::string drop;                                         // what no plan holds of it
};

struct KeyTable {
  std::string name;     // file, for messages
  std::string tool;     // "DeepSpeed"
  std::string checked;  // when the facts were read off the tool, and off which release: "2026-11-21, deepspeed 0.19.8"
  TableFormat format = TableFormat::kJson;
  std::vector<KeyRow> rows;
  std::vector<Rule> rules;
  std::vector<ReadRow> reads;
  std::vector<std::pair<std::string, std::string>> unknown_key;  // section -> how the tool takes a key that it does not know there
  std::vector<std::pair<std::string, std::string>> read_as;      // how a key begins -> how the rows call it
  std::vector<ReadPart> parts;
  std::vector<std::string> marks;        // flags of which one makes a command line this tool's
  std::vector<std::string> told_by;      // of arguments: one of them is there, or a script that was not named is not this tool's
  std::vector<std::string> not_told_by;  // and none of these
  std::vector<std::pair<std::string, std::string>> called;  // a key -> what the tool is called where that one is given
  bool is_told_only = false;  // read where they tell it, or its name does, and for nothing that is merely like it
  std::vector<ProgramRow> programs;
  std::vector<KeyCheck> checks;
  std::vector<std::string> extended_by;  // keys that name a module with further keys
  std::vector<std::string> decides;      // keys that choose how the model is sharded: one that is not understood is refused
  std::vector<std::string> words;        // keys whose text is several words, each read by itself
  std::vector<AcceptedNames> accepts;    // every name the tool takes, read off it: what no row is about is told as that
  std::set<std::string> accepted;        // of these, '-' as '_' (a reader fills it)
};

// Reads and checks a table: unknown keys, types, field names that do not exist (kTemplate, with the place in the file).
Result<KeyTable> parse_key_table(std::string_view text, const std::string& file_name);

}  // namespace distsetup
