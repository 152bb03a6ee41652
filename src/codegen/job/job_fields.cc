#include "codegen/job/job_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "base/quantity.h"
#include "codegen/job/job_check.h"
#include "codegen/job/job_ending.h"
#include "codegen/job/job_logs.h"
#include "codegen/job/pod_places.h"
#include "codegen/job/program.h"
#include "codegen/job/secrets.h"
#include "codegen/job/settings.h"
#include "codegen/shell/quote.h"
#include "model/count.h"

namespace distsetup {
namespace {

constexpr int kDefaultCpusPerTask = 8, kDefaultGpusPerNode = 8;

// Beside the fields of the table: what is computed here and in job_ending.cc, from several settings, the plan and the command line.
constexpr const char* kComputedFields[] = {"job.dns_name",
                                           "job.plain_names",
                                           "job.time_limit",
                                           "job.time_limit_s",
                                           "job.time_limit_hm",
                                           "job.memory_node_iec",
                                           "job.memory_request_iec",
                                           "job.node_selector",
                                           "job.tolerations",
                                           "job.cpus_per_task",
                                           "job.cpus_per_rank",
                                           "job.cpus_per_node",
                                           "job.gpus_per_node",
                                           "job.gpus",
                                           "job.gres",
                                           "job.tasks_per_node",
                                           "job.array",
                                           "job.signal",
                                           "job.lead_text",
                                           "job.lead_wanted",
                                           "job.open_mode",
                                           "job.output",
                                           "job.error",
                                           "job.step_log_folder",
                                           "job.step_output",
                                           "job.step_error",
                                           "job.exports",
                                           "job.with_plan",
                                           "job.plan_digest",
                                           "job.starts",
                                           "job.program",
                                           "job.command",
                                           "job.python_script",
                                           "job.no_python",
                                           "job.words",
                                           "job.node_script",
                                           "job.use",
                                           "job.needs_folder",
                                           "job.mounts",
                                           "job.mounts_text",
                                           "job.node_rank",
                                           "job.site",
                                           "job.last_node"};

// A name of Kubernetes (RFC 1123 label) as near to `name` as can be; empty when there is none. 63 characters less "-NNNNN".
std::string dns_name(std::string name) {
  name = lower(name);
  std::replace(name.begin(), name.end(), '_', '-');
  std::replace(name.begin(), name.end(), '.', '-');
  const bool ends_well = !name.empty() && name.front() != '-' && name.back() != '-' && name.size() <= 52;
  return ends_well && is_name_of(name, "-") ? name : "";
}

struct JobChecker : JobCheck {
  const JobOptions& options;
  const JobValues& settings;
  const Plan* plan;

  // SLURM's K, M, G, T are powers of 1024.
  void memory(const std::string& field, const std::string& value) {
    if (value.empty()) return;
    if (value == "0") return set(field, "0");
    Result<int64_t> bytes = parse_bytes(value, at, BareSuffix::kBinary);
    append(diagnostics, bytes.diagnostics);
    if (!bytes.ok()) return;
    const bool whole_gib = *bytes % kGiB == 0;
    if (*bytes % kMiB != 0 || *bytes <= 0) return fail(code::kOutOfRange, fmt::format("'{}' is not a whole number of MiB", value));
    set(field, fmt::format("{}{}", *bytes / (whole_gib ? kGiB : kMiB), whole_gib ? "G" : "M"));
  }

  // A row of the table: its check, and its value into the field that takes it as it is.
  void row(const JobSetting& setting) {
    const std::string name = flag_name(setting);
    if (is_list(setting.type)) {
      const std::vector<std::string> items = settings.list(setting.key);
      for (const std::string& item : items) {
        if (item.find('\0') != std::string::npos)
          fail(code::kOutOfRange, fmt::format("{} has a NUL byte, which no command line can hold", name));
        if (setting.type == JobSettingType::kList && !setting.field.empty()) one_line(name, item);
        if (!setting.letters.empty()) plain(name, item, setting.letters);
      }
      if (!items.empty() && !setting.field.empty()) set(setting.field, items);
      return;
    }
    if (setting.type == JobSettingType::kSwitch) {
      if (settings.is_on(setting.key) && !setting.field.empty()) set(setting.field, true);
      return;
    }
    if (setting.type == JobSettingType::kInt) {
      const std::optional<int> number = settings.number(setting.key);
      if (number && !setting.field.empty()) set(setting.field, *number);
      return;
    }
    const std::string value = settings.text(setting.key);
    const bool is_good = !value.empty() && one_line(name, value) && (setting.letters.empty() || plain(name, value, setting.letters));
    if (!is_good || setting.field.empty()) return;
    setting.type == JobSettingType::kBytes ? memory(setting.field, value) : set(setting.field, value);
  }

