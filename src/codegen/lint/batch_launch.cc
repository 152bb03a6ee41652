#include "codegen/lint/batch_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "codegen/shell/expand.h"
#include "codegen/shell/starts_training.h"
#include "codegen/shell/wrappers.h"

namespace distsetup::lint {
namespace {

std::string_view base_of(std::string_view word) { return word.substr(word.rfind('/') + 1); }

bool is_launcher(std::string_view word) {
  static constexpr std::array<std::string_view, 7> kLaunchers = {"torchrun",
                                                                 "tune",
                                                                 "deepspeed",
                                                                 "accelerate",
                                                                 "torch.distributed.run",
                                                                 "torch.distributed.launch",
                                                                 "accelerate.commands.launch"};
  return std::find(kLaunchers.begin(), kLaunchers.end(), base_of(word)) != kLaunchers.end();
}

// The command whose words hold this one: bash -c "…"; nullptr: none.
const ShellCommand* holder_of(const JobScript& in, const ShellCommand& inner) {
  const ShellCommand* found = nullptr;
  for (const ShellCommand& outer : in.part.script.commands) {
    const bool is_around = outer.depth < inner.depth && !outer.words.empty() &&
                           outer.words.front().span.begin <= inner.words.front().span.begin &&
                           outer.words.back().span.end >= inner.words.back().span.end;
    if (is_around && (found == nullptr || outer.depth > found->depth)) found = &outer;
  }
  return found;
}

// Run by the batch script's shell on its own node: nothing in front that goes elsewhere.
bool runs_on_first_node(const JobScript& in, const LaunchLine& line) {
  const ShellCommand& command = in.command(line);
  if (command.in_substitution || command.words.empty()) return false;
  if (line.find(LaunchProgram::kSrun) != nullptr || line.find(LaunchProgram::kMpirun) != nullptr) return false;
  if (command.depth > 0) {
    const ShellCommand* holder = holder_of(in, command);
    if (holder == nullptr || holder->depth > 0 || holder->in_substitution || !foreign::starts_rest_of_line(holder->words[0].text))
      return false;
  }
  bool is_wrapped = false;
  for (const ShellWord& word : command.expanded) {
    if (is_launcher(word.text)) return true;
    is_wrapped = is_wrapped || foreign::starts_rest_of_line(word.text);
    const bool is_setting = word.text.find('=') != std::string::npos && word.text.find('$') == std::string::npos;
    const bool is_python = word.text.find("python") != std::string::npos || word.text == "-m" || word.text == "-u";
    if (!is_wrapped && !is_setting && !is_python) return false;
  }
  return false;
}

// The script goes to the nodes by itself: it starts itself or its functions with srun, or hands commands to ssh.
bool reaches_nodes_otherwise(const JobScript& in, const std::vector<const LaunchLine*>& sruns) {
  const std::string own_name = in.d.path.substr(in.d.path.rfind('/') + 1);
  for (const LaunchLine* line : sruns) {
    if (launcher_under(in, *line) != nullptr) return true;
    for (const ShellWord& word : in.command(*line).words) {
      if (word.text.find("$0") != std::string::npos || word.text.find("BASH_SOURCE") != std::string::npos ||
          word.text.find(own_name) != std::string::npos)
        return true;
    }
  }
  for (const char* mark :
       {"export -f", "pdsh", "clush", "ssh ", "mpirun", "mpiexec", "sbatch ", "parallel ", "SLURM_PROCID\" ]", "SLURM_PROCID ]"}) {
    if (mentions(in, mark)) return true;
  }
  return false;
}

bool names_nodes(const LaunchStage& deepspeed) {
  return deepspeed.has("hostfile") || deepspeed.has("H") || deepspeed.has("num_nodes") || deepspeed.has("launcher");
}

void sl_first_node(const JobScript& in, const LaunchLine& line, int64_t nodes) {
  const LaunchStage* torchrun = line.find(LaunchProgram::kTorchrun);
  const LaunchStage* accelerate = line.find(LaunchProgram::kAccelerate);
  const LaunchStage* deepspeed = line.find(LaunchProgram::kDeepspeed);
  const LaunchStage* waits = torchrun != nullptr ? torchrun : accelerate;
  if (waits != nullptr) {
    const std::string wanted = waits->value(torchrun != nullptr ? "nnodes" : "num_machines");
    const int64_t n = node_count(in.part.script, wanted, nodes);
    if (torchrun != nullptr && !waits->has("nnodes") && !waits->has("standalone") &&
        in.d.text.find("PET_NNODES") == std::string::npos && !has_unknown_words(in, *waits)) {
      in.report.add(
          "SL026", in.d, waits->span, fmt::format("torchrun without --nnodes uses the first of {} nodes: the others idle", nodes),
          {"put srun in front and add --nnodes=\"$SLURM_JOB_NUM_NODES\" with a rendezvous, or ask for one node", "", {}, {}});
      return;
    }
    const bool by_ssh = accelerate != nullptr && (waits->has("deepspeed_hostfile") || waits->has("mpirun_hostfile"));
    if (n < 2 || waits->has("standalone") || by_ssh) return;
    in.report.add("SL025", in.d, waits->span,
                  fmt::format("{} runs on the first of {} nodes only, and waits there for the others: srun starts it on each",
                              torchrun != nullptr ? "torchrun" : "accelerate launch", n));
  }
  // One that reaches them, beside it: the branch of several nodes, and this the branch of one.
  const bool is_reached = std::any_of(in.part.lines.begin(), in.part.lines.end(), [](const LaunchLine& one) {
    const LaunchStage* stage = one.find(LaunchProgram::kDeepspeed);
    return stage != nullptr && names_nodes(*stage);
  });
  if (deepspeed == nullptr || is_reached || mentions(in, "/job/hostfile")) return;
  in.report.add("SL026", in.d, deepspeed->span,
                fmt::format("deepspeed without a hostfile uses the first of {} nodes: the others idle", nodes));
}

void sl_unset_address(const JobScript& in) {
  // An image's start-up (enroot's hook for PyTorch) may set it in the container.
  if (in.nodes < 2 || reads_settings(in) || in.d.text.find("--container-image") != std::string::npos) return;
  for (const LaunchLine& line : in.part.lines) {
    for (const LaunchStage& stage : line.stages) {
      for (const char* name : {"master_addr", "rdzv_endpoint", "main_process_ip"}) {
        const LaunchOption* option = stage.find(name);
        const std::string value = option == nullptr ? "" : option->value;
        if (value.rfind("$MASTER_ADDR", 0) != 0 && value.rfind("${MASTER_ADDR}", 0) != 0) continue;
        in.report.add("SL027", in.d, option->span, "MASTER_ADDR is set nowhere: neither SLURM nor this script gives it a value");
        return;
      }
    }
  }
}

// python train.py in a job of several nodes that starts nothing on the others, unless the program does it by itself.
void sl_one_program(const JobScript& in, int64_t nodes) {
  for (const char* mark : {"srun", "ray start", "ray.init", "submitit", "dask", "mpirun", "mpiexec", "mpi4py", "hostfile", "HOSTFILE",
                           "NODEFILE", "SLURM_ARRAY"}) {
    if (in.d.text.find(mark) != std::string::npos) return;
  }
  for (const LaunchLine& line : in.part.lines) {
    const ShellCommand& command = in.command(line);
    const LaunchStage* script = line.stages.size() == 1 ? line.find(LaunchProgram::kScript) : nullptr;
    const bool is_python = script != nullptr && !command.words.empty() && base_of(command.expanded[0].text).rfind("python", 0) == 0;
    if (!is_python || command.depth > 0 || command.in_substitution || !starts_training_itself(line)) continue;
    const bool counts_nodes = script->has("num_nodes") || script->has("nnodes") || script->has("nodes");
    if (!counts_nodes && in.gpus < 1) continue;
    in.report.add("SL026", in.d, script->span, fmt::format("'{}' runs on the first of {} nodes: the others idle", script->name, nodes),
                  {"put srun in front, or ask for one node", "", {}, Severity::kWarning});
    return;
  }
}

}  // namespace

bool reads_settings(const JobScript& in) {
  for (const ShellCommand& command : in.part.script.commands) {
    if (command.words.empty()) continue;
    const std::string& name = command.words[0].text;
    const std::string file = command.words.size() > 1 ? command.words[1].text : "";
    const auto ends_with = [&file](std::string_view end) {
      return file.size() >= end.size() && file.substr(file.size() - end.size()) == end;
    };
    const bool is_environment = ends_with("activate") || ends_with("conda.sh") || ends_with(".bashrc") || ends_with("/modules.sh");
    if ((name == "source" || name == ".") && !is_environment) return true;
    if (name == "eval" || name == "read" || name == "set_master_addr") return true;
  }
  return in.d.text.find("MASTER_ADDR:=") != std::string::npos || in.d.text.find("MASTER_ADDR=") != std::string::npos;
}

std::string variable_of(std::string_view text) {
  if (text.size() < 2 || text[0] != '$') return "";
  text.remove_prefix(1);
  if (text.front() == '{' && text.back() == '}') text = text.substr(1, text.size() - 2);
  const bool is_name =
      text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
  return is_name ? std::string(text) : "";
}

int64_t node_count(const ShellScript& script, const std::string& value, int64_t nodes_of_job) {
  constexpr int kDepth = 4;
  std::string text = value;
  for (int i = 0; i < kDepth; ++i) {
    if (const auto n = number(text)) return *n;
    const std::string name = variable_of(text);
    if (option_behind(name) == "nodes") return nodes_of_job;
    const ShellAssignment* known = name.empty() ? nullptr : script.assignment(name);
    if (known == nullptr || known->is_array) return 0;
    text = known->value.text;
  }
  return 0;
}

void check_batch_launch(const JobScript& in, const std::vector<const LaunchLine*>& sruns) {
  sl_unset_address(in);
  const int64_t nodes = in.count("nodes");
  if (nodes < 2 || reaches_nodes_otherwise(in, sruns)) return;
  for (const LaunchLine& line : in.part.lines) {
    if (!line.stages.empty() && runs_on_first_node(in, line)) sl_first_node(in, line, nodes);
  }
  if (sruns.empty()) sl_one_program(in, nodes);
}

std::optional<long long> option_count(std::string_view option, const std::string& value) {
  if (option == "gres" && value.rfind("gpu", 0) != 0) return std::nullopt;
  const size_t colon = value.rfind(':');
  return number(colon == std::string::npos ? value : value.substr(colon + 1));
}

}  // namespace distsetup::lint
