#include "codegen/lint/pod_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/names.h"

namespace distsetup::lint {
namespace {

// "train-0.headless", "train-0.headless.default.svc.cluster.local" of the Job "train": "headless". "": the text is no such name.
std::string service_in(std::string_view text, std::string_view job) {
  text = text.substr(0, text.find(':'));  // HOST:PORT
  if (job.empty() || text.size() <= job.size() + 1 || !text.starts_with(job) || text[job.size()] != '-') return "";
  text.remove_prefix(job.size() + 1);
  const size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  if (end == 0 || end == text.size() || text[end] != '.') return "";
  text.remove_prefix(end + 1);
  const std::string_view service = text.substr(0, text.find('.'));
  const bool is_name = service.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string_view::npos;
  return is_name ? std::string(service) : "";
}

bool has_service(const Document& d, std::string_view name) {
  return std::any_of(d.roots.begin(), d.roots.end(),
                     [name](const Value& root) { return text(root, "kind") == "Service" && text(root, "metadata.name") == name; });
}

struct PodNames {
  const Document& d;
  std::string job, name_space, subdomain;

  // What is wrong with a name that a pod of the Job is looked for by; "": nothing. Else the Service's name.
  std::string unresolved(std::string_view host) const {
    const std::string service = service_in(host, job);
    if (service.empty() || service == subdomain || service == name_space) return "";
    return has_service(d, host.substr(0, host.find('.'))) ? "" : service;
  }

  void tell(TextSpan at, std::string_view host, const std::string& service, Findings& report) const {
    const std::string shown(host.substr(0, host.find(':')));
    const std::string why =
        subdomain.empty() ? "the Job's pods have no 'subdomain'" : fmt::format("the 'subdomain' of the Job's pods is '{}'", subdomain);
    report.add("K8S014", d, at, fmt::format("'{}' is the name of no pod: {}", shown, why),
               {.help = fmt::format("write subdomain: {} beside the containers", service),
                .error_if = has_service(d, service) ? "" : fmt::format("'{}' is the Service of these pods", service)});
  }
};

void check_indexed_job(const Document& d, const Value& root, Findings& report) {
  const std::string own = text(root, "metadata.namespace");
  const PodNames names{d, text(root, "metadata.name"), own.empty() ? "default" : own, text(root, "spec.template.spec.subdomain")};
  const TreeNode containers = node(root, "spec.template.spec.containers");
  if (!containers || containers.value->kind != Value::Kind::kList) return;
  for (const Value& container : containers.value->items) {
    const TreeNode env = node(container, "env");
    if (!env || env.value->kind != Value::Kind::kList) continue;
    for (const Value& item : env.value->items) {
      const TreeNode value = node(item, "value");
      const std::string service = value ? names.unresolved(value.text()) : "";
      if (!service.empty()) return names.tell(value_span(d, *value.value), value.text(), service, report);
    }
  }
  for (const ScriptPart& part : d.parts) {
    for (const LaunchLine& line : part.lines) {
      for (const LaunchStage& stage : line.stages) {
        for (const LaunchOption& option : stage.options) {
          const bool is_place = option.name == "master_addr" || option.name == "rdzv_endpoint" || option.name == "main_process_ip";
          const std::string service = is_place ? names.unresolved(option.value) : "";
          if (!service.empty()) return names.tell(option.span, option.value, service, report);
        }
      }
    }
  }
}

}  // namespace

void check_pod_names(const LintSetup& /*setup*/, const Document& d, Findings& report) {
  if (!d.is(file_kind::kKubernetes)) return;
  for (const Value& root : d.roots) {
    if (text(root, "kind") == "Job" && text(root, "spec.completionMode") == "Indexed") check_indexed_job(d, root, report);
  }
}

}  // namespace distsetup::lint
