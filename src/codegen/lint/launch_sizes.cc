#include "codegen/lint/launch_sizes.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/lint/batch_launch.h"
#include "codegen/lint/caller_values.h"
#include "codegen/lint/job_script.h"

namespace distsetup::lint {
namespace {

struct Launch {
  const Document& d;
  const ScriptPart& part;
  const LaunchLine& line;
  Findings& report;
  int64_t job_nodes = 0, job_gpus = 0;  // of the scheduler's lines; 0: they do not say

  const ShellScript& script() const { return part.script; }
};

int64_t directive_count(const ShellScript& script, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const Directive* one = script.directive(name);
    if (one == nullptr) continue;
    if (const auto n = option_count(name, one->value)) return *n;
  }
  return 0;
}

// What the caller may set says nothing about the file.
bool is_default(const Launch& in, const LaunchOption& option) { return comes_from_caller(in.d, in.script(), option); }

bool is_local(std::string_view host) {
  return host.rfind("localhost", 0) == 0 || host.rfind("127.0.0.1", 0) == 0 || host.rfind("[::1]", 0) == 0;
}

// Several launchers in one script are nodes that are played on one machine.
bool plays_nodes(const Launch& in) {
  const auto num = std::count_if(in.part.lines.begin(), in.part.lines.end(), [](const LaunchLine& line) {
    return line.find(LaunchProgram::kTorchrun) != nullptr || line.find(LaunchProgram::kAccelerate) != nullptr;
  });
  return num > 1 && in.d.text.find('&') != std::string::npos && in.script().directives.empty();
}

// accelerate counts the processes of all nodes, torchrun those of one.
int64_t ranks_of(const LaunchStage& run, int64_t nodes) {
  return run.program == LaunchProgram::kAccelerate ? number(run.value("num_processes")).value_or(0)
                                                   : nodes * number(run.value("nproc_per_node")).value_or(0);
}

void tr_localhost(const Launch& in, const LaunchStage& run, std::string_view nodes_option,
                  std::initializer_list<std::string_view> addresses) {
  const LaunchOption* wanted = run.find(nodes_option);
  const int64_t nodes = wanted == nullptr ? 0 : node_count(in.script(), wanted->value, in.job_nodes);
  if (nodes < 2 || run.has("standalone") || is_default(in, *wanted) || plays_nodes(in)) return;
  for (const std::string_view name : addresses) {
    const LaunchOption* address = run.find(name);
    if (address == nullptr || !is_local(address->value) || is_default(in, *address)) continue;
    const bool is_assigned = in.d.cut(address->span).find("MASTER_ADDR") != std::string_view::npos;
    if (is_assigned && in.job_nodes > 1) continue;  // SL016 says it where it is set
    // Several starts on one machine are how people try out two nodes; no machine has more GPUs than 16.
    constexpr int64_t kMostGpus = 16;
    const bool are_several = in.job_nodes > 1 || ranks_of(run, nodes) > kMostGpus;
    in.report.add("TR012", in.d, address->span,
                  fmt::format("'{}' is each node itself: {} nodes wait for each other and never meet", address->value, nodes),
                  {.error_if = are_several ? "" : "they are different machines"});
    return;
  }
}

// srun sets it for its tasks, over what the batch script says, where the job asks for GPUs (run on SLURM 22.05.8); what stands inside
// bash -c is set after that.
bool is_set_by_srun(const Launch& in, const ShellCommand& where) {
  return where.depth == 0 && in.job_gpus > 0 && is_under_srun(in.part, in.line);
}

// Devices of CUDA_VISIBLE_DEVICES before this command; 0 when it is not set to a plain list, or more than once.
int64_t visible_devices(const Launch& in) {
  const ShellAssignment* seen = nullptr;
  const ShellCommand& own = in.script().commands[in.line.command];
  size_t num_set = 0;
  for (const ShellCommand& command : in.script().commands) {
    for (const ShellAssignment& one : command.assignments) {
      if (one.name != "CUDA_VISIBLE_DEVICES" || is_set_by_srun(in, command)) continue;
      const bool is_own = &command == &own;
      const bool stays = command.words.empty() || command.words[0].text == "export";
      if (is_own || stays) seen = &one;
      num_set += is_own ? 0 : stays ? 1 : 0;
      if (is_own) num_set = 1;
    }
    if (&command == &own) break;
  }
  if (seen == nullptr || num_set != 1) return 0;
  const std::string& list = seen->value.text;
  if (list.empty() || list.find_first_not_of("0123456789, ") != std::string::npos) return 0;
  return 1 + std::count(list.begin(), list.end(), ',') - (list.back() == ',' ? 1 : 0);
}

void tr_devices(const Launch& in, const LaunchOption* processes, std::string_view program) {
  const int64_t n = processes == nullptr ? 0 : number(processes->value).value_or(0);
  const int64_t devices = visible_devices(in);
  if (n == 0 || devices == 0 || n == devices || is_default(in, *processes)) return;
  in.report.add(
      "TR013", in.d, processes->span,
      fmt::format("{} starts {} processes, CUDA_VISIBLE_DEVICES leaves {} GPU{}", program, n, devices, devices == 1 ? "" : "s"),
      {"", "", {}, n > devices ? std::optional<Severity>() : Severity::kNote});
}

void acc_processes(const Launch& in, const LaunchStage& run) {
  const LaunchOption* processes = run.find("num_processes");
  const int64_t machines = node_count(in.script(), run.value("num_machines"), in.job_nodes);
  if (processes == nullptr || machines < 2 || is_default(in, *processes)) return;
  const std::string variable = variable_of(processes->value);
  const bool is_variable = variable == "SLURM_GPUS_ON_NODE" || variable == "SLURM_GPUS_PER_NODE";
  const int64_t n = number(processes->value).value_or(0);
  const bool is_of_node = is_variable || (n > 0 && n == in.job_gpus);
  if (!is_of_node) return;
  in.report.add("ACC014", in.d, processes->span,
                fmt::format("--num_processes counts all {} machines: {} there leaves each of them {}", machines, processes->value,
                            n > 0 ? fmt::format("{}", n / machines) : "a part of its GPUs"));
}

// Several machines without an address: neither the command nor the configuration that it names has one.
void acc_address(const LintSetup& setup, const Launch& in, const LaunchStage& run) {
  const LaunchOption* machines = run.find("num_machines");
  const bool meets_otherwise = run.has("main_process_ip") || run.has("rdzv_conf") || run.has("deepspeed_hostfile") ||
                               run.has("rdzv_endpoint") || run.value("deepspeed_multinode_launcher") == "pdsh";
  if (machines == nullptr || meets_otherwise || is_default(in, *machines) || plays_nodes(in)) return;
  const auto num_machines = number(machines->value);
  if (!num_machines || *num_machines < 2) return;
  const std::string file = run.value("config_file"), name = file.substr(file.rfind('/') + 1);
  const auto named = std::find_if(setup.documents.begin(), setup.documents.end(), [&name](const auto& other) {
    return !name.empty() && other->is(file_kind::kAccelerate) && other->path.substr(other->path.rfind('/') + 1) == name;
  });
  const bool is_here = named != setup.documents.end();
  if (is_here) {
    const Value& root = (*named)->root;
    const bool is_said_there = real(root, "num_machines").value_or(1) > 1;  // at that file
    if (is_said_there || has(root, "main_process_ip") || has(root, "deepspeed_config.deepspeed_hostfile")) return;
  }
  in.report.add("ACC002", in.d, machines->span, fmt::format("{} machines and no --main_process_ip", *num_machines),
                {.error_if = is_here        ? ""
                             : name.empty() ? "no default configuration of accelerate's gives it"
                                            : fmt::format("'{}' does not give it", file)});
}

}  // namespace

void check_launch_sizes(const LintSetup& setup, const Document& d, Findings& report) {
  for (const ScriptPart& part : d.parts) {
    const int64_t nodes = directive_count(part.script, {"nodes"});
    const int64_t gpus = directive_count(part.script, {"gpus-per-node", "gres"});
    for (const LaunchLine& line : part.lines) {
      const Launch in{d, part, line, report, nodes > 0 ? nodes : setup.context.nodes, gpus > 0 ? gpus : setup.context.gpus_per_node};
      if (const LaunchStage* run = line.find(LaunchProgram::kTorchrun)) {
        tr_localhost(in, *run, "nnodes", {"rdzv_endpoint", "master_addr"});
        tr_devices(in, run->find("nproc_per_node"), "torchrun");
      }
      if (const LaunchStage* run = line.find(LaunchProgram::kAccelerate)) {
        tr_localhost(in, *run, "num_machines", {"main_process_ip"});
        if (!run->has("num_machines")) tr_devices(in, run->find("num_processes"), "accelerate");
        acc_processes(in, *run);
        acc_address(setup, in, *run);
      }
    }
  }
}

}  // namespace distsetup::lint
