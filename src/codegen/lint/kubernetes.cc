// Kubernetes manifests that train (Job, JobSet, TrainJob, PyTorchJob, Volcano), and SkyPilot tasks. What their launch lines say
// against their pods is launchers.cc.
#include "codegen/lint/kubernetes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "codegen/lint/task_ranks.h"
#include "codegen/read/manifest.h"
#include "codegen/shell/words.h"

namespace distsetup::lint {
namespace {

// Keys with dots in their name ("nvidia.com/gpu").
const Value* exact(const Value& map, std::string_view key) {
  for (const auto& entry : map.entries) {
    if (entry.first == key) return &entry.second;
  }
  return nullptr;
}

int64_t gpus_of(const Value& container) {
  for (const char* which : {"resources.limits", "resources.requests"}) {
    const TreeNode at = node(container, which);
    const Value* gpus = at ? exact(*at.value, "nvidia.com/gpu") : nullptr;
    if (gpus == nullptr && at) gpus = exact(*at.value, "amd.com/gpu");
    if (gpus != nullptr) return static_cast<int64_t>(real_of(*gpus).value_or(0));
  }
  return 0;
}

bool has_shm(const Value& pod) {
  bool has_memory = false, is_mounted = false;
  if (const TreeNode volumes = node(pod, "volumes")) {
    for (const Value& volume : volumes.value->items)
      has_memory = has_memory || text(volume, "emptyDir.medium") == "Memory" || has(volume, "hostPath");
  }
  if (const TreeNode containers = node(pod, "containers")) {
    for (const Value& container : containers.value->items) {
      const TreeNode mounts = node(container, "volumeMounts");
      if (!mounts) continue;
      for (const Value& mount : mounts.value->items) is_mounted = is_mounted || text(mount, "mountPath") == "/dev/shm";
    }
  }
  return has_memory && is_mounted;
}

// nvidia-smi, and what waits and prints beside it: there is no data loader and nothing to exchange.
bool looks_at_gpus_only(const Value& container) {
  static constexpr std::array<std::string_view, 13> kLooking = {"nvidia-smi", "sleep", "echo", "ls",   "cat",   "env", "date",
                                                                "hostname",   "true",  "exit", "tail", "lspci", "nvcc"};
  static constexpr std::array<std::string_view, 6> kShells = {"bash", "sh", "-c", "-lc", "-ec", "-xc"};
  bool is_looking = false, is_first = true;
  for (const char* which : {"command", "args"}) {
    const TreeNode words = node(container, which);
    if (!words || words.value->kind != Value::Kind::kList) continue;
    for (const Value& item : words.value->items) {
      std::string text = item.text;
      for (char& c : text) c = c == ';' || c == '&' || c == '|' || c == '\n' ? ';' : c;
      const bool is_whole = text.find_first_of("; ") == std::string::npos;
      for (const std::string& command : split(text, ';')) {
        const size_t begin = std::min(command.find_first_not_of(' '), command.size());
        std::string word = command.substr(begin, command.find(' ', begin) - begin);
        word = word.substr(word.rfind('/') + 1);
        if (word.empty() || std::find(kShells.begin(), kShells.end(), word) != kShells.end()) continue;
        if (is_whole && !is_first) continue;  // an argument of the command in front
        is_first = false;
        if (std::find(kLooking.begin(), kLooking.end(), word) == kLooking.end()) return false;
        is_looking = is_looking || word == "nvidia-smi";
      }
    }
  }
  return is_looking;
}

void k8s_pods(const Document& d, const Value& root, Findings& report) {
  each_map(root, [&](const Value& map) {
    const TreeNode containers = node(map, "containers");
    if (!containers || containers.value->kind != Value::Kind::kList) return;
    const bool uses_gpus = std::any_of(containers.value->items.begin(), containers.value->items.end(),
                                       [](const Value& one) { return gpus_of(one) > 0 && !looks_at_gpus_only(one); });
    if (!uses_gpus || has_shm(map) || is_true(map, "hostIPC")) return;
    int64_t gpus = 0;
    for (const Value& one : containers.value->items) gpus = std::max(gpus, gpus_of(one));
    report.add("K8S001", d, key_span(d, containers),
               gpus == 1 ? "no memory-backed volume on /dev/shm: workers of a data loader get 64 MiB of shared memory"
                         : "no memory-backed volume on /dev/shm: NCCL gets 64 MiB of shared memory",
               {"", "", {}, gpus == 1 ? std::optional<Severity>(Severity::kNote) : std::nullopt});
  });
}

// A variable of a container is a text; kubectl and every operator's schema refuse a number or a truth value.
void k8s_variables(const Document& d, const Value& root, Findings& report) {
  each_map(root, [&](const Value& map) {
    const TreeNode env = node(map, "env");
    if (!env || env.value->kind != Value::Kind::kList) return;
    for (const Value& one : env.value->items) {
      const TreeNode value = node(one, "value");
      if (!value || !has(one, "name") || value.value->kind != Value::Kind::kScalar || value.value->quoted) continue;
      const std::string word = value.text();
      const bool is_number = !word.empty() && word.find_first_not_of("0123456789.-") == std::string::npos && real_of(*value.value);
      const TextSpan at = value_span(d, *value.value);
      if ((!is_number && word != "true" && word != "false") || d.cut(at) != word) continue;
      report.add("K8S008", d, at,
                 fmt::format("'{}' is {}, and a variable is a text: Kubernetes refuses the manifest", text(one, "name"), word),
                 {fmt::format("write \"{}\"", word), "", {{at.begin, at.end, "\"" + word + "\""}}, {}});
    }
  });
}

// "--nnodes=$NNODES" in a list that no shell reads.
std::string variable_for_shell(const std::string& word) {
  for (size_t at = word.find('$'); at != std::string::npos; at = word.find('$', at + 1)) {
    if (at + 1 < word.size() && word[at + 1] == '$') {  // "$$" is one that stays
      ++at;
      continue;
    }
    const size_t begin = at + (at + 1 < word.size() && word[at + 1] == '{' ? 2 : 1);
    size_t end = begin;
    while (end < word.size() && is_name_char(word[end])) ++end;
    const bool is_closed =
        begin == at + 1 || (end < word.size() && (word[end] == '}' || word[end] == ':'));  // "${trial.lr}" is a template's
    if (is_closed && end > begin && (word[begin] < '0' || word[begin] > '9')) return word.substr(begin, end - begin);
  }
  return "";
}

void k8s_unexpanded(const Document& d, const Value& root, Findings& report) {
  each_map(root, [&](const Value& map) {
    const TreeNode command = node(map, "command");
    if (!command || command.value->kind != Value::Kind::kList || command.value->items.empty() || !has(map, "image")) return;
    std::vector<const Value*> words;
    for (const char* key : {"command", "args"}) {
      const TreeNode list = node(map, key);
      if (!list || list.value->kind != Value::Kind::kList) continue;
      for (const Value& one : list.value->items) words.push_back(&one);
    }
    const bool has_shell = std::any_of(words.begin(), words.end(), [](const Value* one) {
      const std::string base = one->text.substr(one->text.rfind('/') + 1);
      return base == "sh" || base == "bash" || base == "ash" || base == "dash" || base == "zsh" || base == "envsubst" ||
             base == "-c" || base == "-lc" || base.ends_with(".sh") || one->text.find('\n') != std::string::npos ||
             one->text.find(' ') != std::string::npos;
    });
    if (has_shell) return;
    for (const Value* one : words) {
      const std::string name = one->kind == Value::Kind::kScalar ? variable_for_shell(one->text) : "";
      if (name.empty()) continue;
      report.add(
          "K8S012", d, value_span(d, *one),
          fmt::format("'{}' stays as it is written: no shell reads the list, and Kubernetes puts in $({}) only", one->text, name),
          {fmt::format("write $({}), or start it with sh -c", name), "", {}, {}});
      return;
    }
  });
}

void k8s_requests(const Document& d, const Value& root, Findings& report) {
  each_map(root, [&](const Value& map) {
    const TreeNode asked = node(map, "resources.requests"), limits = node(map, "resources.limits");
    for (const char* name : {"nvidia.com/gpu", "amd.com/gpu"}) {
      const Value *gpus = asked ? exact(*asked.value, name) : nullptr, *limit = limits ? exact(*limits.value, name) : nullptr;
      const auto wanted = gpus == nullptr ? std::nullopt : real_of(*gpus), most = limit == nullptr ? std::nullopt : real_of(*limit);
      if (wanted && most && *wanted != *most)
        report.add("K8S013", d, value_span(d, *gpus),
                   fmt::format("{} of '{}' are requested and the limit is {}", gpus->text, name, limit->text));
      if (gpus == nullptr || wanted.value_or(1) <= 0 || limit != nullptr) continue;
      report.add("K8S009", d, value_span(d, *gpus),
                 fmt::format("'{}' is requested and has no limit: Kubernetes refuses the pod", name));
    }
  });
}

// What the operator of a TrainJob tells torchrun by PET_ variables; nothing where only it knows.
std::optional<int64_t> said_by_operator(const Value& root, std::string_view option) {
  const auto at = [&root](const char* path) {
    const auto n = real(root, path);
    return n ? std::optional<int64_t>(static_cast<int64_t>(*n)) : std::nullopt;
  };
  if (option == "nnodes") return at("spec.trainer.numNodes");
  if (option == "nproc_per_node") {
    if (const auto n = at("spec.trainer.numProcPerNode")) return n;
    for (const char* which : {"spec.trainer.resourcesPerNode.limits", "spec.trainer.resourcesPerNode.requests"}) {
      const TreeNode resources = node(root, which);
      const Value* gpus = resources ? exact(*resources.value, "nvidia.com/gpu") : nullptr;
      if (const auto n = gpus == nullptr ? std::nullopt : real_of(*gpus)) return static_cast<int64_t>(*n);
    }
  }
  if (option == "node_rank" && at("spec.trainer.numNodes") == 1) return 0;
  return std::nullopt;
}

// Flags win over the operator's variables: one that repeats them is idle, and one that reads them says the same.
void k8s_torchrun_option(const Document& d, const Value& root, const LaunchOption& option, Findings& report) {
  const bool is_set = option.name == "nnodes" || option.name == "nproc_per_node" || option.name == "node_rank" ||
                      option.name == "master_addr" || option.name == "master_port" || option.name.rfind("rdzv", 0) == 0;
  if (!is_set || option.value.find("PET_") != std::string::npos || d.cut(option.value_span).find("PET_") != std::string_view::npos)
    return;
  const auto own = number(option.value);
  const auto wanted = said_by_operator(root, option.name);
  const bool is_idle = own && wanted && *own == *wanted;
  const std::string runtime = text(root, "spec.runtimeRef.name");
  const bool is_of_torch = runtime.empty() || runtime.find("torch") != std::string::npos;  // others set no PET_ variables
  const bool breaks =
      own && is_of_torch && ((option.name == "nnodes" && wanted && !is_idle) || (option.name == "node_rank" && !is_idle));
  report.add("K8S002", d, option.span,
             fmt::format("the operator sets what '{}' says: a TrainJob's command is torchrun and the script", option.spelled),
             {.severity = is_idle ? std::optional<Severity>(Severity::kNote) : std::nullopt,
              .error_if = breaks || is_idle ? "" : "it says something else"});
}

// Where a document of a stream ends: the next one begins.
size_t end_of(const Document& d, const Value& root) {
  const size_t begin = d.offset(root.location);
  size_t end = d.text.size();
  for (const Value& other : d.roots) {
    const size_t at = d.offset(other.location);
    if (at > begin) end = std::min(end, at);
  }
  return end;
}

void k8s_train_job(const Document& d, const Value& root, Findings& report) {
  const TreeNode env = node(root, "spec.trainer.env");
  if (env) {
    for (const Value& one : env.value->items) {
      const std::string name = text(one, "name");
      if (name.rfind("PET_", 0) == 0)
        report.add(
            "K8S002", d, value_span(d, *node(one, "name").value), fmt::format("the operator sets {}, and refuses it here", name),
            {.error_if = text(root, "spec.runtimeRef.name").find("torch") == std::string::npos ? "the runtime is one of torch" : ""});
    }
  }
  for (const ScriptPart& part : d.parts) {
    for (const LaunchLine& line : part.lines) {
      const LaunchStage* run = line.find(LaunchProgram::kTorchrun);
      if (run == nullptr) continue;
      const bool is_of_this = run->span.begin >= d.offset(root.location) && run->span.end <= end_of(d, root);
      if (!is_of_this) continue;
      for (const LaunchOption& option : run->options) k8s_torchrun_option(d, root, option, report);
    }
  }
}

void k8s_pytorch_job(const Document& d, const Value& root, Findings& report) {
  if (const TreeNode per_node = node(root, "spec.nprocPerNode"); per_node && !per_node.value->quoted && real_of(*per_node.value)) {
    const TextSpan at = value_span(d, *per_node.value);
    report.add("K8S003", d, at, fmt::format("'nprocPerNode' must be a text, it is the number {}", per_node.text()),
               {fmt::format("write \"{}\"", per_node.text()), "", {{at.begin, at.end, "\"" + per_node.text() + "\""}}, {}});
  }
  if (const TreeNode masters = node(root, "spec.pytorchReplicaSpecs.Master.replicas");
      masters && real_of(*masters.value).value_or(1) != 1)
    report.add("K8S003", d, value_span(d, *masters.value), fmt::format("a PyTorchJob has one Master, not {}", masters.text()),
               {.help = "write 1, and give the Worker as many more"});
  int64_t gpus = 0;
  each_map(root, [&](const Value& map) {
    const TreeNode containers = node(map, "containers");
    if (!containers || containers.value->items.empty()) return;
    for (const Value& one : containers.value->items) gpus = std::max(gpus, gpus_of(one));
    const bool has_name = std::any_of(containers.value->items.begin(), containers.value->items.end(),
                                      [](const Value& one) { return text(one, "name") == "pytorch"; });
    if (!has_name) {
      const TreeNode name = node(containers.value->items[0], "name");
      report.add("K8S003", d, name ? value_span(d, *name.value) : key_span(d, containers), "the container must be called 'pytorch'",
                 {.help = "name the container pytorch"});
    }
  });
  bool has_launcher = d.text.find("torchrun") != std::string::npos || d.text.find("distributed.run") != std::string::npos;
  for (const ScriptPart& part : d.parts) {
    for (const LaunchLine& line : part.lines) {
      const bool launches = line.find(LaunchProgram::kTorchrun) != nullptr || line.find(LaunchProgram::kAccelerate) != nullptr ||
                            line.find(LaunchProgram::kDeepspeed) != nullptr;
      const LaunchStage* script = line.find(LaunchProgram::kScript);
      has_launcher = has_launcher || launches || (script != nullptr && chooses_devices(*script));
    }
  }
  if (gpus > 1 && !has_launcher) {
    report.add("K8S004", d, key_span(d, node(root, "kind")),
               fmt::format("RANK of a PyTorchJob's pod is the rank of the node, and a pod has {} GPUs", gpus));
  }
}

int64_t k8s_nodes(const Value& root) {
  const std::string kind = text(root, "kind");
  if (kind == "TrainJob") return static_cast<int64_t>(real(root, "spec.trainer.numNodes").value_or(1));
  if (kind == "PyTorchJob") {
    return static_cast<int64_t>(real(root, "spec.pytorchReplicaSpecs.Master.replicas").value_or(0) +
                                real(root, "spec.pytorchReplicaSpecs.Worker.replicas").value_or(0));
  }
  if (kind == "Job") return static_cast<int64_t>(real(root, "spec.parallelism").value_or(1));
  double nodes = 0;
  if (const TreeNode jobs = node(root, "spec.replicatedJobs")) {
    for (const Value& job : jobs.value->items)
      nodes += real(job, "replicas").value_or(1) * real(job, "template.spec.parallelism").value_or(1);
  }
  return static_cast<int64_t>(nodes);
}

bool is_gang(const Document& d) {
  for (const char* mark : {"kueue.x-k8s.io/queue-name", "podGroupPolicy", "schedulingPolicy", "minAvailable", "scheduling.x-k8s.io",
                           "pod-group", "schedulerName: volcano", "coscheduling", "gang"}) {
    if (d.text.find(mark) != std::string::npos) return true;
  }
  return false;
}

// Pods that train together have GPUs, an operator or a launcher; others of a Job may well start one after the other.
bool waits_for_others(const Document& d, const Value& root) {
  const std::string kind = text(root, "kind");
  bool waits = kind == "TrainJob" || kind == "PyTorchJob" || kind == "MPIJob", has_containers = false;
  each_map(root, [&](const Value& map) {
    if (const TreeNode containers = node(map, "containers"); containers && containers.value->kind == Value::Kind::kList) {
      has_containers = true;
      waits = waits || std::any_of(containers.value->items.begin(), containers.value->items.end(),
                                   [](const Value& one) { return gpus_of(one) > 0; });
    }
  });
  return waits || !has_containers || std::any_of(d.parts.begin(), d.parts.end(), [](const ScriptPart& part) {
           return std::any_of(part.lines.begin(), part.lines.end(),
                              [](const LaunchLine& line) { return launcher_of(line) != nullptr; });
         });
}

void k8s_restarts(const Document& d, const Value& root, Findings& report) {
  if (text(root, "kind") != "JobSet" || real(root, "spec.failurePolicy.maxRestarts").value_or(0) <= 0) return;
  const TreeNode jobs = node(root, "spec.replicatedJobs");
  if (!jobs || text(root, "spec.failurePolicy.restartStrategy") == "InPlaceRestart") return;  // which wants a limit that is never met
  for (const Value& job : jobs.value->items) {
    const TreeNode limit = node(job, "template.spec.backoffLimit");
    const double n = limit ? real_of(*limit.value).value_or(6) : 6;  // Kubernetes' default
    if (n <= 0) continue;
    report.add("K8S006", d, limit ? value_span(d, *limit.value) : value_span(d, job),
               fmt::format("restarts multiply: each of the JobSet's {:.0f} restarts allows {:.0f} of the Job",
                           *real(root, "spec.failurePolicy.maxRestarts"), n));
  }
}

// mpirun takes as many processes as the operator's hostfile has slots, unless it is told to put more on a node.
void k8s_slots(const Document& d, const Value& root, Findings& report) {
  const auto workers = real(root, "spec.mpiReplicaSpecs.Worker.replicas");
  const double slots = real(root, "spec.slotsPerWorker").value_or(1);
  const bool is_open_mpi = text(root, "spec.mpiImplementation").empty() || text(root, "spec.mpiImplementation") == "OpenMPI";
  if (!workers || !is_open_mpi || d.roots.size() != 1) return;
  for (const ScriptPart& part : d.parts) {
    for (const LaunchLine& line : part.lines) {
      const LaunchStage* run = line.find(LaunchProgram::kMpirun);
      const LaunchOption* wanted = run == nullptr ? nullptr : run->has("np") ? run->find("np") : run->find("n");
      const auto n = wanted == nullptr ? std::nullopt : number(wanted->value);
      if (!n || static_cast<double>(*n) <= slots * *workers || run->has("oversubscribe") || run->has("hostfile") || run->has("host") ||
          run->value("map_by").find("OVERSUBSCRIBE") != std::string::npos)
        continue;
      report.add("K8S011", d, wanted->span,
                 fmt::format("mpirun wants {} processes, {:.0f} workers have {:.0f} slot{} each", *n, *workers, slots,
                             slots == 1 ? "" : "s"));
    }
  }
}

}  // namespace

void check_kubernetes(const LintSetup&, const Document& d, Findings& report) {
  if (d.is(file_kind::kSkypilot)) {
    const bool is_spot = is_true(d.root, "resources.use_spot");
    bool has_bucket = false;  // mounted, not copied: what is written there outlives the disk
    each_map(d.root, [&has_bucket](const Value& map) {
      const std::string mode = text(map, "mode");
      has_bucket = has_bucket || mode == "MOUNT" || mode == "MOUNT_CACHED" || (mode.empty() && has(map, "store") && has(map, "name"));
    });
    if (is_spot && !has_bucket && d.text.find("SKYPILOT_TASK_ID") == std::string::npos) {
      report.add("SKY001", d, key_span(d, node(d.root, "resources.use_spot")),
                 "a recovered spot task starts on new disks, and nothing here is kept under SKYPILOT_TASK_ID");
    }
    return;
  }
  if (!d.is(file_kind::kKubernetes)) return;
  for (const Value& root : d.roots) {
    const std::string kind = text(root, "kind");
    k8s_variables(d, root, report);
    k8s_requests(d, root, report);
    k8s_unexpanded(d, root, report);
    const bool trains =
        kind == "Job" || kind == "JobSet" || kind == "TrainJob" || kind == "PyTorchJob" || kind == "MPIJob" || kind == "Pod";
    if (!trains) continue;
    k8s_pods(d, root, report);
    if (kind == "TrainJob") k8s_train_job(d, root, report);
    if (kind == "PyTorchJob") k8s_pytorch_job(d, root, report);
    k8s_restarts(d, root, report);
    if (kind == "MPIJob") k8s_slots(d, root, report);
    const int64_t nodes = k8s_nodes(root);
    if (nodes > 1 && !is_gang(d) && waits_for_others(d, root)) {
      report.add("K8S005", d, key_span(d, node(root, "kind")),
                 fmt::format("{} pods without gang scheduling: some start and wait for ones that never do", nodes));
    }
  }
}

}  // namespace distsetup::lint