  void exports() {
    std::vector<std::string> all = settings.list("exports");
    for (const std::string& value : all) {
      const size_t equals = value.find('=');
      const std::string name = value.substr(0, equals);
      const bool legal = equals != std::string::npos && !name.empty() && (name[0] < '0' || name[0] > '9') && is_name_of(name, "_");
      if (!legal) fail(code::kOutOfRange, fmt::format("'{}' is not an export, expected NAME=VALUE", comment_text(value)));
    }
    // NCCL takes prefixes, '=' asks for the exact name; Gloo knows exact names only.
    const auto add = [&](const char* name, const std::string& value) {
      if (!value.empty()) all.push_back(name + value);
    };
    add("NCCL_SOCKET_IFNAME==", settings.text("network.interface"));
    add("GLOO_SOCKET_IFNAME=", settings.text("network.interface"));
    add("NCCL_IB_HCA=", settings.text("network.ib_hca"));
    add("NCCL_TOPO_FILE=", settings.text("network.topology_file"));
    add("TMPDIR=", settings.text("scratch"));
    if (settings.is_on("offline")) {
      for (const char* name : {"HF_HUB_OFFLINE=", "TRANSFORMERS_OFFLINE=", "HF_DATASETS_OFFLINE="}) add(name, "1");
    }
    if (!all.empty()) set("job.exports", all);
  }

  void logs() {
    const Result<JobLogs> logs = job_logs(settings);
    append(diagnostics, logs.diagnostics);
    if (!logs.ok()) return;
    set("job.output", logs->output);
    set("job.error", logs->error);
    if (logs->step_folder.empty()) return;
    set("job.step_log_folder", logs->step_folder);
    set("job.step_output", logs->step_output);
    set("job.step_error", logs->step_error);
  }

  // Nodes and GPUs: the plan's, or those of the options.
  void machines() {
    const auto agree = [this](const char* flag, const std::optional<int>& given, int planned) {
      if (!given || *given == planned) return;
      fail(code::kConflict, fmt::format("{} {}, but the plan has {}", flag, *given, planned),
           fmt::format("leave {} out, or plan again with {} {}", flag, flag, *given));
    };
    if (plan != nullptr) {
      agree("--nodes", options.nodes, plan->hardware.nodes);
      agree("--gpus", options.gpus_per_node, plan->hardware.gpus_per_node);
      return;
    }
    const int nodes = options.nodes.value_or(1), gpus = options.gpus_per_node.value_or(kDefaultGpusPerNode);
    if (nodes < 1) fail(code::kOutOfRange, fmt::format("--nodes {}, expected at least 1", nodes));
    if (gpus < 1) fail(code::kOutOfRange, fmt::format("--gpus {}, expected at least 1", gpus));
    set("hardware.nodes", nodes);
    set("hardware.gpus_per_node", gpus);
    set("hardware.accelerator", settings.is_on("cpu_only") ? "cpu" : "cuda");
    set("derived.source", "options");
    set("derived.single_node", nodes == 1);
  }

  // What a node gets: tasks, GPUs, cores.
  void shares() {
    const bool cpu = field_text(fields.find("hardware.accelerator")->second) == "cpu";
    const int per_node = fields.find("hardware.gpus_per_node")->second.get<int>();
    const int nodes = fields.find("hardware.nodes")->second.get<int>();
    const bool is_torchrun = !options.node_script.empty() || settings.text("shape") == "torchrun";  // a launcher per node
    set("job.last_node", nodes - 1);
    set("job.tasks_per_node", is_torchrun ? 1 : per_node);
    set("job.gpus", cpu ? 0 : per_node);
    if (!cpu) gpus(per_node);
    const std::optional<int> cpus = settings.number("cpus_per_task");
    if (cpus || !cpu) {
      const int per_rank = cpus.value_or(kDefaultCpusPerTask);
      set("job.cpus_per_rank", per_rank);
      set("job.cpus_per_node", per_rank * per_node);
      set("job.cpus_per_task", is_torchrun ? per_rank * per_node : per_rank);
    }
    const std::optional<int> rank = settings.number("node_rank");
    if (!rank) return;
    set("job.node_rank", *rank);
    if (*rank < 0 || *rank >= nodes) {
      fail(code::kOutOfRange,
           fmt::format("--node-rank {} of {} {}, expected 0 to {}", *rank, nodes, nodes == 1 ? "node" : "nodes", nodes - 1));
    }
  }

