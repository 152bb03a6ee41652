// What was read out of a file: fields of a plan with the keys they come from, and the keys that no field holds.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/diagnostic.h"
#include "base/json.h"
#include "codegen/read/found.h"

namespace distsetup {

struct ReadField {
  Json value;
  std::string key;          // of the file
  Location at;              // its place
  bool is_assumed = false;  // what the tool takes when the key is not there
  bool is_guess = false;    // the file leaves other values open, and this is the first of them
};
using ReadFields = std::map<std::string, ReadField, std::less<>>;
std::optional<int64_t> whole(const ReadFields& fields, std::string_view name);  // nothing when it is absent or no whole number
std::string text_of(const ReadFields& fields, std::string_view name);           // "" when it is absent

// A key that says something which no plan field holds.
struct LostKey {
  enum class Why { kNotSupported, kUnknownKey, kValue };  // kValue: the key is known and its value is none that it takes
  std::string key, text, reason;
  Location at;
  Why why = Why::kNotSupported;
  std::string help{};    // what to write instead; empty: nothing is known
  bool is_file = false;  // `text` names a file of settings
};
// Its text as it is printed: "(not shown)" where it looks like a secret. "<pad>" and "[MASK]" are tokens of a vocabulary.
std::string shown_text(const LostKey& lost);

// What the user says beside a file: which of its named parts, and values over its own.
struct ReadChoices {
  std::string stage, setup;
  std::vector<std::pair<std::string, std::string>> assignments;  // key of the file -> text
};

// What a table's `checks` say of the keys; `trainer`: only when this one runs them, "" = whoever does; `weights`: a model
// whose weights the run starts from, if it has any; said where it does.
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
  std::string other_method;           // what no plan does: "'grpo.py' trains by rollouts"; empty: nothing says that
  Location other_method_at;
  bool is_own_program = false;     // the tool's own program is started: its defaults hold for the file that the line names, too
  bool is_of_old_trainer = false;  // it has arguments that TrainingArguments lost with Transformers 5 or after
  bool is_over_script = false;     // of a file whose settings go over the arguments of the script that names it
  bool is_over_file = false;       // of a command line: the tool takes it over the file that the line names
  std::vector<FoundKey> given;     // of such a line, its arguments as they stand there
};

// Takes back what the tool's defaults say, but for which trainer it is.
void drop_assumed(Reading& reading);

}  // namespace distsetup
