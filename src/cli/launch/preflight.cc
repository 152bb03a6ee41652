// Leaves out: what only running shows (bandwidth between nodes, memory errors): that is the job's own health gate.
#include "cli/launch/preflight.h"

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/diagnostic_codes.h"
#include "base/machine_memory.h"
#include "base/names.h"
#include "base/quantity.h"
#include "base/text.h"
#include "cli/launch/sinfo.h"
#include "cli/launch/trainer_program.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

Finding good(std::string check, std::string found) { return {true, std::move(check), std::move(found), "", ""}; }
Finding bad(std::string check, std::string found, std::string wanted, std::string action) {
  return {false, std::move(check), std::move(found), std::move(wanted), std::move(action)};
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

void check_partition(const JobOptions& options, const Plan& plan, const std::vector<Partition>& rows, std::vector<Finding>& findings) {
  const std::string partition_name = options.settings.text("partition");
  const bool asks_for_gpus = options.settings.text("gpus.request") != "none";
  std::vector<std::string> names;
  std::vector<Partition> mine;
  for (const Partition& row : rows) {
    if (std::find(names.begin(), names.end(), row.name) == names.end()) names.push_back(row.name);
    if (partition_name.empty() ? row.is_default : row.name == partition_name) mine.push_back(row);
  }
  std::string known;
  for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
  if (mine.empty() && !partition_name.empty()) {
    findings.push_back(bad("partition", fmt::format("no '{}'", partition_name), "one of " + known, suggest(partition_name, names)));
    return;
  }
  if (mine.empty()) {
    findings.push_back(
        bad("partition", "none is the default", "one of " + known, "--partition " + (names.empty() ? "NAME" : names[0])));
    return;
  }
  const std::string name = mine.front().name;
  if (!mine.front().is_up)
    findings.push_back(bad("partition", fmt::format("'{}' is down", name), "one that is up: " + known, "--partition NAME"));
  const bool is_cpu = plan.hardware.accelerator == Accelerator::kCpu;
  const int nodes = plan.hardware.nodes, gpus = is_cpu ? 0 : plan.hardware.gpus_per_node;
  int all = 0, with_gpus = 0, most_gpus = 0;
  for (const Partition& row : mine) {
    all += row.nodes;
    most_gpus = std::max(most_gpus, gpus_in(row.gres).per_node);
    if (gpus_in(row.gres).per_node >= gpus) with_gpus += row.nodes;
  }
  findings.push_back(
      good("partition", fmt::format("'{}' has {} {} of up to {} GPUs", name, all, all == 1 ? "node" : "nodes", most_gpus)));
  if (nodes > all) {
    findings.push_back(
        bad("nodes", fmt::format("{} in '{}'", all, name), fmt::format("{}", nodes), fmt::format("plan again with --nodes {}", all)));
  } else if (gpus > most_gpus && asks_for_gpus) {
    findings.push_back(bad("GPUs", fmt::format("{} per node in '{}'", most_gpus, name), fmt::format("{} per node", gpus),
                           most_gpus > 0 ? fmt::format("plan again with --gpus {}", most_gpus) : "another --partition"));
  } else if (nodes > with_gpus && asks_for_gpus) {
    findings.push_back(bad("GPUs", fmt::format("{} nodes of '{}' have {} GPUs", with_gpus, name, gpus), fmt::format("{} nodes", nodes),
                           "fewer --nodes, or another --partition"));
  }
  const Result<int64_t> limit_s = parse_duration_s(mine.front().time_limit), wanted_s = parse_duration_s(options.time_limit);
  if (limit_s.ok() && wanted_s.ok() && *wanted_s > *limit_s) {
    findings.push_back(bad("time limit", fmt::format("'{}' allows {}", name, mine.front().time_limit), options.time_limit,
                           fmt::format("--time-limit {}, and --requeue to go on in the next job", format_slurm_time(*limit_s))));
  }
}

int64_t available_bytes(const std::string& directory) {
  fs::path path = fs::absolute(directory);
  std::error_code ignored;
  while (!fs::exists(path, ignored) && path.has_parent_path() && path != path.parent_path()) path = path.parent_path();
  struct statvfs facts = {};
  if (::statvfs(path.c_str(), &facts) != 0) return -1;
  return static_cast<int64_t>(facts.f_bavail) * static_cast<int64_t>(facts.f_frsize);
}

void check_data(const LaunchOptions& options, const Plan& plan, std::vector<Finding>& findings) {
  if (plan.data.files.empty()) {
    findings.push_back(bad("data", "the plan names no files", "text to train on", "plan again with --data PATH"));
    return;
  }
  const fs::path folder = fs::path(options.plan_path).parent_path(), root = folder / plan.data.root;
  for (const DataFile& file : plan.data.files) {
    std::error_code failed;
    const fs::path path = root / file.path;
    const uintmax_t bytes = fs::file_size(path, failed);
    if (!failed && static_cast<int64_t>(bytes) == file.bytes) continue;
    findings.push_back(bad("data",
                           failed ? fmt::format("no '{}'", path.string()) : fmt::format("'{}' has {} bytes", path.string(), bytes),
                           fmt::format("{} bytes as planned", file.bytes), "put the file back, or plan again"));
    return;
  }
  findings.push_back(good("data", fmt::format("{} files as planned", plan.data.files.size())));
}

}  // namespace