  void gpus(int per_node) {
    const std::string type = settings.text("gpus.type"), request = settings.text("gpus.request");
    const std::string asked = fmt::format("{}{}{}", type, type.empty() ? "" : ":", per_node);
    if (request == "gres") set("job.gres", "gpu:" + asked);
    if (request.empty() || request == "gpus-per-node") set("job.gpus_per_node", asked);
  }

  void container() {
    const std::string runtime = settings.text("container.runtime");
    if (runtime != "none" && settings.text("container.image").empty()) {
      fail(code::kMissingArgument, fmt::format("--container {} without an image", runtime),
           "add --image registry#name:tag, or --image /path/to/image.sif");
    }
    const std::vector<std::string> mounts = settings.list("container.mounts");
    std::string joined;
    for (const std::string& mount : mounts) {
      const bool legal =
          mount.find(':') != std::string::npos && mount.find(',') == std::string::npos && !has_control_characters(mount);
      if (!legal) fail(code::kOutOfRange, fmt::format("'{}' is not a mount, expected SOURCE:DESTINATION", comment_text(mount)));
      joined += "," + mount;
    }
    if (!mounts.empty()) set("job.mounts", mounts);
    if (!joined.empty()) set("job.mounts_text", joined);
  }

  // The words go to the trainer's own script where there is one.
  void own_words() {
    if (!options.program.empty()) set("job.words", without_interpreter(options.program));
    if (!options.node_script.empty()) {
      if (settings.has("shape") && settings.text("shape") == "rank") {
        fail(code::kConflict, fmt::format("--shape rank, but '{}' starts the ranks of a node by itself", options.node_script),
             "leave --shape out");
      }
      set("job.node_script", options.node_script);
      set("job.shape", "node");
    } else if (!options.program.empty()) {
      set("job.program", options.program);
      const bool is_torchrun = settings.text("shape") == "torchrun";
      set("job.command", is_torchrun ? as_python_script(options.program) : as_command(options.program));
      const std::vector<std::string> script = as_python_script(options.program);
      set("job.python_script", script);
      set("job.no_python", script[0] == "--no_python");
    }
  }

  // A command of one's own, and what it runs with.
  void program() {
    const bool has_use = !options.use.empty() && options.use != "none";
    for (const std::string& word : options.program) {
      if (word.find('\0') != std::string::npos) fail(code::kOutOfRange, "an argument has a NUL byte, which no command line can hold");
    }
    own_words();
    const bool is_trainer = options.program.empty() && options.node_script.empty();
    if (!is_trainer) set("job.starts", options.node_script.empty() ? "program" : "node_script");
    set("job.needs_folder", options.program.empty() || has_use);
    set("job.use", has_use ? options.use : "none");
    set("job.with_plan", plan != nullptr && is_trainer);
    if (plan != nullptr && !plan->inputs_digest.empty()) set("job.plan_digest", plan->inputs_digest);
    if (!options.site.empty() && one_line("the site file's name", options.site)) set("job.site", options.site);
  }

  void array() {
    const std::string array = settings.text("array");
    if (array.empty()) return;
    if (!is_name_of(array, ",:%-"))
      return fail(code::kOutOfRange, fmt::format("--array '{}', expected ranges such as 0-9%1", comment_text(array)));
    const bool is_chain = array.size() > 2 && array.compare(array.size() - 2, 2, "%1") == 0;
    if ((options.program.empty() || !options.node_script.empty()) && !is_chain) {
      return fail(code::kConflict, fmt::format("the tasks of array '{}' would run side by side and write the same checkpoints", array),
                  fmt::format("--array {}%1 runs them one after the other, each going on where the last stopped",
                              array.substr(0, array.find('%'))));
    }
    set("job.array", array);
  }

