#include "codegen/read/manifest.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace distsetup {
namespace {

using foreign::node;
using foreign::TreeNode;

void each_map(const Value& value, const std::function<void(const Value&)>& see) {
  if (value.kind == Value::Kind::kMap) see(value);
  for (const Value& item : value.items) each_map(item, see);
  for (const auto& entry : value.entries) each_map(entry.second, see);
}

struct ManifestReader {
  std::vector<FoundKey> keys;

  void add(const std::string& key, const std::string& text, const Location& at) {
    const bool is_known =
        std::any_of(keys.begin(), keys.end(), [&](const FoundKey& one) { return one.key == key && one.text == text; });
    if (is_known) return;
    FoundKey one;
    one.key = key;
    one.text = text;
    one.at = at;
    keys.push_back(std::move(one));
  }

  void scalar(const std::string& key, const Value& root, const char* path) {
    if (const TreeNode found = node(root, path)) add(key, found.text(), found.value->location);
  }

  // A pod per machine: replicas of all roles, or of all jobs of a set.
  void machines(const Value& root) {
    const std::string kind = foreign::text(root, "kind");
    if (kind == "Job") scalar("nodes", root, "spec.parallelism");
    if (kind == "TrainJob") scalar("nodes", root, "spec.trainer.numNodes");
    double sum = 0;
    Location at;
    const auto count = [&](const TreeNode& replicas, double times) {
      if (!replicas) return;
      sum += times * foreign::real_of(*replicas.value).value_or(0);
      at = replicas.value->location;
    };
    if (kind == "PyTorchJob") {
      for (const char* role : {"spec.pytorchReplicaSpecs.Master.replicas", "spec.pytorchReplicaSpecs.Worker.replicas"})
        count(node(root, role), 1);
    }
    if (const TreeNode jobs = node(root, "spec.replicatedJobs"); jobs && kind == "JobSet") {
      for (const Value& job : jobs.value->items) {
        const double replicas = foreign::real(job, "replicas").value_or(1);
        const TreeNode parallel = node(job, "template.spec.parallelism");
        count(parallel ? parallel : node(job, "replicas"), parallel ? replicas : 1);
      }
    }
    if (sum > 0) add("nodes", std::to_string(std::llround(sum)), at);
  }

  void gpus(const Value& map) {
    for (const char* which : {"resources", "resourcesPerNode"}) {
      for (const char* kind : {"limits", "requests"}) {
        const TreeNode section = node(map, std::string(which) + "." + kind);
        for (const auto& [name, value] : section ? section.value->entries : std::vector<Value::Entry>{}) {
          if (name == "nvidia.com/gpu" || name == "amd.com/gpu") add("gpus_per_node", value.text, value.location);
        }
      }
    }
  }

  void around(const Value& map) {
    if (node(map, "image") && (node(map, "name") || node(map, "numNodes"))) scalar("image", map, "image");
    if (const TreeNode variables = node(map, "env"); variables && variables.value->kind == Value::Kind::kList) {
      for (const Value& one : variables.value->items)
        add("env." + foreign::text(one, "name"), foreign::text(one, "value"), one.location);
    }
    if (const TreeNode volumes = node(map, "volumes"); volumes && volumes.value->kind == Value::Kind::kList) {
      for (const Value& one : volumes.value->items) add("volumes." + foreign::text(one, "name"), "", one.location);
    }
    scalar("time_limit_s", map, "activeDeadlineSeconds");
    scalar("service_account", map, "serviceAccountName");
  }
};

// "H100:8", {H100: 8} or "H100": the GPUs of a node. Alternatives ("any_of", lists, several names) say no one number.
std::string gpus_of(const Value& accelerators) {
  const bool is_map = accelerators.kind == Value::Kind::kMap;
  if (is_map && accelerators.entries.size() == 1) return accelerators.entries[0].second.text;
  if (is_map || accelerators.kind != Value::Kind::kScalar) return "";
  const size_t colon = accelerators.text.rfind(':');
  return colon == std::string::npos ? "1" : accelerators.text.substr(colon + 1);
}

}  // namespace

std::vector<FoundKey> keys_of_task(const foreign::Document& document) {
  ManifestReader reader;
  reader.scalar("nodes", document.root, "num_nodes");
  if (const TreeNode accelerators = node(document.root, "resources.accelerators"))
    if (const std::string gpus = gpus_of(*accelerators.value); !gpus.empty())
      reader.add("gpus_per_node", gpus, accelerators.value->location);
  for (const Value::Entry& one : document.root.entries) {
    const bool is_read = one.first == "num_nodes" || one.first == "run" || one.first == "setup";
    if (!is_read) reader.add(one.first, one.second.kind == Value::Kind::kScalar ? one.second.text : "", one.second.location);
  }
  return std::move(reader.keys);
}

std::vector<FoundKey> keys_of_manifest(const foreign::Document& document) {
  ManifestReader reader;
  for (const Value& root : document.roots) {
    const std::string kind = foreign::text(root, "kind");
    if (kind != "Job" && kind != "JobSet" && kind != "TrainJob" && kind != "PyTorchJob") continue;
    reader.machines(root);
    reader.scalar("namespace", root, "metadata.namespace");
    if (const TreeNode labels = node(root, "metadata.labels")) {
      for (const auto& [name, value] : labels.value->entries) {
        if (name == "kueue.x-k8s.io/queue-name") reader.add("queue", value.text, value.location);
      }
    }
    each_map(root, [&reader](const Value& map) {
      reader.gpus(map);
      reader.around(map);
    });
  }
  return std::move(reader.keys);
}

}  // namespace distsetup
