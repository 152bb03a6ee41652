// Options of `distsetup slurm` into fields: checked, one spelling each, nothing site-specific unless given.
// The log: sbatch opens --output before the script runs and fails without a trace when its folder is missing, so a folder never goes
// into the directive. The batch shell then logs to a plain name in the folder of submission, and the step's log goes to the named
// folder, which the script makes first.
#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/quantity.h"
#include "codegen/quote.h"
#include "codegen/target.h"

namespace distsetup {
namespace {

constexpr int kDefaultCpusPerTask = 8;

struct Checker {
  Fields fields;
  Diagnostics diagnostics;
  const Location at{"command line", 0, 0};

  void fail(const char* code, std::string message, std::string help = "") {
    diagnostics.push_back(error(code, at, std::move(message), std::move(help)));
  }

  void text(const char* field, const char* flag, const std::string& value) {
    if (value.empty()) return;
    if (has_control_characters(value))
      return fail(code::kOutOfRange, fmt::format("{} has control characters, expected one line of text", flag));
    set_field(fields, field, value);
  }

  void time(const std::string& value) {
    if (value.empty()) return;
    Result<int64_t> seconds = parse_duration_s(value, at);
    append(diagnostics, seconds.diagnostics);
    if (seconds.ok()) set_field(fields, "job.time_limit", format_slurm_time(*seconds));
  }

  // SLURM's K, M, G, T are powers of 1024.
  void memory(const char* field, const std::string& value) {
    if (value.empty()) return;
    if (value == "0") return set_field(fields, field, "0");
    Result<int64_t> bytes = parse_bytes(value, at, BareSuffix::kBinary);
    append(diagnostics, bytes.diagnostics);
    if (!bytes.ok()) return;
    const bool whole_gib = *bytes % kGiB == 0;
    if (*bytes % kMiB != 0 || *bytes <= 0) return fail(code::kOutOfRange, fmt::format("'{}' is not a whole number of MiB", value));
    set_field(fields, field, fmt::format("{}{}", *bytes / (whole_gib ? kGiB : kMiB), whole_gib ? "G" : "M"));
  }

  void exports(const std::vector<std::string>& values) {
    for (const std::string& value : values) {
      const size_t equals = value.find('=');
      const std::string name = value.substr(0, equals);
      const bool legal = equals != std::string::npos && !name.empty() && (name[0] < '0' || name[0] > '9') &&
                         std::all_of(name.begin(), name.end(), [](char c) {
                           return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
                         });
      if (!legal) fail(code::kOutOfRange, fmt::format("'{}' is not an export, expected NAME=VALUE", comment_text(value)));
    }
    if (!values.empty()) set_field(fields, "job.exports", Json(values));
  }

  void logs(const std::string& output, const std::string& error_log) {
    const size_t slash = output.rfind('/');
    const std::string folder = slash == std::string::npos ? "" : output.substr(0, std::max<size_t>(slash, 1));
    const auto beside = [](const std::string& path) {
      const bool out = path.size() > 4 && path.compare(path.size() - 4, 4, ".out") == 0;
      return (out ? path.substr(0, path.size() - 4) : path) + ".err";
    };
    if (output.empty() || output.back() == '/') {
      return fail(code::kOutOfRange, fmt::format("log '{}' names no file, expected a path like logs/%x-%j.out", comment_text(output)));
    }
    if (folder.find('%') != std::string::npos) {
      return fail(code::kOutOfRange,
                  fmt::format("log '{}' has a pattern in its folder, which nobody could make before the job", comment_text(output)),
                  "use % patterns in the file name only");
    }
    for (const std::string& log : {output, error_log}) {
      if (has_control_characters(log)) return fail(code::kOutOfRange, "the log's path has control characters");
    }
    if (folder.empty()) {
      if (error_log.find('/') != std::string::npos) {
        return fail(
            code::kConflict,
            fmt::format("the error log '{}' has a folder, the log '{}' has none", comment_text(error_log), comment_text(output)),
            "give both the same folder");
      }
      set_field(fields, "job.output", output);
      set_field(fields, "job.error", error_log.empty() ? beside(output) : error_log);
      return;
    }
    const size_t error_slash = error_log.rfind('/');
    if (!error_log.empty() && (error_slash == std::string::npos || error_log.substr(0, std::max<size_t>(error_slash, 1)) != folder)) {
      return fail(code::kConflict,
                  fmt::format("the logs '{}' and '{}' are in different folders", comment_text(output), comment_text(error_log)),
                  "give both the same folder");
    }
    set_field(fields, "job.output", "slurm-%j.out");
    set_field(fields, "job.error", "slurm-%j.err");
    set_field(fields, "job.step_log_folder", folder);
    set_field(fields, "job.step_output", output);
    set_field(fields, "job.step_error", error_log.empty() ? beside(output) : error_log);
  }