  void names() {
    const std::string name = settings.text("job_name");
    if (const std::string dns = dns_name(name); !dns.empty()) set("job.dns_name", dns);
    set("job.plain_names",
        is_name_of(name, "_.-") && is_name_of(settings.text("partition"), "_.@-") && is_name_of(settings.text("account"), "_.-"));
    if (settings.has("memory_per_gpu") && settings.has("memory_per_node"))
      fail(code::kConflict, "--memory-per-gpu and --memory-per-node say the same thing twice", "keep one of them");
  }

  // What the plan expects on a node's host. Where it predicts nothing: each rank's process with its libraries and loaders at 8 GiB,
  // and the 16-bit weights as they are read, once per node. An assumption for the scheduler, no measurement.
  static int64_t host_bytes(const Plan& of) {
    if (of.memory.host_bytes_per_node > 0) return of.memory.host_bytes_per_node;
    return of.hardware.gpus_per_node * 8 * kGiB + 2 * count_parameters(of.model).total;
  }

  // What Kubernetes is told. 64G of SLURM is 64Gi there; with nothing given, what the plan expects on the host is asked for.
  void pods() {
    const std::string per_node = field_text(fields.find("job.memory_node")->second), per_gpu = settings.text("memory_per_gpu");
    std::string memory = per_node != "null" && per_node != "0" ? per_node + "i" : "";
    const int64_t gpus = fields.find("hardware.gpus_per_node")->second.get<int64_t>();
    if (plan != nullptr && memory.empty() && !per_gpu.empty() && per_gpu != "0") {
      const Result<int64_t> bytes = parse_bytes(per_gpu, at, BareSuffix::kBinary);
      if (bytes.ok()) memory = fmt::format("{}Mi", *bytes / kMiB * gpus);
    }
    if (!memory.empty()) set("job.memory_node_iec", memory);
    if (memory.empty() && plan != nullptr) memory = fmt::format("{}Gi", (host_bytes(*plan) + kGiB - 1) / kGiB);
    if (!memory.empty()) set("job.memory_request_iec", memory);
    put_pod_places(*this, settings);
  }

  void secrets(const std::string& command) {
    const auto refuse = [this](const std::string& what, const std::string& where) {
      fail(code::kSecret, fmt::format("{} holds what looks like a secret ({}), and scripts are read by others", where, what),
           "leave it in the environment of whoever submits, which is passed on, or have --setup read a file of mode 0600");
    };
    const auto look = [&](const std::vector<std::string>& texts, const std::string& where) {
      for (const std::string& text : texts) {
        if (const std::string found = secret_in(text); !found.empty()) refuse(found, where);
      }
    };
    look(settings.list("exports"), "--export");  // the likeliest place comes first
    for (const JobSetting& setting : job_settings()) {
      if (is_list(setting.type) && setting.key != "exports") look(settings.list(setting.key), flag_name(setting));
    }
    look(options.program, "the command");
    if (const std::string found = secret_in(command); !found.empty() && diagnostics.empty()) refuse(found, "the command line");
  }
};

}  // namespace

const std::vector<std::string>& job_field_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names(std::begin(kComputedFields), std::end(kComputedFields));
    for (const JobSetting& setting : job_settings()) {
      if (!setting.field.empty()) names.push_back(setting.field);
    }
    return names;
  }();
  return kNames;
}

Result<Fields> job_fields(const JobOptions& options, const std::string& command, Fields fields, const Plan* plan) {
  JobChecker check{{std::move(fields), {}}, options, options.settings, plan};
  check.machines();
  for (const JobSetting& setting : job_settings()) check.row(setting);
  check.shares();
  check.names();
  check.pods();
  const int64_t limit_s = put_time_limit(check, options);
  check.array();
  check.exports();
  check.logs();
  put_ending(check, options.settings, plan, limit_s);
  check.container();
  check.program();
  check.secrets(command);
  if (has_error(check.diagnostics)) return check.diagnostics;
  return {std::move(check.fields), std::move(check.diagnostics)};
}

}  // namespace distsetup
