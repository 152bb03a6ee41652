// What the steps of a SLURM job take of it: a part of its nodes, GPUs by their own tasks. Internal to the reader of scripts.
#pragma once
#include <optional>

#include "codegen/read/document.h"
#include "codegen/read/found.h"
#include "codegen/read/reading.h"

namespace distsetup {

// Which lines of a document are its run: beside one that a launcher starts, a plain `python build_data.py` is none, and beside any
// that trains a `python convert.py` is none.
class RunLines {
 public:
  explicit RunLines(const foreign::Document& document);
  bool is_run(const foreign::ScriptPart& part, const foreign::LaunchLine& line) const;
  // Something trains, and not in a script that this one starts by itself.
  bool trains_here() const { return trains_here_; }
  // A plain `python train.py` beside a launcher that starts the same script with other settings: an error for the first.
  Diagnostics started_again(const SourceText& source, const foreign::ScriptPart& part) const;

 private:
  // $(python free_port.py) hands over what it prints, where something else trains.
  bool only_hands_over(const foreign::ScriptPart& part, const foreign::LaunchLine& line) const {
    return trains_outside_ && part.script.commands[line.command].in_substitution;
  }

  bool has_launched_ = false, has_training_ = false, trains_here_ = false, trains_outside_ = false;
};

// A server of a model beside the training (rollouts of GRPO): its sizes are none of the run's.
bool is_server(const foreign::ShellCommand& command);

// Commands that begin with a variable which branches set to different launch lines: a warning for each such variable.
Diagnostics undecided_commands(const SourceText& source, const foreign::ShellScript& script);

// srun bash run.sh: what trains stands in a file of its own, whose path is the text. A wrapper is given what it starts: none.
std::optional<LostKey> started_script(const SourceText& source, const foreign::LaunchLine& line);

LostKey started_key(const SourceText& source, const std::string& path, foreign::TextSpan at);

// Under Ray, srun starts workers one by one and then a driver.
bool has_ray(const foreign::ShellScript& script);

// Nodes of an srun that takes fewer of them than the job has; 0: it takes all.
long long nodes_of_part(const foreign::ScriptPart& part, const foreign::LaunchLine& line);

// Every srun that trains takes the same part of the job (another takes the rest): its own number counts. Different parts are the
// job.
bool trains_on_a_part(const foreign::ScriptPart& part);
// srun -N ${#HALF[@]}, HALF being cut out of another list: on some of the job's nodes, and only the running script knows on how many.
bool trains_on_open_nodes(const foreign::ScriptPart& part);

// GPUs of a node that the sruns that train take by their own tasks and their GPUs, where the job has others; 0: what the job has.
long long gpus_of_steps(const foreign::ScriptPart& part);

// --gpus-per-task is of each task, --gpus of the whole job: as GPUs of a node.
void count_gpus(const foreign::ShellScript& script, FoundKey& key);

// The scheduler whose lines a script has, where they are not read: "Flux"; "": none.
std::string_view other_scheduler(const foreign::Document& document);

// Lightning's DeepSpeedStrategy takes its file from there where it is given none, and an optimizer in it goes over the module's
// (lightning, strategies/deepspeed.py, _load_config and _initialize_deepspeed_train).
inline constexpr std::string_view kLightningFile = "PL_DEEPSPEED_CONFIG_PATH";

// Beside what was read of a script: lines of schedulers that are not read, and files that it sources and nobody has, where something
// in it is left open.
Result<std::vector<Reading>> with_what_is_unread(const foreign::Document& document, Result<std::vector<Reading>> read);

}  // namespace distsetup
