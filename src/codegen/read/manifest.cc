#include "codegen/read/manifest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include <functional>
#include "base/names.h"

namespace distsetup {
namespace {

using foreign::node;
using foreign::TreeNode;

// Where a kind says how many machines it takes. "[]" stands for every entry of a list; an entry whose `replicas` stands above its own
// count is that many times.
struct ManifestKind {
  std::string_view name;
  std::array<std::string_view, 2> machines;
  std::string_view head = {};  // one machine more, where it has GPUs
};

constexpr ManifestKind kManifestKinds[] = {
    {"Job", {"spec.parallelism", "spec.tasks[].replicas"}},  // of batch/v1; of Volcano
    {"JobSet", {"spec.replicatedJobs[].template.spec.parallelism", ""}},
    {"TrainJob", {"spec.trainer.numNodes", ""}},
    {"ClusterTrainingRuntime", {"spec.mlPolicy.numNodes", ""}},
    {"TrainingRuntime", {"spec.mlPolicy.numNodes", ""}},
    {"PyTorchJob", {"spec.pytorchReplicaSpecs.Master.replicas", "spec.pytorchReplicaSpecs.Worker.replicas"}},
    {"MPIJob", {"spec.mpiReplicaSpecs.Worker.replicas", "spec.replicas"}},  // its launcher trains nothing; v1alpha1 has no roles
    {"HyperPodPyTorchJob", {"spec.replicaSpecs[].replicas", ""}},
    {"RayJob", {"spec.rayClusterSpec.workerGroupSpecs[].replicas", ""}, "spec.rayClusterSpec.headGroupSpec"},
    {"RayCluster", {"spec.workerGroupSpecs[].replicas", ""}, "spec.headGroupSpec"},
};

const ManifestKind* manifest_kind(const Value& root) {
  const std::string name = foreign::text(root, "kind");
  const auto* found = std::find_if(std::begin(kManifestKinds), std::end(kManifestKinds),
                                   [&name](const ManifestKind& one) { return one.name == name; });
  return found == std::end(kManifestKinds) ? nullptr : found;
}

// "nvidia.com/gpu"; where a cluster tells its kinds apart also "nvidia.com/a100". Slices ("nvidia.com/mig-1g.5gb") are no GPUs.
bool is_gpu_resource(std::string_view name) {
  const size_t slash = name.find('/');
  const std::string_view vendor = name.substr(0, slash), kind = slash == std::string_view::npos ? "" : name.substr(slash + 1);
  if (vendor != "nvidia.com" && vendor != "amd.com") return false;
  const size_t digit = kind.find_first_not_of("abcdefghijklmnopqrstuvwxyz");
  return kind == "gpu" || (digit > 0 && digit <= 4 && digit < kind.size() && kind[digit] >= '0' && kind[digit] <= '9');
}

// Some container below has the resource, or a command with the word.
bool has_below(const Value& value, const std::function<bool(const Value&)>& fits) {
  bool has = false;
  each_map(value, [&](const Value& map) { has = has || fits(map); });
  return has;
}

bool asks_for_gpus(const Value& map) {
  return std::any_of(map.entries.begin(), map.entries.end(),
                     [](const auto& one) { return is_gpu_resource(one.first) && one.second.text != "0"; });
}

// Of a group of Ray's: GPUs that its workers are told to have, whatever their pods ask for.
bool is_told_of_gpus(const Value& map) {
  const TreeNode told = node(map, "rayStartParams.num-gpus");
  return told && told.text() != "0";
}

bool gives_gpus(const Value& map) { return asks_for_gpus(map) || is_told_of_gpus(map); }

bool runs_mpi(const Value& map) {
  const auto has_word = [](const Value& one) {
    return one.text.find("mpirun") != std::string::npos || one.text.find("mpiexec") != std::string::npos;
  };
  for (const char* key : {"command", "args"}) {
    const TreeNode words = node(map, key);
    if (words && std::any_of(words.value->items.begin(), words.value->items.end(), has_word)) return true;
  }
  return false;
}

// Of roles with and without GPUs those with GPUs train; of roles without any the one that runs mpirun starts the others.
std::vector<const Value*> roles_that_train(const Value& list) {
  const auto those = [&list](const std::function<bool(const Value&)>& fits, bool wanted) {
    std::vector<const Value*> out;
    for (const Value& item : list.items) {
      if (has_below(item, fits) == wanted) out.push_back(&item);
    }
    return out;
  };
  std::vector<const Value*> out = those(gives_gpus, true);
  if (out.empty()) out = those(runs_mpi, false);
  return out.empty() ? those([](const Value&) { return false; }, false) : out;
}

// Ray gives work to a head that has GPUs, unless it is started without them.
bool heads_with_gpus(const Value& head) {
  const TreeNode told = node(head, "rayStartParams.num-gpus");
  return has_below(head, gives_gpus) && !(told && told.text() == "0");
}

// Every node at a path of ManifestKind, and how many times it counts.
void each_at(const Value& root, std::string_view path, double times, const std::function<void(const TreeNode&, double)>& see) {
  const size_t list = path.find("[].");
  if (list == std::string_view::npos) {
    const TreeNode found = path.empty() ? TreeNode{} : node(root, path);
    if (found) return see(found, times);
    const bool is_inner = path.rfind("template.", 0) == 0;  // without a count of its own an entry stands for its replicas
    if (const TreeNode replicas = is_inner ? node(root, "replicas") : TreeNode{}) see(replicas, 1);
    return;
  }
  const TreeNode items = node(root, path.substr(0, list));
  if (!items) return;
  const std::string_view rest = path.substr(list + 3);
  for (const Value* item : roles_that_train(*items.value)) {
    // A replica of Ray's has as many hosts as `numOfHosts` says (KubeRay, ray-operator/apis/ray/v1/raycluster_types.go).
    const double each = foreign::real(*item, rest.rfind("template.", 0) == 0 ? "replicas" : "numOfHosts").value_or(1);
    each_at(*item, rest, times * each, see);
  }
}

struct ManifestReader {
  std::vector<FoundKey> keys;
  bool image_has_gpus = false;
  bool has_two_counts = false;  // of one container