  void size(const JobOptions& options, const Plan* plan) {
    const JobOptions defaults;
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
      set_field(fields, "hardware.nodes", options.nodes);
      set_field(fields, "hardware.gpus_per_node", options.gpus_per_node);
      set_field(fields, "hardware.accelerator", options.cpu_only ? "cpu" : "cuda");
      set_field(fields, "derived.source", "options");
      set_field(fields, "derived.single_node", options.nodes == 1);
    }
    const bool cpu = field_text(fields.find("hardware.accelerator")->second) == "cpu";
    if (!cpu) set_field(fields, "job.gpus_per_node", fields.find("hardware.gpus_per_node")->second);
    if (options.cpus_per_task && *options.cpus_per_task < 1) {
      fail(code::kOutOfRange, fmt::format("--cpus-per-task {}, expected at least 1", *options.cpus_per_task));
    }
    if (options.cpus_per_task || !cpu) set_field(fields, "job.cpus_per_task", options.cpus_per_task.value_or(kDefaultCpusPerTask));
  }

  // A step warned by SLURM itself gets USR1 in every process. With requeue the batch shell has to know as well, so it is warned
  // (B:) and passes the signal on.
  void ending(const JobOptions& options) {
    if (options.signal_lead_s < 0 || options.signal_lead_s > 65535) {  // sbatch's own limit
      return fail(code::kOutOfRange, fmt::format("--signal-lead {}, expected 0 to 65535 seconds", options.signal_lead_s));
    }
    if (options.signal_lead_s > 0)
      set_field(fields, "job.signal", fmt::format("{}USR1@{}", options.requeue ? "B:" : "", options.signal_lead_s));
    if (options.requeue && options.signal_lead_s == 0) {
      fail(code::kConflict, "--requeue without a warning before the time limit would lose the work since the last checkpoint",
           "give --signal-lead 120");
    }
    set_field(fields, "job.max_restarts", options.max_restarts);
    if (!options.requeue) return;
    if (options.max_restarts < 1) fail(code::kOutOfRange, fmt::format("--max-restarts {}, expected at least 1", options.max_restarts));
    set_field(fields, "job.requeue", true);
    set_field(fields, "job.open_mode", "append");
  }
};

}  // namespace

Result<Fields> job_fields(const JobOptions& options, Fields fields, const Plan* plan) {
  Checker check{std::move(fields), {}};
  check.size(options, plan);
  check.text("job.job_name", "--job-name", options.job_name);
  check.text("job.partition", "--partition", options.partition);
  check.text("job.account", "--account", options.account);
  check.text("job.qos", "--qos", options.qos);
  check.text("job.constraint", "--constraint", options.constraint);
  check.text("job.reservation", "--reservation", options.reservation);
  check.text("job.exclude", "--exclude", options.exclude);
  check.text("job.dependency", "--dependency", options.dependency);
  check.text("job.array", "--array", options.array);
  check.text("job.mail_user", "--mail-user", options.mail_user);
  check.time(options.time_limit);
  check.memory("job.memory_per_gpu", options.memory_per_gpu);
  check.memory("job.memory_per_node", options.memory_per_node);
  if (!options.memory_per_gpu.empty() && !options.memory_per_node.empty()) {
    check.fail(code::kConflict, "--memory-per-gpu and --memory-per-node say the same thing twice", "keep one of them");
  }
  check.exports(options.exports);
  check.logs(options.output_log, options.error_log);
  check.ending(options);
  if (options.exclusive) set_field(check.fields, "job.exclusive", true);
  for (const std::string& name : options.modules) {
    if (has_control_characters(name))
      check.fail(code::kOutOfRange, fmt::format("module '{}' has control characters", comment_text(name)));
  }
  if (!options.modules.empty()) set_field(check.fields, "job.modules", Json(options.modules));
  if (!options.setup.empty()) set_field(check.fields, "job.setup", Json(options.setup));
  set_field(check.fields, "job.with_plan", plan != nullptr);
  if (plan != nullptr && !plan->inputs_digest.empty()) set_field(check.fields, "job.plan_digest", plan->inputs_digest);
  if (has_error(check.diagnostics)) return check.diagnostics;
  return {std::move(check.fields), std::move(check.diagnostics)};
}

Result<Artifacts> slurm_script(const JobOptions& options, const std::optional<Plan>& plan) {
  const Plan* given = plan ? &*plan : nullptr;
  Result<Fields> fields = job_fields(options, given != nullptr ? fields_of(*given) : no_fields(), given);
  if (!fields.ok()) return fields.diagnostics;
  return emit_target(options.templates, "slurm", Source{std::move(*fields), given, options.command, {"command line", 0, 0}});
}

Result<Artifacts> emit(const Plan& plan, std::string_view target, const EmitOptions& options) {
  Fields fields = fields_of(plan);
  set_field(fields, "options.fsdp_version", options.fsdp_version);
  set_field(fields, "options.checkpoint", "sharded");
  if (!options.nvme_path.empty()) set_field(fields, "options.nvme_path", options.nvme_path);
  JobOptions job = options.job;
  job.cpu_only = plan.hardware.accelerator == Accelerator::kCpu;
  Result<Fields> all = job_fields(job, std::move(fields), &plan);
  if (!all.ok()) return all.diagnostics;
  return emit_target(options.templates, std::string(target), Source{std::move(*all), &plan, options.command, {"command line", 0, 0}});
}

}  // namespace distsetup
