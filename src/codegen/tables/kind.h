// Kinds of files: what each is called, what marks it, and what code that treats all kinds alike must know of it. They are data
// (templates/_kinds.yaml); a kind is added there. recognise.h says which kind a file is of.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/diagnostic.h"
#include "codegen/tables/templates.h"

namespace distsetup {

// How files of a kind are taken apart.
enum class KindForm { kTree, kToml, kScript, kArguments, kLines };  // kTree: YAML or JSON

// What every line of a file of lines is.
enum class LineShape { kNone, kPackage, kSetting };  // torch==2.9, NAME=VALUE

struct FileKind {
  std::string name;  // as `lint --as` takes it: "deepspeed"
  std::string says;  // "DeepSpeed configuration"
  KindForm form = KindForm::kTree;

  // Marks of structured files: keys at the top, of `needs` and `decided_by` also paths ("trainer.max_steps").
  std::vector<std::string> keys;                     // the kind with most of them wins, where it knows most of the file's keys
  std::vector<std::string> also;                     // what the kind has beside: known, and no mark
  std::vector<std::string> needs;                    // one of them is there, and then no other kind counts
  std::vector<std::string> needs_too;                // and one of these
  std::vector<std::string> one_of;                   // taken only where all keys are known, one of them is of these, and no kind fits
  std::vector<std::vector<std::string>> decided_by;  // all keys of one of these lists are there: this kind, whatever else is there
  // Words of others for a key, which stand there without it: of another format, whose file is not of this kind; of a program's own,
  // which hands on what it reads (what is not there is not known).
  std::vector<std::pair<std::string, std::string>> instead_of, handed_on;
  std::vector<std::pair<std::string, std::string>> values;  // key at the top, and the value that it has to have
  std::string within;                                       // a file of that kind with one of `keys` is of this kind
  std::vector<std::string> tables;                          // key tables that read it, whose keys are known too; empty: any may
  // Marks of texts.
  std::vector<std::string> lines;       // how a line begins
  std::vector<std::string> words;       // stand anywhere; of structured files: in one that does not parse
  std::vector<std::string> file_names;  // patterns: "*.sh"
  LineShape every_line = LineShape::kNone;

  // What the files hold.
  bool takes_training_arguments = false;  // fields of Hugging Face TrainingArguments at the top
  bool has_containers = false;            // commands and environments of containers, anywhere below
  std::vector<std::string> scripts;       // keys whose text is a script
  std::vector<std::string> environment;   // keys whose entries are environment variables
  std::string names;                      // templates/_lint/names/<names>.yaml lists every key
  bool is_foreign = false;                // a format that is known by name only: nothing here reads it
  bool has_lint_rules = true;
  std::string instead;  // without them: what to do; {file} is the file's path
};

struct FileKinds {
  std::vector<FileKind> all;                          // in the order of the table: of kinds that fit alike the first one is taken
  const FileKind* find(std::string_view name) const;  // nullptr: none; '-' and '_' the same
  std::vector<std::string> lint_names() const;        // of kinds with lint rules
};

// The kinds of a set of templates, read once. Errors: the table has a mistake (a user's own; the built-in one is tested).
Result<std::shared_ptr<const FileKinds>> load_kinds(const TemplateSet& templates);

// Of the built-in templates.
const FileKinds& built_in_kinds();

// Names of kinds that code asks for. A test holds each against the table.
namespace file_kind {
inline constexpr std::string_view kDeepspeed = "deepspeed", kAccelerate = "accelerate", kTrainer = "trainer", kTrl = "trl",
                                  kTrainerFsdp = "trainer-fsdp", kTorchtitan = "torchtitan", kAxolotl = "axolotl",
                                  kLlamaFactory = "llamafactory", kLightning = "lightning", kAutomodel = "automodel",
                                  kLlamaStack = "llama-stack", kKubernetes = "kubernetes", kSkypilot = "skypilot", kSbatch = "sbatch",
                                  kPbs = "pbs", kLsf = "lsf", kHostfile = "hostfile", kEnvironment = "environment", kPlan = "plan",
                                  kNotebook = "notebook", kNotebookFile = "notebook-file", kRun = "run", kSite = "site";
inline constexpr std::string_view kAll[] = {kDeepspeed, kAccelerate,   kTrainer,   kTrl,       kTrainerFsdp, kTorchtitan,
                                            kAxolotl,   kLlamaFactory, kLightning, kAutomodel, kLlamaStack,  kKubernetes,
                                            kSkypilot,  kSbatch,       kPbs,       kLsf,       kHostfile,    kEnvironment,
                                            kPlan,      kRun,          kSite,      kNotebook,  kNotebookFile};
}  // namespace file_kind

}  // namespace distsetup