  void add(const std::string& key, const std::string& text, const Location& at) {
    const bool is_known =
        std::any_of(keys.begin(), keys.end(), [&](const FoundKey& one) { return one.key == key && one.text == text; });
    if (is_known) return;
    FoundKey one;
    one.key = key;
    one.text = text;
    one.at = at;
    if (text.find('$') != std::string::npos || text.find("{{") != std::string::npos)
      one.unknown = "it is filled in before the file is applied: " + text;
    keys.push_back(std::move(one));
  }

  void scalar(const std::string& key, const Value& root, const char* path) {
    if (const TreeNode found = node(root, path)) add(key, found.text(), found.value->location);
  }

  // A pod per machine: what the places of its kind say, all roles together. What only the cluster fills in ($NUM_NODES) is kept as it
  // is.
  void machines(const Value& root, const ManifestKind& kind) {
    double sum = 0;
    TreeNode last, open;
    const TreeNode head = kind.head.empty() ? TreeNode{} : node(root, kind.head);
    const bool is_headed = head && heads_with_gpus(*head.value);
    for (const std::string_view path : kind.machines) {
      each_at(root, path, 1, [&](const TreeNode& count, double times) {
        last = count;
        const auto n = foreign::real_of(*count.value);
        if (n) sum += times * *n;
        if (!n) open = count;
      });
    }
    if (is_headed) {
      const TreeNode workers = node(root, kind.machines[0].substr(0, kind.machines[0].find("[].")));
      const bool is_alone = !workers || !has_below(*workers.value, gives_gpus);
      if (is_alone) last = head, open = {};
      sum = is_alone ? 1 : sum + 1;
    }
    if (open) {
      const std::string known = sum > 0 ? std::to_string(std::llround(sum)) + " + " : "";
      add("nodes", known + open.text(), open.value->location);
    } else if (sum > 0) {
      add("nodes", std::to_string(std::llround(sum)), last.value->location);
    }
  }

  // Pods of one manifest that ask for different numbers: a plan has nodes of one kind. `first`: the keys before were there before it.
  void leave_open_if_uneven(size_t first) {
    std::vector<std::string> counts;
    for (size_t i = first; i < keys.size(); ++i) {
      if (keys[i].key == "gpus_per_node") counts.push_back(keys[i].text);
    }
    if (counts.size() < 2 || has_two_counts) return;
    const std::string both = fmt::format("{}", fmt::join(counts, ", "));
    for (size_t i = first; i < keys.size(); ++i) {
      if (keys[i].key != "gpus_per_node" && keys[i].key != "nodes") continue;
      if (keys[i].unknown.empty())
        keys[i].unknown = fmt::format("its pods have different numbers of GPUs ({}), and a plan has nodes of one kind", both);
    }
  }

