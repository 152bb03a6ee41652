#include "codegen/read/counted_keys.h"

#include <algorithm>
#include <string>

#include "codegen/shell/arithmetic.h"
#include "codegen/shell/starts_training.h"

namespace distsetup {

using foreign::LaunchLine;
using foreign::LaunchProgram;

long long count_of(const std::vector<FoundKey>& keys, std::string_view key) {
  const auto it = std::find_if(keys.begin(), keys.end(), [key](const FoundKey& one) { return one.key == key && one.unknown.empty(); });
  return it == keys.end() ? 0 : foreign::number(it->text).value_or(0);
}

// mpiexec -n 2 --ppn 1 torchrun: it starts launchers, one for each node. What a script of the user's starts is not known here.
// `mpiexec -n 2 bash -c "torchrun …"` starts what stands inside; --ppn 1 in a job with several GPUs on a node starts what starts the
// ranks there.
void count_launchers(const foreign::ScriptPart& part, const LaunchLine& line, long long gpus_of_node, std::vector<FoundKey>& keys) {
  const auto starts_one = [](const LaunchLine* one) {
    const foreign::LaunchStage& last = one->stages.back();
    const bool is_script = last.program == LaunchProgram::kScript && last.name.ends_with(".sh") && !foreign::is_wrapper(last);
    return is_script || one->find(LaunchProgram::kTorchrun) != nullptr || one->find(LaunchProgram::kAccelerate) != nullptr;
  };
  std::vector<const LaunchLine*> started = foreign::lines_inside(part.script, part.lines, line);
  started.push_back(&line);
  const bool is_one_of_node = count_of(keys, "ppn") == 1 || count_of(keys, "npernode") == 1 || count_of(keys, "perhost") == 1;
  if (std::none_of(started.begin(), started.end(), starts_one) && !(is_one_of_node && gpus_of_node > 1)) return;
  std::erase_if(keys, [](const FoundKey& one) {
    return one.key == "n" || one.key == "np" || one.key == "c" || one.key == "N" || one.key == "npernode" || one.key == "ppn" ||
           one.key == "perhost";
  });
}

namespace {

FoundKey* find(std::vector<FoundKey>& keys, std::initializer_list<std::string_view> names) {
  const auto it = std::find_if(keys.begin(), keys.end(), [&names](const FoundKey& one) {
    return std::find(names.begin(), names.end(), one.key) != names.end() && one.unknown.empty();
  });
  return it == keys.end() ? nullptr : &*it;
}

}  // namespace

// Accelerators that sites count under names of their own; which kind of GPU a plan has for them is the user's to say.
std::string as_gpus(const std::string& gres) {
  for (const std::string_view name : {"dcu", "npu", "mlu"}) {
    if (!gres.starts_with(name) || (gres.size() > name.size() && gres[name.size()] != ':')) continue;
    return gres.size() == name.size() ? "gpu" : "gpu:" + gres.substr(gres.rfind(':') + 1);
  }
  return gres;
}

// Where no #SBATCH line says them: GPUs by --gres.
void count_gpus_of_step(std::vector<FoundKey>& keys) {
  FoundKey* gres = find(keys, {"gres"});
  const std::string gpus = gres == nullptr ? "" : as_gpus(gres->text);
  if (!gpus.starts_with("gpu:") || find(keys, {"gpus_per_node"}) != nullptr) return;
  const std::string count = gpus.substr(gpus.rfind(':') + 1);
  if (!foreign::number(count)) return;
  gres->key = "gpus_per_node";
  gres->text = count;
}

// Nodes likewise, as tasks over tasks of a node.
void count_nodes_of_step(std::vector<FoundKey>& keys) {
  const FoundKey *tasks = find(keys, {"ntasks", "n"}), *per_node = find(keys, {"ntasks_per_node"});
  if (tasks == nullptr || per_node == nullptr || find(keys, {"nodes", "N"}) != nullptr) return;
  const auto all = foreign::number(tasks->text), each = foreign::number(per_node->text);
  if (!all || !each || *each < 1 || *all < 1 || *all % *each != 0) return;
  FoundKey nodes = *tasks;
  nodes.key = "nodes";
  nodes.text = std::to_string(*all / *each);
  keys.push_back(std::move(nodes));
}

bool is_step_of_one_node(const LaunchLine& line) {
  const foreign::LaunchStage *srun = line.find(LaunchProgram::kSrun), *torchrun = line.find(LaunchProgram::kTorchrun),
                             *accelerate = line.find(LaunchProgram::kAccelerate);
  if (srun == nullptr || (srun->value("N") != "1" && srun->value("nodes") != "1")) return false;
  const std::string nodes = torchrun != nullptr     ? torchrun->value("nnodes")
                            : accelerate != nullptr ? accelerate->value("num_machines")
                                                    : "";
  return !nodes.empty() && nodes != "1";
}

// deepspeed --include localhost:0,1: two GPUs of this node.
void count_included(std::vector<FoundKey>& keys) {
  // One host is one node, whatever GPUs it is asked for (launcher/runner.py, parse_inclusion_exclusion).
  const auto host = std::find_if(keys.begin(), keys.end(), [](const FoundKey& one) {
    const bool is_local = one.text == "localhost" || one.text.starts_with("localhost:");
    return (one.key == "include" || one.key == "i") && is_local && one.text.find('@') == std::string::npos;
  });
  if (host != keys.end() && find(keys, {"num_nodes", "nnodes"}) == nullptr) {
    FoundKey nodes = *host;
    nodes.key = "num_nodes";
    nodes.text = "1";
    nodes.unknown.clear();
    keys.push_back(std::move(nodes));
  }
  for (FoundKey& one : keys) {
    const bool is_local = (one.key == "include" || one.key == "i") && one.text.starts_with("localhost:");
    const std::string_view gpus = std::string_view(one.text).substr(is_local ? one.text.find(':') + 1 : 0);
    if (!is_local || gpus.empty() || gpus.find_first_not_of("0123456789,") != std::string_view::npos) continue;
    one.text = std::to_string(std::count(gpus.begin(), gpus.end(), ',') + 1);
    one.key = "num_gpus";
  }
}

namespace {

// A number of the script, were its launcher started on so many machines.
class OnMachines {
 public:
  OnMachines(const foreign::ShellScript& script, std::string machines, int64_t num_machines)
      : script_(script), machines_(std::move(machines)), num_machines_(num_machines) {}

