#include "codegen/lint/ray_pods.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "codegen/read/manifest.h"

namespace distsetup::lint {
namespace {

struct PodGpus {
  long long count = 0;
  bool is_open = false;  // they may come in another way: another resource, a claim, the node's own container runtime
};

PodGpus gpus_of_pod(const Value& group) {
  PodGpus out;
  each_map(group, [&out](const Value& map) {
    if (has(map, "runtimeClassName") || has(map, "claims") || has(map, "resourceClaims")) out.is_open = true;
    if (text(map, "name") == "NVIDIA_VISIBLE_DEVICES" || text(map, "privileged") == "true") out.is_open = true;
    const TreeNode limits = node(map, "limits");
    for (const auto& [name, value] : limits ? limits.value->entries : std::vector<Value::Entry>{}) {
      if (name != "nvidia.com/gpu" && name != "amd.com/gpu") {
        out.is_open = out.is_open || name.find('/') != std::string::npos;
        continue;
      }
      const auto count = number(value.text);
      if (!count) out.is_open = true;
      out.count += count.value_or(0);
    }
  });
  return out;
}

}  // namespace

void check_ray_pods(const LintSetup& /*setup*/, const Document& d, Findings& report) {
  if (!d.is(file_kind::kKubernetes)) return;
  for (const Value& root : d.roots) {
    if (!text(root, "kind").starts_with("Ray")) continue;
    each_map(root, [&](const Value& group) {
      const TreeNode told = has(group, "template") ? node(group, "rayStartParams.num-gpus") : TreeNode{};
      const auto count = told ? number(told.text()) : std::nullopt;
      if (!count || *count < 1) return;
      const PodGpus pod = gpus_of_pod(group);
      if (pod.is_open || *count <= pod.count) return;
      const std::string asked = pod.count == 0 ? "none" : std::to_string(pod.count);
      report.add("K8S015", d, value_span(d, *told.value),
                 fmt::format("Ray is told of {} GPU{}, the pod asks for {}", *count, *count == 1 ? "" : "s", asked),
                 {.help = fmt::format("write nvidia.com/gpu: {} under the container's limits, and leave num-gpus out", *count)});
    });
  }
}

}  // namespace distsetup::lint
