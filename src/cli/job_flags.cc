// Texts go to codegen as they were typed; it checks them.
#include "cli/job_flags.h"

#include "base/quantity.h"
#include "cli/output.h"

namespace distsetup {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::string part;
  for (const char c : text) {
    if (c == separator) {
      if (!part.empty()) parts.push_back(part);
      part.clear();
    } else {
      part += c;
    }
  }
  if (!part.empty()) parts.push_back(part);
  return parts;
}

}  // namespace

std::vector<Flag> job_flags() {
  const auto value = [](std::string name, std::vector<std::string> aliases, std::string placeholder, std::string help) {
    return Flag{std::move(name), std::move(aliases), FlagKind::kValue, std::move(placeholder), "slurm: " + std::move(help), 0};
  };
  return {value("job-name", {}, "NAME", "name of the job (llm_finetune)"),
          value("partition", {}, "NAME", "partition"),
          value("account", {}, "NAME", "account"),
          value("qos", {}, "NAME", "quality of service"),
          value("constraint", {}, "TEXT", "features of the nodes"),
          value("reservation", {}, "NAME", "reservation"),
          value("exclude", {}, "NODES", "nodes not to use"),
          value("dependency", {}, "TEXT", "afterok:123 and the like"),
          value("array", {}, "TEXT", "job array"),
          value("mail-user", {}, "ADDRESS", "who is told when the job ends"),
          value("memory-per-gpu", {"mem-per-gpu"}, "SIZE", "host memory per GPU, 32G"),
          value("memory-per-node", {"mem"}, "SIZE", "host memory per node; 0: all of it"),
          value("cpus-per-task", {}, "N", "CPU cores per GPU (8)"),
          value("output-log", {"log"}, "PATH", "standard output of the job (slurm-%j.out)"),
          value("error-log", {}, "PATH", "standard error of the job (beside the output)"),
          value("modules", {"module"}, "A,B", "environment modules to load"),
          value("export", {"exports"}, "A=1,B=2", "variables to set"),
          value("setup", {}, "LINE", "a shell line before the run, such as activating an environment"),
          value("signal-lead", {}, "SECONDS", "how long before the time limit the trainer is told to save (120)"),
          value("max-restarts", {}, "N", "with --requeue: how often (10)"),
          {"exclusive", {}, FlagKind::kSwitch, "", "slurm: whole nodes", 0},
          {"requeue", {}, FlagKind::kSwitch, "", "slurm: save and queue again when the time limit comes near", 0},
          {"cpu-only", {}, FlagKind::kSwitch, "", "slurm: request no GPU", 0}};
}

std::vector<std::string> job_flag_names() {
  std::vector<std::string> names;
  for (const Flag& flag : job_flags()) names.push_back(flag.name);
  return names;
}

Result<JobOptions> job_options(const Arguments& arguments) {
  JobOptions options;
  Diagnostics diagnostics;
  options.job_name = arguments.text("job-name", options.job_name);
  options.partition = arguments.text("partition");
  options.account = arguments.text("account");
  options.qos = arguments.text("qos");
  options.constraint = arguments.text("constraint");
  options.reservation = arguments.text("reservation");
  options.exclude = arguments.text("exclude");
  options.dependency = arguments.text("dependency");
  options.array = arguments.text("array");
  options.mail_user = arguments.text("mail-user");
  options.memory_per_gpu = arguments.text("memory-per-gpu");
  options.memory_per_node = arguments.text("memory-per-node");
  options.output_log = arguments.text("output-log", options.output_log);
  options.error_log = arguments.text("error-log");
  options.modules = split(arguments.text("modules"), ',');
  options.exports = split(arguments.text("export"), ',');
  options.setup = split(arguments.text("setup"), '\n');
  options.exclusive = arguments.has("exclusive");
  options.requeue = arguments.has("requeue");
  options.cpu_only = arguments.has("cpu-only");
  const Result<int64_t> cpus = int_flag(arguments, "cpus-per-task", 8, 1, 4096);
  const Result<int64_t> lead = int_flag(arguments, "signal-lead", options.signal_lead_s, 0, 86400);
  const Result<int64_t> restarts = int_flag(arguments, "max-restarts", options.max_restarts, 0, 1000000);
  for (const Result<int64_t>* number : {&cpus, &lead, &restarts}) append(diagnostics, number->diagnostics);
  if (has_error(diagnostics)) return diagnostics;
  if (arguments.has("cpus-per-task")) options.cpus_per_task = static_cast<int>(*cpus);
  options.signal_lead_s = static_cast<int>(*lead);
  options.max_restarts = static_cast<int>(*restarts);
  options.command = emitted_command(arguments);
  return options;
}

std::string emitted_command(const Arguments& arguments) {
  std::vector<std::string> words = {"distsetup"};
  for (const std::string& word : command_words(arguments.words)) words.push_back(word);
  return join_command(words);
}

}  // namespace distsetup