  std::optional<int64_t> number_of(const std::string& text, int depth = 0) const {
    constexpr int kDeepest = 8;
    if (depth > kDeepest) return std::nullopt;
    if (text == machines_) return num_machines_;
    if (const auto n = foreign::number(text)) return *n;
    if (text.starts_with("$((") && text.ends_with("))")) {
      return foreign::arithmetic(text.substr(3, text.size() - 5), [&](std::string_view name) -> std::optional<std::string> {
        const auto n = number_of("$" + std::string(name), depth + 1);
        return n ? std::optional(std::to_string(*n)) : std::nullopt;
      });
    }
    const bool is_braced = text.starts_with("${") && text.ends_with("}");
    const std::string name = is_braced ? text.substr(2, text.size() - 3) : text.substr(std::min<size_t>(1, text.size()));
    if (text.empty() || text[0] != '$') return std::nullopt;
    if ("$" + name == machines_ || "${" + name + "}" == machines_) return num_machines_;
    const foreign::ShellAssignment* known = script_.assignment(name);
    if (known == nullptr || known->is_array) return std::nullopt;
    return number_of(known->known.empty() ? known->value.text : known->known, depth + 1);
  }

 private:
  const foreign::ShellScript& script_;
  const std::string machines_;  // the text of --num_machines
  const int64_t num_machines_;
};

}  // namespace

void count_processes_of_machine(const foreign::ShellScript& script, std::vector<FoundKey>& keys) {
  const auto unknown = [&keys](std::string_view name) {
    return std::find_if(keys.begin(), keys.end(), [name](const FoundKey& one) { return one.key == name && !one.unknown.empty(); });
  };
  const auto processes = unknown("num_processes"), machines = unknown("num_machines");
  if (processes == keys.end() || machines == keys.end()) return;
  const auto on = [&](int64_t n) { return OnMachines(script, machines->text, n).number_of(processes->text).value_or(0); };
  constexpr int64_t kSome = 3;
  const int64_t of_one = on(1);
  if (of_one < 1 || on(kSome) != of_one * kSome) return;
  processes->key = "processes_of_machine";
  processes->text = std::to_string(of_one);
  processes->unknown.clear();
}

// Each set has -g GPUs, and a host has -r sets, or what the job's nodes share of -n. Tasks (-a) have the GPUs of their set in common.
void count_resource_sets(std::vector<FoundKey>& keys, long long nodes) {
  const auto count = [&keys](std::initializer_list<std::string_view> names) {
    const FoundKey* one = find(keys, names);
    return one == nullptr ? std::nullopt : foreign::number(one->text);
  };
  constexpr long long kMost = 1'000'000;
  const auto sets = count({"n", "nrs"}), gpus = count({"g", "gpu_per_rs"}), of_host = count({"r", "rs_per_host"});
  for (FoundKey& one : keys) {
    const bool is_count = one.key == "n" || one.key == "np" || one.key == "c" || one.key == "r" || one.key == "g" || one.key == "a";
    if (is_count && one.key.size() <= 2) one.key = "jsrun_" + one.key;
  }
  if (!gpus || *gpus < 1 || *gpus > kMost) return;
  const bool divides = sets && nodes > 0 && *sets > 0 && *sets <= kMost && *sets % nodes == 0;
  if (!divides && !(of_host && *of_host > 0 && *of_host <= kMost)) return;
  FoundKey per_node = *find(keys, {"jsrun_g", "gpu_per_rs"});
  per_node.key = "npernode";
  per_node.text = std::to_string(*gpus * (of_host ? *of_host : *sets / nodes));
  keys.push_back(std::move(per_node));
}

// Of a job that SLURM starts its own nodes count, which the models of a run by rollouts share or divide among them.
bool is_of_actor(std::string_view key) {
  return key == "actor_num_nodes" || key == "actor_num_gpus_per_node" || key == "actor.num_nodes" || key == "actor.num_gpus_per_node";
}

bool is_count_of_step(const FoundKey& key) { return key.key == "N" || key.key == "nodes" || key.key == "n" || key.key == "ntasks"; }

}  // namespace distsetup
