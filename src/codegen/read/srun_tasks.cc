#include "codegen/read/srun_tasks.h"

#include <algorithm>
#include <string>

namespace distsetup::foreign {
namespace {

constexpr int64_t kMost = 1'000'000;  // no job has more of anything: larger numbers are mistakes of the file

struct TaskOption {
  bool is_given = false;
  int64_t n = 0;  // 0: a variable
};

// "8", and "h100:8" and "gpu:h100:8" of GPUs.
TaskOption task_option(const std::string& value) {
  const auto n = number(value.substr(value.rfind(':') + 1));
  return {true, n && *n > 0 && *n <= kMost ? *n : 0};
}

TaskOption directive_of(const ShellScript& script, std::string_view name) {
  const Directive* one = script.directive(name);
  return one == nullptr ? TaskOption{} : task_option(one->value);
}

// Its own, also where it is a variable that SLURM sets to one of the job's: srun -N $SLURM_NNODES.
TaskOption option_of(const ShellScript& script, const LaunchStage& srun, std::string_view name, std::string_view letter) {
  const LaunchOption* one = srun.find(name);
  if (one == nullptr && !letter.empty()) one = srun.find(letter);
  if (one == nullptr) return {};
  std::string_view variable = one->value;
  if (variable.starts_with("$")) variable.remove_prefix(1);
  if (variable.starts_with("{") && variable.ends_with("}")) variable = variable.substr(1, variable.size() - 2);
  const std::string_view of_job = one->value.starts_with("$") ? option_behind(variable) : std::string_view();
  const TaskOption known = of_job.empty() ? TaskOption{} : directive_of(script, of_job);
  return known.n > 0 ? known : task_option(one->value);
}

TaskOption first_given(const TaskOption& own, const TaskOption& jobs) { return own.is_given ? own : jobs; }

// A job that says neither nodes nor tasks has one task on one node (sbatch(1), --ntasks).
bool is_of_one_node(const ShellScript& script) {
  const bool has_any =
      std::any_of(script.directives.begin(), script.directives.end(), [](const Directive& one) { return !one.is_late; });
  return has_any && script.directive("nodelist") == nullptr && script.directive("nodefile") == nullptr;
}

SrunTasks tasks(const ShellScript& script, int64_t nodes_of_job, const TaskOption& own_nodes, const TaskOption& own_total,
                const TaskOption& own_per_node) {
  SrunTasks out;
  const TaskOption nodes = first_given(own_nodes, directive_of(script, "nodes"));
  const TaskOption total = own_total.is_given || own_per_node.is_given ? own_total : directive_of(script, "ntasks");
  const TaskOption per_node = first_given(own_per_node, own_total.is_given ? TaskOption{} : directive_of(script, "ntasks-per-node"));
  out.nodes = nodes.is_given ? nodes.n : total.is_given && total.n == 1 ? 1 : nodes_of_job;
  if (out.nodes == 0 && !nodes.is_given && !total.is_given && is_of_one_node(script)) out.nodes = 1;
  const bool counts_otherwise = script.directive("ntasks-per-gpu") != nullptr || script.directive("ntasks-per-socket") != nullptr;
  if (per_node.is_given) {
    // Beside a number of all tasks it is the most that a node gets.
    const bool is_most = total.is_given && total.n > 0 && out.nodes > 0;
    out.per_node = is_most ? std::min(per_node.n, (total.n + out.nodes - 1) / out.nodes) : per_node.n;
  } else if (total.is_given) {
    out.per_node = total.n == 1 ? 1 : out.nodes > 0 ? total.n / out.nodes : 0;
    if (total.n == 1) out.nodes = 1;
  } else if (!counts_otherwise) {
    out.per_node = 1;
  }
  return out;
}

}  // namespace

SrunTasks tasks_of(const ShellScript& script, const LaunchStage& srun, int64_t nodes) {
  return tasks(script, nodes, option_of(script, srun, "nodes", "N"), option_of(script, srun, "ntasks", "n"),
               option_of(script, srun, "ntasks_per_node", ""));
}

SrunTasks tasks_of_job(const ShellScript& script, int64_t nodes) { return tasks(script, nodes, {}, {}, {}); }

int64_t gpus_of_step(const ShellScript& script, const LaunchStage& srun) {
  const int64_t each = option_of(script, srun, "gpus_per_task", "").n, num_tasks = tasks_of(script, srun, 0).per_node;
  if (each < 1 || num_tasks < 1) return 0;
  const int64_t per_node = directive_of(script, "gpus-per-node").n;
  const int64_t of_job = per_node > 0 ? per_node : directive_of(script, "gres").n;
  return each * num_tasks == of_job ? 0 : each * num_tasks;
}

}  // namespace distsetup::foreign