  bool gpus(const Value& map) {
    std::string count;
    for (const char* which : {"resources", "resourcesPerNode"}) {
      for (const char* kind : {"limits", "requests"}) {
        const TreeNode section = node(map, std::string(which) + "." + kind);
        for (const auto& [name, value] : section ? section.value->entries : std::vector<Value::Entry>{}) {
          if (!is_gpu_resource(name) || value.text == "0") continue;
          has_two_counts = has_two_counts || (!count.empty() && count != value.text);
          count = value.text;
          add("gpus_per_node", value.text, value.location);
        }
      }
    }
    return !count.empty();
  }

  // The image is that of the container with the GPUs; of several pods, and where none has GPUs, of the first.
  void image(const Value& map, bool has_gpus) {
    if (!node(map, "image") || (!node(map, "name") && !node(map, "numNodes"))) return;
    const auto known = std::find_if(keys.begin(), keys.end(), [](const FoundKey& one) { return one.key == "image"; });
    if (known != keys.end() && (image_has_gpus || !has_gpus)) return;
    if (known != keys.end()) keys.erase(known);
    image_has_gpus = has_gpus;
    scalar("image", map, "image");
  }

  // Of the program that the image starts by itself.
  void arguments(const Value& map) {
    const TreeNode words = node(map, "args");
    const bool is_of_runtime = node(map, "numNodes") || node(map, "resourcesPerNode");  // whose program takes them, flags or not
    if (!words || node(map, "command") || words.value->items.empty()) return;
    if (!is_of_runtime && !words.value->items[0].text.starts_with('-')) return;
    std::string all;
    for (const Value& one : words.value->items) all += (all.empty() ? "" : " ") + one.text;
    add("args", all, words.value->location);
  }

