#include "codegen/lint/srun_tasks.h"

#include <algorithm>

namespace distsetup::lint {
namespace {

struct TaskOption {
  bool is_given = false;
  int64_t n = 0;  // 0: a variable
};

TaskOption task_option(const std::string& value) { return {true, number(value).value_or(0)}; }

TaskOption option_of(const LaunchStage& srun, std::string_view name, std::string_view letter) {
  const LaunchOption* one = srun.find(name);
  if (one == nullptr && !letter.empty()) one = srun.find(letter);
  return one == nullptr ? TaskOption{} : task_option(one->value);
}

TaskOption directive_of(const JobScript& in, std::string_view name) {
  const Directive* one = in.directive(name);
  return one == nullptr ? TaskOption{} : task_option(one->value);
}

TaskOption first_given(const TaskOption& own, const TaskOption& jobs) { return own.is_given ? own : jobs; }

SrunTasks tasks(const JobScript& in, const TaskOption& own_nodes, const TaskOption& own_total, const TaskOption& own_per_node) {
  SrunTasks out;
  const TaskOption nodes = first_given(own_nodes, directive_of(in, "nodes"));
  const TaskOption total = own_total.is_given || own_per_node.is_given ? own_total : directive_of(in, "ntasks");
  const TaskOption per_node = first_given(own_per_node, own_total.is_given ? TaskOption{} : directive_of(in, "ntasks-per-node"));
  out.nodes = nodes.is_given ? nodes.n : total.is_given && total.n == 1 ? 1 : in.setup.context.nodes;
  const bool counts_otherwise = in.directive("ntasks-per-gpu") != nullptr || in.directive("ntasks-per-socket") != nullptr;
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

SrunTasks tasks_of(const JobScript& in, const LaunchStage& srun) {
  return tasks(in, option_of(srun, "nodes", "N"), option_of(srun, "ntasks", "n"), option_of(srun, "ntasks_per_node", ""));
}

SrunTasks tasks_of_job(const JobScript& in) { return tasks(in, {}, {}, {}); }

}  // namespace distsetup::lint
