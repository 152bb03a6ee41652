// What the target.yaml of a target says beside its files: who runs them, what of a plan they have a form for, how they are started.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "base/value.h"
#include "codegen/tables/fields.h"
#include "codegen/tables/templates.h"

namespace distsetup {

// Which of the planner's choices a target has a form for (`search`), so that a search need not end in a plan that cannot be written.
// Empty lists: all.
struct TargetSearch {
  std::vector<std::string> trainers;               // that run the target's files, the usual one first; empty: the bundled one
  std::vector<std::string> shardings, recomputes;  // "zero3", "full"
  std::vector<std::string> cp_methods;             // "ring"
  bool hybrid = true;                              // copies of the shard group
  bool keeps_parameters = true;                    // reshard_after_forward: false
  std::optional<std::vector<std::string>> axes;    // of pp, tp, cp, ep; absent: all
};

// A word of the command that starts a target's files (`start`).
struct StartWord {
  // As it is; a file of the target; one that the command reads as its standard input; the folder of the files behind this text, left
  // out where the command is given in that folder.
  enum class Kind { kWord, kFile, kInput, kFolder };
  Kind kind = Kind::kWord;
  std::string text;
};
using StartWords = std::vector<StartWord>;

struct TargetDescription {
  Value root;                    // the whole file
  const Value* files = nullptr;  // of root, as the two below
  const Value* set = nullptr;
  const Value* search_of = nullptr;  // trainer -> what the target has less with it
  std::string rules;                 // a key table without keys: what the target refuses
  TargetSearch search;
  StartWords start;         // empty: nothing starts the files as they are
  std::string node_script;  // of a trainer: the script that starts it on one node, with NODE_RANK, MASTER_ADDR and MASTER_PORT from
                            // the environment; schedulers and launchers start it (job.node_script). "" = none
  std::string needs_words;  // what that script has to be given behind --, as an example: "train.py"; "" = nothing
  StartWords start_via;     // of a scheduler or launcher: instead of `start` where it starts the files of a trainer; empty: as `start`
  bool without_plan = false;  // its files can be written for machines alone
  bool use_of_plan = false;   // a script of one's own is started with what the plan's trainer needs (job.use), unless a flag says
};
// Errors: no such target (kUnknownTarget, at `at`), and mistakes of the file (kTemplate).
Result<TargetDescription> describe_target(const TemplateSet& templates, const std::string& target, const Location& at);

// `trainer`: who is planned for, where the target has less of one of them (`of: {fsdp2: ...}`); "" = not known yet.
Result<TargetSearch> target_search(const TemplateSet& templates, std::string_view target, std::string_view trainer = "");

// The file that the command starts: "job.sbatch"; "" = there is none.
std::string start_file(const StartWords& start);
// The command line, its files in `directory`, the one it starts under another name unless `file` is empty: "sbatch 'my
// job/job.sbatch'".
std::string start_command(const StartWords& start, const std::string& directory, const std::string& file = "");

// Fields that make a target of tables that serve several (`set`: {options.fsdp_version: 1}).
Fields with_settings(const TargetDescription& described, Fields fields, Diagnostics& diagnostics);

// What to say of a name that no target has. `known`: those that may be written.
std::string suggest_target(const std::string& wanted, const std::vector<std::string>& known);

}  // namespace distsetup
