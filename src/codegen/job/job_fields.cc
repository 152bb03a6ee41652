// Options of a job into fields: checked, one spelling each, nothing of a site's own unless it was given.
#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "base/quantity.h"
#include "codegen/job/job_check.h"
#include "codegen/job/job_logs.h"
#include "codegen/job/secrets.h"
#include "codegen/shell/quote.h"

namespace distsetup {
namespace {

constexpr int kDefaultCpusPerTask = 8;
constexpr const char* kFieldNames[] = {"job.name",
                                       "job.dns_name",
                                       "job.plain_names",
                                       "job.time_limit",
                                       "job.time_limit_s",
                                       "job.time_limit_hm",
                                       "job.partition",
                                       "job.account",
                                       "job.qos",
                                       "job.constraint",
                                       "job.reservation",
                                       "job.exclude",
                                       "job.dependency",
                                       "job.array",
                                       "job.mail_user",
                                       "job.memory_gpu",
                                       "job.memory_node",
                                       "job.cpus_per_task",
                                       "job.cpus_per_rank",
                                       "job.cpus_per_node",
                                       "job.gpus_per_node",
                                       "job.gpus",
                                       "job.gres",
                                       "job.tasks_per_node",
                                       "job.shape",
                                       "job.exclusive",
                                       "job.requeue",
                                       "job.max_restarts",
                                       "job.max_failures",
                                       "job.signal",
                                       "job.lead_text",
                                       "job.open_mode",
                                       "job.output",
                                       "job.error",
                                       "job.step_log_folder",
                                       "job.step_output",
                                       "job.step_error",
                                       "job.modules",
                                       "job.exports",
                                       "job.setup",
                                       "job.with_plan",
                                       "job.plan_digest",
                                       "job.program",
                                       "job.container",
                                       "job.image",
                                       "job.mounts",
                                       "job.mounts_text",
                                       "job.health_gate",
                                       "job.hosts",
                                       "job.ssh_options",
                                       "job.mpi_options",
                                       "job.master_address",
                                       "job.master_port",
                                       "job.node_rank",
                                       "job.namespace",
                                       "job.queue",
                                       "job.service_account",
                                       "job.volume_claim",
                                       "job.rdma_resource",
                                       "job.site",
                                       "job.last_node",
                                       "job.use",
                                       "job.needs_folder",
                                       "job.memory_node_iec",
                                       "job.lead_wanted"};

// A name of Kubernetes (RFC 1123 label) as near to `name` as can be; empty when there is none. 63 characters less "-NNNNN".
std::string dns_name(std::string name) {
  name = lower(name);
  std::replace(name.begin(), name.end(), '_', '-');
  std::replace(name.begin(), name.end(), '.', '-');
  const bool ends_well = !name.empty() && name.front() != '-' && name.back() != '-' && name.size() <= 52;
  return ends_well && is_name_of(name, "-") ? name : "";
}

struct JobChecker : JobCheck {
  // SLURM's K, M, G, T are powers of 1024.
  void memory(const char* field, const std::string& value) {
    if (value.empty()) return;
    if (value == "0") return set(field, "0");
    Result<int64_t> bytes = parse_bytes(value, at, BareSuffix::kBinary);
    append(diagnostics, bytes.diagnostics);
    if (!bytes.ok()) return;
    const bool whole_gib = *bytes % kGiB == 0;
    if (*bytes % kMiB != 0 || *bytes <= 0) return fail(code::kOutOfRange, fmt::format("'{}' is not a whole number of MiB", value));
    set(field, fmt::format("{}{}", *bytes / (whole_gib ? kGiB : kMiB), whole_gib ? "G" : "M"));
  }