  void around(const Value& map) {
    if (const TreeNode variables = node(map, "env"); variables && variables.value->kind == Value::Kind::kList) {
      for (const Value& one : variables.value->items)
        add("env." + foreign::text(one, "name"), node(one, "valueFrom") ? "from elsewhere" : foreign::text(one, "value"),
            one.location);
    }
    if (const TreeNode volumes = node(map, "volumes"); volumes && volumes.value->kind == Value::Kind::kList) {
      for (const Value& one : volumes.value->items) add("volumes." + foreign::text(one, "name"), "a volume", one.location);
    }
    scalar("time_limit_s", map, "activeDeadlineSeconds");
    scalar("service_account", map, "serviceAccountName");
  }
};

std::string after_colon(const std::string& name) {
  const size_t colon = name.rfind(':');
  return colon == std::string::npos ? "1" : name.substr(colon + 1);
}

// "H100:8", {H100: 8} or "H100": the GPUs of a node. Alternatives ([H100:8, A100:8], {H100:8, A100:8}) say a number where all say the
// same one.
std::string gpus_of(const Value& accelerators) {
  if (accelerators.kind == Value::Kind::kScalar) return after_colon(accelerators.text);
  std::vector<std::string> counts;
  for (const Value& one : accelerators.items) counts.push_back(gpus_of(one));
  for (const auto& [name, count] : accelerators.entries)
    counts.push_back(count.kind == Value::Kind::kNull ? after_colon(name) : count.text);  // {L4:2}: a set
  const bool is_one = !counts.empty() && std::count(counts.begin(), counts.end(), counts[0]) == static_cast<long>(counts.size());
  return is_one ? counts[0] : "";
}

// What they are called where they are of one kind. SkyPilot's A100 has 40 GB (its catalog has A100-80GB beside it).
std::string gpu_of(const Value& accelerators) {
  const auto before_colon = [](const std::string& name) { return name.substr(0, name.find(':')); };
  std::vector<std::string> names;
  if (accelerators.kind == Value::Kind::kScalar) names.push_back(before_colon(accelerators.text));
  for (const Value& one : accelerators.items) names.push_back(gpu_of(one));
  for (const auto& entry : accelerators.entries) names.push_back(before_colon(entry.first));
  const bool is_one = !names.empty() && std::count(names.begin(), names.end(), names[0]) == static_cast<long>(names.size());
  if (!is_one) return "";
  return names[0] == "A100" ? "A100-40GB" : names[0];
}

}  // namespace

void each_map(const Value& value, const std::function<void(const Value&)>& see) {
  if (value.kind == Value::Kind::kMap) see(value);
  for (const Value& item : value.items) each_map(item, see);
  for (const auto& entry : value.entries) {
    if (entry.first != "initContainers") each_map(entry.second, see);
  }
}

std::string_view processes_of_operator(const Value& root) {
  const std::string kind = foreign::text(root, "kind"), runtime = foreign::text(root, "spec.runtimeRef.name");
  if (kind == "PyTorchJob") return "spec.nprocPerNode";
  const bool is_of_torch = runtime.empty() || runtime.find("torch") != std::string::npos;  // others set no PET_ variables
  return kind == "TrainJob" && is_of_torch ? "spec.trainer.numProcPerNode" : "";
}

std::vector<FoundKey> keys_of_task(const foreign::Document& document) {
  ManifestReader reader;
  reader.scalar("nodes", document.root, "num_nodes");
  if (const TreeNode accelerators = node(document.root, "resources.accelerators")) {
    const std::string gpus = gpus_of(*accelerators.value), name = gpu_of(*accelerators.value);
    const std::string& text = accelerators.value->text;  // "__ACCELERATORS__", "${GPU}:${N}"
    const bool is_open = text.find_first_of("${<") != std::string::npos || (text.starts_with("__") && text.ends_with("__"));
    if (!gpus.empty() && !is_open) reader.add("gpus_per_node", gpus, accelerators.value->location);
    if (!name.empty()) reader.add("gpu", is_open ? text : name, accelerators.value->location);
    if (is_open && !name.empty()) reader.keys.back().unknown = "a placeholder that was not filled in";
  }
  for (const Value::Entry& one : document.root.entries) {
    const bool is_read = one.first == "num_nodes" || one.first == "run" || one.first == "setup";
    if (!is_read) reader.add(one.first, one.second.kind == Value::Kind::kScalar ? one.second.text : "a section", one.second.location);
  }
  return std::move(reader.keys);
}

const Value* tpus_in(const foreign::Document& document) {
  const auto is_tpu = [](const std::string& name) { return name.size() > 3 && lower(name.substr(0, 4)) == "tpu-"; };
  if (const TreeNode accelerators = node(document.root, "resources.accelerators")) {
    const Value& asked = *accelerators.value;
    const bool names_one = is_tpu(asked.text) || (!asked.entries.empty() && is_tpu(asked.entries[0].first)) ||
                           (!asked.items.empty() && is_tpu(asked.items[0].text));
    if (names_one) return &asked;
  }
  const Value* found = nullptr;
  for (const Value& root : document.roots) {
    each_map(root, [&found](const Value& map) {
      for (const auto& [name, value] : map.entries) {
        if (found == nullptr && (name == "google.com/tpu" || name.starts_with("aws.amazon.com/neuron"))) found = &value;
      }
    });
  }
  return found;
}

std::string kinds_of_manifests() {
  std::string out;
  for (const ManifestKind& one : kManifestKinds) out += (out.empty() ? "" : ", ") + std::string(one.name);
  return out;
}

std::vector<FoundKey> keys_of_manifest(const foreign::Document& document) {
  ManifestReader reader;
  for (const Value& root : document.roots) {
    const ManifestKind* kind = manifest_kind(root);
    if (kind == nullptr) continue;
    const size_t first = reader.keys.size();
    reader.machines(root, *kind);
    reader.scalar("namespace", root, "metadata.namespace");
    if (const TreeNode labels = node(root, "metadata.labels")) {
      for (const auto& [name, value] : labels.value->entries) {
        if (name == "kueue.x-k8s.io/queue-name") reader.add("queue", value.text, value.location);
      }
    }
    each_map(root, [&reader](const Value& map) {
      if (is_told_of_gpus(map) && !has_below(map, asks_for_gpus)) reader.scalar("gpus_per_node", map, "rayStartParams.num-gpus");
      const bool has_gpus = reader.gpus(map);
      if (has_gpus) reader.arguments(map);
      reader.image(map, has_gpus);
      reader.around(map);
    });
    for (const char* what : {"initializer.model", "initializer.dataset"})
      reader.scalar(what, root, (std::string("spec.") + what + ".storageUri").c_str());
    const auto has = [&reader](std::string_view key) {
      return std::any_of(reader.keys.begin(), reader.keys.end(), [key](const FoundKey& one) { return one.key == key; });
    };
    if (kind->name == "Job" && has("gpus_per_node") && !has("nodes")) {  // JobSpec.parallelism: one pod
      reader.add("nodes", "1", root.location);
      reader.keys.back().is_assumed = true;
    }
    reader.leave_open_if_uneven(first);
    // A rank for each slot, and a GPU for each rank.
    const TreeNode slots = kind->name == "MPIJob" ? node(root, "spec.slotsPerWorker") : TreeNode{};
    if (slots && !has("gpus_per_node")) reader.add("gpus_per_node", slots.text(), slots.value->location);
  }
  return std::move(reader.keys);
}

}  // namespace distsetup