int visible_gpus() {
  std::error_code ignored;
  int devices = 0;
  while (fs::exists(fmt::format("/dev/nvidia{}", devices), ignored)) ++devices;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return devices > 0 ? devices : -1;
  // CUDA stops at the first entry it does not know, such as -1.
  int listed = 0;
  for (const std::string& entry : split(visible, ',')) {
    if (entry.empty() || entry[0] == '-') break;
    ++listed;
  }
  return listed;
}

std::vector<Finding> check_node(const LaunchOptions& options, const Plan& plan) {
  std::vector<Finding> findings;
  std::error_code failure;
  const std::string trainer = trainer_program(options.trainer_path);
  if (is_program(trainer)) {
    findings.push_back(good("trainer", trainer));
  } else {
    findings.push_back(bad("trainer", fmt::format("no '{}'", trainer), "distsetup-train", "./scripts/build --runtime"));
  }
  const int ranks = plan.mesh.world() / std::max(1, plan.hardware.nodes);
  if (plan.hardware.accelerator == Accelerator::kCuda) {
    const int gpus = visible_gpus();
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    const std::string found =
        gpus < 0 ? "no NVIDIA driver"
                 : fmt::format("{} visible{}", gpus, visible != nullptr ? fmt::format(" (CUDA_VISIBLE_DEVICES={})", visible) : "");
    if (gpus >= ranks) {
      findings.push_back(good("GPUs", found));
    } else {
      findings.push_back(bad("GPUs", found, fmt::format("{}", ranks),
                             visible != nullptr ? "unset CUDA_VISIBLE_DEVICES, or plan again with fewer --gpus"
                                                : "plan again with --gpu cpu, or run on a node with GPUs"));
    }
  }
  const int64_t memory_bytes = machine_memory().value_or(MachineMemory{0, -1}).available_bytes,
                wanted_bytes = plan.memory.host_bytes_per_node;
  if (memory_bytes >= 0 && wanted_bytes > 0) {
    if (memory_bytes >= wanted_bytes) {
      findings.push_back(good("host memory", format_gib(memory_bytes) + " available"));
    } else {
      findings.push_back(bad("host memory", format_gib(memory_bytes) + " available", format_gib(wanted_bytes),
                             "end other programs, or plan for more nodes"));
    }
  }
  check_data(options, plan, findings);
  const fs::path folder = options.output_dir.empty() ? fs::path(options.plan_path).parent_path() : fs::path(options.output_dir);
  const fs::path checkpoints = folder / plan.checkpoint.directory;
  const int64_t free_bytes = available_bytes(checkpoints.string());
  // The newest is complete before the oldest goes.
  const int64_t needed_bytes = plan.memory.checkpoint_bytes * (plan.checkpoint.keep + 1);
  if (free_bytes >= needed_bytes) {
    findings.push_back(good("room for checkpoints", format_bytes(free_bytes)));
  } else {
    findings.push_back(bad("room for checkpoints", format_bytes(std::max<int64_t>(free_bytes, 0)),
                           fmt::format("{} for {} of {}", format_bytes(needed_bytes), plan.checkpoint.keep + 1,
                                       format_bytes(plan.memory.checkpoint_bytes)),
                           "another --checkpoint-directory, or a smaller --keep-checkpoints"));
  }
  return findings;
}

std::vector<Finding> check_slurm(const JobOptions& options, const Plan& plan, const std::string& script) {
  const Said info = ask_sinfo(30);
  if (!info.started || info.code != 0) {
    return {bad("SLURM", info.started ? first_line(info.text) : "no 'sinfo' on PATH", "a host that jobs are submitted from",
                "run this on a login node of the cluster")};
  }
  std::vector<Finding> findings;
  check_partition(options, plan, partitions_in(info.text), findings);
  if (std::any_of(findings.begin(), findings.end(), [](const Finding& f) { return !f.is_good; })) return findings;
  const Said test = run_program({"sbatch", "--test-only", script}, 60);
  std::string line = first_line(test.text);
  if (const size_t prefix = line.rfind("sbatch: "); prefix != std::string::npos) line = line.substr(prefix + 8);
  if (test.started && test.code == 0) {
    findings.push_back(good("sbatch --test-only", line));
  } else {
    findings.push_back(
        bad("sbatch --test-only", test.started ? line : "no 'sbatch' on PATH", "a job the cluster takes", "change the flag it names"));
  }
  return findings;
}

Diagnostics report_findings(const Terminal& terminal, const std::vector<Finding>& findings) {
  Diagnostics mistakes;
  for (const Finding& finding : findings) {
    if (finding.is_good) mention(terminal, fmt::format("ok    {}: {}\n", finding.check, finding.found));
    if (!finding.is_good)
      mistakes.push_back(error(code::kPreflight, {},
                               fmt::format("{}: found {}, expected {}", finding.check, finding.found, finding.wanted),
                               finding.action));
  }
  return mistakes;
}

}  // namespace distsetup
