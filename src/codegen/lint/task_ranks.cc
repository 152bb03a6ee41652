#include "codegen/lint/task_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "codegen/lint/batch_launch.h"
#include "codegen/shell/starts_training.h"

namespace distsetup::lint {
namespace {

bool mentions_any(const JobScript& in, std::initializer_list<std::string_view> marks) {
  return std::any_of(marks.begin(), marks.end(), [&in](std::string_view mark) { return in.d.text.find(mark) != std::string::npos; });
}

const LaunchStage* python_script(const LaunchLine& line) {
  const LaunchStage* script = line.find(LaunchProgram::kScript);
  return script != nullptr && script->name.ends_with(".py") ? script : nullptr;
}

// The batch script runs one process itself, and has room for one per GPU.
void sl_unstarted_tasks(const JobScript& in) {
  const SrunTasks tasks = tasks_of_job(in);
  if (!in.is_batch || in.gpus < 2 || tasks.per_node != in.gpus) return;
  // Tasks are started elsewhere, or processes are handed their devices one by one.
  if (mentions_any(in, {"srun", "mpirun", "mpiexec", "torchrun", "torch.distributed", "accelerate", "deepspeed",
                        "CUDA_VISIBLE_DEVICES", "ssh ", "parallel ", "ray start", "hostfile", "HOSTFILE"}))
    return;
  const LaunchLine* last = nullptr;
  for (const LaunchLine& line : in.part.lines) {
    const ShellCommand& command = in.command(line);
    if (command.ends_with == "&") return;
    const LaunchStage* script = line.stages.size() == 1 ? python_script(line) : nullptr;
    const bool is_own = script != nullptr && command.depth == 0 && starts_training_itself(line) && !chooses_devices(*script);
    if (is_own) last = &line;
  }
  if (last == nullptr) return;
  const LaunchStage& script = *python_script(*last);
  in.report.add("SL036", in.d, script.span,
                fmt::format("the job has {} tasks on a node, and '{}' is started once: without srun the others are never started",
                            tasks.per_node, script.name));
}

// Programs that take their ranks from the variables of torchrun, by flags that they alone have.
bool reads_rank_variables(const LaunchStage& script) {
  const bool is_trainer = script.has("per_device_train_batch_size");
  const bool is_megatron = script.has("tensor_model_parallel_size") && script.has("micro_batch_size");
  return is_trainer || is_megatron;
}

// What a task learns of the job from SLURM, by itself: its rank, or where the others are.
bool says_slurm(std::string_view text) {
  static constexpr std::string_view kMarks[] = {"SLURM_PROCID", "SLURM_LOCALID",          "SLURM_NODELIST", "SLURM_JOB_NODELIST",
                                                "hostlist",     "scontrol show hostname", "idr_torch",      "submitit"};
  return std::any_of(std::begin(kMarks), std::end(kMarks),
                     [text](std::string_view mark) { return text.find(mark) != std::string_view::npos; });
}

// The script works with it, and does more than print it.
bool joins_in_shell(const JobScript& in) {
  for (const ShellCommand& command : in.part.script.commands) {
    const std::string name = command.words.empty() ? "" : command.words[0].text;
    if (name == "echo" || name == "printf" || name == "#" || command.is_dead) continue;
    const auto says = [](const ShellWord& word) { return says_slurm(word.text); };
    const bool does = std::any_of(command.words.begin(), command.words.end(), says) ||
                      std::any_of(command.assignments.begin(), command.assignments.end(),
                                  [](const ShellAssignment& one) { return says_slurm(one.value.text); });
    if (does) return true;
  }
  return false;
}

// The program beside the job script, where it is there.
bool joins_in_python(const JobScript& in, const LaunchStage& script) {
  if (in.setup.context.text_of_program == nullptr || script.name.find('$') != std::string::npos) return false;
  const std::string folder = in.d.path.substr(0, in.d.path.rfind('/') + 1);
  const auto says = [&in](const std::string& path) { return says_slurm(in.setup.context.text_of_program(path)); };
  return says(script.name) || (script.name[0] != '/' && !folder.empty() && says(folder + script.name));
}

// srun's tasks have SLURM's variables alone, unless somebody translates them: the script, a container's start-up, an MPI.
void sl_tasks_without_ranks(const JobScript& in, const LaunchLine& line) {
  const LaunchStage* srun = line.find(LaunchProgram::kSrun);
  const LaunchStage* script = python_script(line);
  if (script == nullptr || launcher_under(in, line) != nullptr || !reads_rank_variables(*script)) return;
  const SrunTasks tasks = tasks_of(in, *srun);
  if (tasks.per_node < 2 || script->has("local_rank") || reads_settings(in)) return;
  if (mentions_any(in, {"RANK", "WORLD_SIZE", "container-image", "singularity", "apptainer"})) return;
  if (script->name.find("internvl") != std::string::npos) return;  // internvl/dist_utils.py, _init_dist_slurm
  if (joins_in_shell(in) || joins_in_python(in, *script)) return;
  in.report.add("SL037", in.d, srun->span,
                fmt::format("srun starts {} tasks on a node, and '{}' finds no RANK and no WORLD_SIZE: each task trains by itself",
                            tasks.per_node, script->name));
}

}  // namespace

bool chooses_devices(const LaunchStage& script) {
  for (const char* name : {"devices", "gpus", "ngpus", "n_gpus", "num_gpus", "gpus_per_node", "ngpus_per_node", "nproc_per_node",
                           "world_size", "nprocs", "num_processes", "multiprocessing_distributed", "trainer.devices"}) {
    if (script.has(name)) return true;
  }
  return false;
}

void check_task_ranks(const JobScript& in, const std::vector<const LaunchLine*>& sruns) {
  sl_unstarted_tasks(in);
  for (const LaunchLine* line : sruns) sl_tasks_without_ranks(in, *line);
}

}  // namespace distsetup::lint
