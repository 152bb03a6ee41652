#include "codegen/read/visible_gpus.h"

#include <algorithm>

namespace distsetup {
namespace {

using foreign::LaunchLine;
using foreign::LaunchProgram;
using foreign::LaunchStage;
using foreign::ShellAssignment;
using foreign::ShellCommand;

// Of the command itself, or exported once before it.
const ShellAssignment* devices_of(const foreign::ScriptPart& part, const LaunchLine& line) {
  const ShellAssignment* seen = nullptr;
  for (size_t i = 0; i <= line.command && i < part.script.commands.size(); ++i) {
    const ShellCommand& command = part.script.commands[i];
    const bool is_own = i == line.command, is_exported = !command.words.empty() && command.words[0].text == "export";
    if ((!is_own && !is_exported) || command.is_dead) continue;
    for (const ShellAssignment& one : command.assignments) {
      if (one.name != "CUDA_VISIBLE_DEVICES") continue;
      if (seen != nullptr && !is_own) return nullptr;
      seen = &one;
    }
  }
  return seen;
}

int64_t count_of(const std::string& list) {
  if (list.empty() || list.find_first_not_of("0123456789,") != std::string::npos || list.back() == ',') return 0;
  return 1 + std::count(list.begin(), list.end(), ',');
}

// One process for each device that is seen; of other programs a single device is all there is.
bool takes_all(const LaunchLine& line) {
  const LaunchStage *accelerate = line.find(LaunchProgram::kAccelerate), *deepspeed = line.find(LaunchProgram::kDeepspeed);
  if (accelerate != nullptr) return !accelerate->has("num_processes") && !accelerate->has("gpu_ids");
  if (deepspeed != nullptr)
    return !deepspeed->has("num_gpus") && !deepspeed->has("include") && !deepspeed->has("exclude") && !deepspeed->has("hostfile");
  return !line.stages.empty() && line.stages.back().name.ends_with("llamafactory-cli");
}

}  // namespace

Reading visible_gpus(const SourceText& source, const foreign::ScriptPart& part, const LaunchLine& line, const std::string& file) {
  // LLaMA-Factory starts torchrun with as many processes as it sees devices, where NPROC_PER_NODE does not say how many
  // (src/llamafactory/cli.py, Command.TRAIN).
  const LaunchStage* torchrun = line.find(LaunchProgram::kTorchrun);
  const bool is_of_node = torchrun != nullptr && torchrun->name.ends_with("llamafactory-cli") && !torchrun->has("nproc_per_node");
  const bool is_launched = line.find(LaunchProgram::kSrun) != nullptr || (torchrun != nullptr && !is_of_node) ||
                           line.find(LaunchProgram::kMpirun) != nullptr || part.script.commands[line.command].depth > 0;
  const ShellAssignment* devices = is_launched ? nullptr : devices_of(part, line);
  const int64_t n = devices == nullptr ? 0 : count_of(devices->known.empty() ? devices->value.text : devices->known);
  const bool is_counted = line.find(LaunchProgram::kAccelerate) != nullptr || line.find(LaunchProgram::kDeepspeed) != nullptr;
  Reading reading;
  const bool is_one_process =
      n > 1 && !is_counted && !takes_all(line) && !line.stages.empty() && line.stages.back().name.ends_with(".py");
  if (is_one_process) {
    reading.file = file;
    reading.tool = "CUDA_VISIBLE_DEVICES";
    reading.lost.push_back({"CUDA_VISIBLE_DEVICES", devices->known.empty() ? devices->value.text : devices->known,
                            "one process is started, and what it does with these GPUs is its own matter: --gpus",
                            source.at(devices->span.begin)});
    return reading;
  }
  if (n == 0 || (!takes_all(line) && (n > 1 || is_counted))) return reading;
  reading.file = file;
  reading.tool = "CUDA_VISIBLE_DEVICES";
  // What any file or directive says is over it.
  reading.fields[is_of_node ? "hardware.gpus_per_node" : "derived.world"] = {Json(n), "CUDA_VISIBLE_DEVICES",
                                                                             source.at(devices->span.begin), true, false};
  return reading;
}

}  // namespace distsetup