  void exports(const JobOptions& options) {
    std::vector<std::string> all = options.exports;
    for (const std::string& value : all) {
      const size_t equals = value.find('=');
      const std::string name = value.substr(0, equals);
      const bool legal = equals != std::string::npos && !name.empty() && (name[0] < '0' || name[0] > '9') && is_name_of(name, "_");
      if (!legal) fail(code::kOutOfRange, fmt::format("'{}' is not an export, expected NAME=VALUE", comment_text(value)));
    }
    plain("job.exports", "--interface", options.interface, "_.:-");
    plain("job.exports", "--ib-hca", options.ib_hca, "_.:,=^-");
    one_line("--scratch", options.scratch);
    // NCCL takes prefixes, '=' asks for the exact name; Gloo knows exact names only.
    if (!options.interface.empty()) {
      all.push_back("NCCL_SOCKET_IFNAME==" + options.interface);
      all.push_back("GLOO_SOCKET_IFNAME=" + options.interface);
    }
    if (!options.ib_hca.empty()) all.push_back("NCCL_IB_HCA=" + options.ib_hca);
    if (!options.scratch.empty()) all.push_back("TMPDIR=" + options.scratch);
    if (options.offline) {
      for (const char* name : {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"})
        all.push_back(std::string(name) + "=1");
    }
    set("job.exports", all.empty() ? Json() : Json(all));
  }

  void logs(const JobOptions& options) {
    const Result<JobLogs> logs = job_logs(options);
    append(diagnostics, logs.diagnostics);
    if (!logs.ok()) return;
    set("job.output", logs->output);
    set("job.error", logs->error);
    if (logs->step_folder.empty()) return;
    set("job.step_log_folder", logs->step_folder);
    set("job.step_output", logs->step_output);
    set("job.step_error", logs->step_error);
  }

  void size(const JobOptions& options, const Plan* plan) {
    static const JobOptions defaults;  // made once: with it comes a set of templates
    const auto agree = [this](const char* flag, int given, int by_default, int planned) {
      if (given == planned || given == by_default) return;
      fail(code::kConflict, fmt::format("{} {}, but the plan has {}", flag, given, planned),
           fmt::format("leave {} out, or plan again with {} {}", flag, flag, given));
    };
    if (plan != nullptr) {
      agree("--nodes", options.nodes, defaults.nodes, plan->hardware.nodes);
      agree("--gpus", options.gpus_per_node, defaults.gpus_per_node, plan->hardware.gpus_per_node);
    } else {
      if (options.nodes < 1) fail(code::kOutOfRange, fmt::format("--nodes {}, expected at least 1", options.nodes));
      if (options.gpus_per_node < 1) fail(code::kOutOfRange, fmt::format("--gpus {}, expected at least 1", options.gpus_per_node));
      set("hardware.nodes", options.nodes);
      set("hardware.gpus_per_node", options.gpus_per_node);
      set("hardware.accelerator", options.cpu_only ? "cpu" : "cuda");
      set("derived.source", "options");
      set("derived.single_node", options.nodes == 1);
    }
    const bool cpu = field_text(fields.find("hardware.accelerator")->second) == "cpu";
    const int per_node = fields.find("hardware.gpus_per_node")->second.get<int>();
    set("job.last_node", fields.find("hardware.nodes")->second.get<int>() - 1);
    const bool is_torchrun = options.shape == "torchrun";
    set("job.shape", is_torchrun ? "torchrun" : "rank");
    set("job.tasks_per_node", is_torchrun ? 1 : per_node);
    set("job.gpus", cpu ? 0 : per_node);
    if (!cpu) gpus(options, per_node);
    if (options.cpus_per_task && *options.cpus_per_task < 1) {
      fail(code::kOutOfRange, fmt::format("--cpus-per-task {}, expected at least 1", *options.cpus_per_task));
    }
    if (!options.cpus_per_task && cpu) return;
    const int cpus = options.cpus_per_task.value_or(kDefaultCpusPerTask);
    set("job.cpus_per_rank", cpus);
    set("job.cpus_per_node", cpus * per_node);
    set("job.cpus_per_task", is_torchrun ? cpus * per_node : cpus);
  }

  void gpus(const JobOptions& options, int per_node) {
    plain("job.gres", "--gres-type", options.gpu_type, "_.-");
    const std::string kind = options.gpu_type.empty() ? "" : options.gpu_type + ":";
    set("job.gres", Json());
    if (options.gpu_request == "gres") set("job.gres", fmt::format("gpu:{}{}", kind, per_node));
    if (options.gpu_request.empty() || options.gpu_request == "gpus-per-node")
      set("job.gpus_per_node", fmt::format("{}{}", kind, per_node));
  }

  void container(const JobOptions& options) {
    text("job.image", "--image", options.image);
    const bool has_container = !options.container.empty() && options.container != "none";
    set("job.container", has_container ? options.container : "none");
    if (has_container && options.image.empty()) {
      fail(code::kMissingArgument, fmt::format("--container {} without an image", options.container),
           "add --image registry#name:tag, or --image /path/to/image.sif");
    }
    std::string joined;
    for (const std::string& mount : options.mounts) {
      const bool legal =
          mount.find(':') != std::string::npos && mount.find(',') == std::string::npos && !has_control_characters(mount);
      if (!legal) fail(code::kOutOfRange, fmt::format("'{}' is not a mount, expected SOURCE:DESTINATION", comment_text(mount)));
      joined += "," + mount;
    }
    if (!options.mounts.empty()) set("job.mounts", Json(options.mounts));
    if (!joined.empty()) set("job.mounts_text", joined);
  }

  void hosts(const JobOptions& options) {
    for (const std::string& host : options.hosts) plain("job.hosts", "--hosts", host, "_.:@-");
    if (!options.hosts.empty()) set("job.hosts", Json(options.hosts));
    for (const auto* words : {&options.ssh_options, &options.mpi_options, &options.program}) {
      for (const std::string& word : *words) {
        if (word.find('\0') != std::string::npos)
          fail(code::kOutOfRange, "an argument has a NUL byte, which no command line can hold");
      }
    }
    if (!options.ssh_options.empty()) set("job.ssh_options", Json(options.ssh_options));
    if (!options.mpi_options.empty()) set("job.mpi_options", Json(options.mpi_options));
    if (!options.program.empty()) set("job.program", Json(options.program));
    plain("job.master_address", "--master-addr", options.master_address, "_.:-");
    if (options.master_port < 1 || options.master_port > 65535)
      fail(code::kOutOfRange, fmt::format("--master-port {}, expected 1 to 65535", options.master_port));
    set("job.needs_folder", options.program.empty() || (!options.use.empty() && options.use != "none"));
    set("job.use", options.use.empty() ? "none" : options.use);
    set("job.master_port", options.master_port);
    const int nodes = fields.find("hardware.nodes")->second.get<int>();
    if (options.node_rank && (*options.node_rank < 0 || *options.node_rank >= nodes)) {
      fail(code::kOutOfRange, fmt::format("--node-rank {} of {} {}, expected 0 to {}", *options.node_rank, nodes,
                                          nodes == 1 ? "node" : "nodes", nodes - 1));
    }
    if (options.node_rank) set("job.node_rank", *options.node_rank);
  }

  void array(const JobOptions& options) {
    if (options.array.empty()) return;
    if (!is_name_of(options.array, ",:%-"))
      return fail(code::kOutOfRange, fmt::format("--array '{}', expected ranges such as 0-9%1", comment_text(options.array)));
    const bool is_chain = options.array.size() > 2 && options.array.compare(options.array.size() - 2, 2, "%1") == 0;
    if (options.program.empty() && !is_chain) {
      return fail(code::kConflict,
                  fmt::format("the tasks of array '{}' would run side by side and write the same checkpoints", options.array),
                  fmt::format("--array {}%1 runs them one after the other, each going on where the last stopped",
                              options.array.substr(0, options.array.find('%'))));
    }
    set("job.array", options.array);
  }

  void secrets(const JobOptions& options) {
    const auto refuse = [this](const std::string& what, const std::string& where) {
      fail(code::kSecret, fmt::format("{} holds what looks like a secret ({}), and scripts are read by others", where, what),
           "leave it in the environment of whoever submits, which is passed on, or have --setup read a file of mode 0600");
    };
    const std::vector<std::pair<const char*, const std::vector<std::string>*>> lists = {{"--export", &options.exports},
                                                                                        {"--setup", &options.setup},
                                                                                        {"the command", &options.program},
                                                                                        {"--ssh-options", &options.ssh_options},
                                                                                        {"--mpi-options", &options.mpi_options}};
    for (const auto& [where, list] : lists) {
      for (const std::string& text : *list) {
        if (const std::string found = secret_in(text); !found.empty()) refuse(found, where);
      }
    }
    if (const std::string found = secret_in(options.command); !found.empty() && diagnostics.empty()) refuse(found, "the command line");
  }
};

}  // namespace

std::span<const char* const> job_field_names() { return kFieldNames; }

Result<Fields> job_fields(const JobOptions& options, Fields fields, const Plan* plan) {
  JobChecker check{{std::move(fields), {}}};
  check.size(options, plan);
  check.text("job.name", "--job-name", options.job_name);
  if (const std::string name = dns_name(options.job_name); !name.empty()) check.set("job.dns_name", name);
  check.text("job.partition", "--partition", options.partition);
  check.text("job.account", "--account", options.account);
  check.text("job.qos", "--qos", options.qos);
  check.text("job.constraint", "--constraint", options.constraint);
  check.text("job.reservation", "--reservation", options.reservation);
  check.text("job.exclude", "--exclude", options.exclude);
  check.text("job.dependency", "--dependency", options.dependency);
  check.text("job.mail_user", "--mail-user", options.mail_user);
  check.text("job.site", "the site file's name", options.site);
  const bool plain_names =
      is_name_of(options.job_name, "_.-") && is_name_of(options.partition, "_.@-") && is_name_of(options.account, "_.-");
  check.set("job.plain_names", plain_names);
  check.plain("job.namespace", "--namespace", options.name_space, "-");
  check.plain("job.queue", "--queue", options.queue, "_.-");
  check.plain("job.service_account", "--service-account", options.service_account, ".-");
  check.plain("job.volume_claim", "--volume-claim", options.volume_claim, ".-");
  check.plain("job.rdma_resource", "--rdma-resource", options.rdma_resource, "_./-");
  const int64_t limit_s = put_time_limit(check, options);
  check.memory("job.memory_gpu", options.memory_per_gpu);
  check.memory("job.memory_node", options.memory_per_node);
  const std::string per_node = field_text(check.fields.find("job.memory_node")->second);
  if (per_node != "null" && per_node != "0") check.set("job.memory_node_iec", per_node + "i");  // 64G of SLURM is 64Gi of Kubernetes
  if (!options.memory_per_gpu.empty() && !options.memory_per_node.empty()) {
    check.fail(code::kConflict, "--memory-per-gpu and --memory-per-node say the same thing twice", "keep one of them");
  }
  check.array(options);
  check.exports(options);
  check.logs(options);
  put_ending(check, options, plan, limit_s);
  check.container(options);
  check.hosts(options);
  check.secrets(options);
  if (options.exclusive) check.set("job.exclusive", true);
  if (options.health_gate) check.set("job.health_gate", true);
  for (const std::string& name : options.modules) {
    if (has_control_characters(name))
      check.fail(code::kOutOfRange, fmt::format("module '{}' has control characters", comment_text(name)));
  }
  if (!options.modules.empty()) check.set("job.modules", Json(options.modules));
  if (!options.setup.empty()) check.set("job.setup", Json(options.setup));
  check.set("job.with_plan", plan != nullptr && options.program.empty());
  if (plan != nullptr && !plan->inputs_digest.empty()) check.set("job.plan_digest", plan->inputs_digest);
  if (has_error(check.diagnostics)) return check.diagnostics;
  return {std::move(check.fields), std::move(check.diagnostics)};
}

}  // namespace distsetup
