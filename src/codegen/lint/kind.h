// Which tool a file is for, by what it says and not by its name alone.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

namespace distsetup {

enum class FileKind {
  kDeepspeed,       // DeepSpeed's JSON
  kAccelerate,      // accelerate's YAML (FSDP 1 and 2, DeepSpeed, DDP)
  kTrainer,         // fields of Hugging Face TrainingArguments, YAML or JSON
  kTrl,             // the same with the fields of a trainer of TRL
  kTrainerFsdp,     // the fsdp_config of TrainingArguments in a file of its own
  kTorchtitan,      // TOML
  kAxolotl,         // YAML
  kLlamaFactory,    // YAML
  kLightning,       // YAML of LightningCLI
  kAutomodel,       // YAML with `distributed:`
  kMegatronBridge,  // YAML merged into a ConfigContainer
  kLlamaStack,      // run.yaml of a server, or a request as JSON
  kKubernetes,      // manifests
  kSkypilot,        // task YAML
  kSbatch,          // job script with #SBATCH lines
  kPbs,             // job script with #PBS lines
  kLsf,             // job script with #BSUB lines
  kShell,           // script or command line
  kArguments,       // one option a line
  kHostfile,        // "host slots=8"
  kEnvironment,     // NAME=VALUE lines
  kRequirements,    // package==version lines
  kPlan,            // plan.json of distsetup
};

bool is_script(FileKind kind);                 // a job script, a script or a command line
bool takes_training_arguments(FileKind kind);  // fields of TrainingArguments at its top

std::string_view kind_name(FileKind kind);  // "deepspeed"
std::string_view kind_says(FileKind kind);  // "DeepSpeed configuration"
std::vector<std::string> kind_names();
// By its name; nothing when there is none.
Result<FileKind> kind_of_name(std::string_view name);

// kUnknownValue, with what was looked for, when the text looks like none of them.
Result<FileKind> recognise(std::string_view path, std::string_view text);

}  // namespace distsetup
