// What a launcher starts against the machines and GPUs that the job, the manifest or the task asks for.
#include "codegen/lint/allocation.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/lint/batch_launch.h"
#include "codegen/lint/caller_values.h"
#include "codegen/read/manifest.h"

namespace distsetup::lint {

std::optional<long long> manifest_count(const Document& d, std::string_view key) {
  std::optional<long long> out;
  const bool is_task = d.is(file_kind::kSkypilot);
  if (!is_task && !d.is(file_kind::kKubernetes)) return out;
  for (const FoundKey& one : is_task ? keys_of_task(d) : keys_of_manifest(d)) {
    if (one.key != key) continue;
    const auto n = number(one.text);
    if (!n || (out && *out != *n)) return std::nullopt;
    out = n;
  }
  return out;
}

namespace {

// Against what the job asked for, or the step of it.
void tr_allocation(const Document& d, const ScriptPart& part, const LaunchLine& line, const LaunchStage& run, Findings& report) {
  std::optional<long long> has_gpus;
  const LaunchStage* step = line.find(LaunchProgram::kSrun);
  for (const char* name : {"gpus-per-node", "gres"})
    if (step != nullptr && !has_gpus && step->has(name)) has_gpus = option_count(name, step->value(name));
  const bool is_of_step = has_gpus.has_value();
  const Directive* gpus = part.script.directive("gpus-per-node");
  if (gpus == nullptr) gpus = part.script.directive("gres");
  if (!is_of_step && gpus != nullptr) has_gpus = option_count(gpus->name, gpus->value);
  const bool is_task = d.is(file_kind::kSkypilot), is_manifest = d.is(file_kind::kKubernetes) || is_task;
  if (is_manifest) has_gpus = manifest_count(d, "gpus_per_node");
  const auto per_node = number(run.value("nproc_per_node"));
  if (per_node && has_gpus && *has_gpus != *per_node) {
    report.add("TR008", d, run.find("nproc_per_node")->span,
               is_manifest
                   ? fmt::format("{} processes per node, the {} has {} GPUs", *per_node, is_task ? "machine" : "pod", *has_gpus)
                   : fmt::format("{} processes per node, the {} asks for {} GPUs per node", *per_node, is_of_step ? "srun" : "job",
                                 *has_gpus),
               {"",
                "",
                {},
                *per_node > *has_gpus ? std::optional<Severity>() : Severity::kWarning,
                comes_from_caller(d, part.script, *run.find("nproc_per_node")) ? "the number stays as it is here" : ""});
  }
  const Directive* nodes = part.script.directive("nodes");
  const auto wanted = number(run.value("nnodes"));
  const bool is_elastic = is_manifest && d.text.find("elasticPolicy") != std::string::npos;
  const auto given = is_manifest        ? (is_elastic ? std::nullopt : manifest_count(d, "nodes"))
                     : nodes == nullptr ? std::nullopt
                                        : number(nodes->value);
  const std::string_view has_them = is_task       ? "task"
                                    : is_manifest ? "manifest"
                                                  : "job",
                         them = is_manifest && !is_task ? "pods" : "nodes";
  if (wanted && given && *wanted != *given) {
    report.add("TR009", d, run.find("nnodes")->span,
               *wanted > *given ? fmt::format("torchrun waits for {} nodes, the {} has {}", *wanted, has_them, *given)
                                : fmt::format("torchrun uses {} of the {}'s {} {}", *wanted, has_them, *given, them),
               {is_task       ? "use --nnodes=\"$SKYPILOT_NUM_NODES\""
                : is_manifest ? fmt::format("make --nnodes {}", *given)
                              : "",
                "",
                {},
                *wanted > *given ? std::optional<Severity>() : Severity::kWarning,
                comes_from_caller(d, part.script, *run.find("nnodes")) ? "the number stays as it is here" : ""});
  }
}

// accelerate counts the processes of all machines.
void acc_allocation(const Document& d, const ScriptPart& part, const LaunchStage& run, Findings& report) {
  const LaunchOption* wanted = run.find("num_processes");
  const auto n = wanted == nullptr ? std::nullopt : number(wanted->value);
  const auto of_job = [&part](std::initializer_list<std::string_view> names) -> std::optional<long long> {
    for (const std::string_view name : names) {
      if (const Directive* one = part.script.directive(name)) return option_count(name, one->value);
    }
    return std::nullopt;
  };
  const bool is_manifest = d.is(file_kind::kKubernetes);
  const auto nodes = is_manifest ? manifest_count(d, "nodes") : of_job({"nodes"});
  const auto gpus = is_manifest ? manifest_count(d, "gpus_per_node") : of_job({"gpus-per-node", "gres"});
  if (!n || !nodes || !gpus || *gpus < 1 || *n <= *nodes * *gpus || run.has("cpu")) return;
  report.add("ACC018", d, wanted->span,
             fmt::format("accelerate starts {} processes, {} {} with {} GPU{} each have {}", *n, *nodes,
                         is_manifest ? "pods" : "nodes", *gpus, *gpus == 1 ? "" : "s", *nodes * *gpus),
             {.error_if = comes_from_caller(d, part.script, *wanted) ? "the number stays as it is here" : ""});
}

// SkyPilot runs `run` on every node, and tells torchrun nothing.
void sky_nodes(const Document& d, const LaunchStage& run, Findings& report) {
  const auto nodes = d.is(file_kind::kSkypilot) ? manifest_count(d, "nodes") : std::nullopt;
  if (!nodes || *nodes < 2 || run.has("nnodes") || run.has("rdzv_endpoint") || run.has("rdzv_conf")) return;
  for (const char* word : {"SKYPILOT_", "PET_"}) {
    if (d.text.find(word) != std::string::npos) return;  // the script tells its nodes apart
  }
  report.add("TR009", d, run.span, fmt::format("each of the task's {} nodes trains by itself: torchrun has no --nnodes", *nodes),
             {.help = "add --nnodes=\"$SKYPILOT_NUM_NODES\" --node_rank=\"$SKYPILOT_NODE_RANK\" "
                      "--master_addr=\"$(echo \"$SKYPILOT_NODE_IPS\" | head -n1)\"",
              .bites = "silent",
              .severity = Severity::kWarning});
}

// The operator tells torchrun how many processes it starts, where its command does not say it.
void pod_processes(const Document& d, Findings& report) {
  for (const Value& root : d.roots) {
    const std::string_view path = processes_of_operator(root);
    const TreeNode per_pod = path.empty() ? TreeNode{} : node(root, path);
    const auto processes = per_pod ? number(per_pod.text()) : std::nullopt;
    const auto gpus = manifest_count(d, "gpus_per_node");
    if (!processes || !gpus || *gpus < 1 || *processes == *gpus || d.roots.size() != 1) continue;
    const bool is_read = std::any_of(d.parts.begin(), d.parts.end(), [](const ScriptPart& part) {
      return std::any_of(part.lines.begin(), part.lines.end(), [](const LaunchLine& line) {
        const LaunchStage* run = line.find(LaunchProgram::kTorchrun);
        return run != nullptr && !run->has("nproc_per_node");
      });
    });
    if (is_read)
      report.add("TR008", d, value_span(d, *per_pod.value),
                 fmt::format("{} processes per node, the pod has {} GPUs", *processes, *gpus),
                 {.help = fmt::format("make {} the GPUs that a pod asks for", path.substr(path.rfind('.') + 1)),
                  .severity = *processes > *gpus ? std::optional<Severity>() : Severity::kWarning});
  }
}

}  // namespace

void check_allocation(const LintSetup&, const Document& d, Findings& report) {
  if (d.is(file_kind::kKubernetes)) pod_processes(d, report);
  for (const ScriptPart& part : d.parts) {
    for (const LaunchLine& line : part.lines) {
      if (const LaunchStage* run = line.find(LaunchProgram::kTorchrun)) {
        tr_allocation(d, part, line, *run, report);
        sky_nodes(d, *run, report);
      }
      if (const LaunchStage* run = line.find(LaunchProgram::kAccelerate)) acc_allocation(d, part, *run, report);
    }
  }
}

}  // namespace distsetup::lint
