// `distsetup launch`: flags to LaunchOptions, or with --target slurm a job that is checked, confirmed and submitted.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/subprocess.h"
#include "cli/commands/commands.h"
#include "cli/deliver/job_files.h"
#include "cli/launch/launch.h"
#include "cli/launch/preflight.h"
#include "cli/launch/scratch_folder.h"
#include "cli/launch/smoke.h"
#include "cli/line/output.h"
#include "cli/settings/job_flags.h"
#include "cli/settings/run_source.h"
#include "plan/plan_json.h"
#include "planner/report/words.h"

namespace distsetup {
namespace {

constexpr int kMaxPort = 65535;
constexpr char kJobScript[] = "job.sbatch";

// Switches and values that the trainer reads.
std::vector<std::string> trainer_arguments(const Arguments& arguments) {
  std::vector<std::string> out;
  for (const char* name : {"dry-run", "poison", "tensorboard"}) {
    if (arguments.has(name)) out.push_back(std::string("--") + name);
  }
  for (const char* name : {"stop-after", "trace", "profile", "metrics-address", "threads", "offload-folder"}) {
    if (arguments.has(name)) out.insert(out.end(), {std::string("--") + name, arguments.text(name)});
  }
  out.insert(out.end(), arguments.passed_on.begin(), arguments.passed_on.end());
  return out;
}

// Flags of the trainer say nothing to a job that starts it later.
const std::vector<std::string> kLocalFlags = {"node-rank",   "master-addr",     "master-port",   "grace",   "trainer-program",
                                              "stop-after",  "poison",          "trace",         "profile", "threads",
                                              "tensorboard", "metrics-address", "offload-folder"};

// Standard input and error on a terminal: yes or no. Elsewhere --yes has to have said it.
Result<bool> confirm(const Arguments& arguments, const std::string& question) {
  if (arguments.has("yes")) return true;
  if (::isatty(0) == 0 || ::isatty(2) == 0) {
    return error(code::kMissingArgument, command_line(), "submitting asks first, and this is no terminal to ask on", "add --yes");
  }
  say(question + " [y/N] ");
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

// The script that sbatch is asked about lies away from the user's files.
Diagnostics ask_slurm(const Terminal& terminal, const JobFiles& job) {
  const ScratchFolder scratch("check");
  const std::string script = scratch.path() + "/" + kJobScript;
  for (const Artifact& file : job.delivery.files) {
    if (file.path == kJobScript) std::ofstream(script, std::ios::binary) << file.text;
  }
  return report_findings(terminal, check_slurm(job.job, *job.plan, script));
}

int submit(const Arguments& arguments, const Terminal& terminal, const std::string& folder) {
  const Said said = run_program({"sbatch", "--parsable", kJobScript}, 60, folder);
  if (!said.started || said.code != 0) {
    return fail(arguments, terminal,
                {error(code::kEnvironment, {}, "sbatch refused the job: " + said.text.substr(0, said.text.find('\n')))});
  }
  const std::string number = said.text.substr(0, said.text.find_first_not_of("0123456789"));
  suggest_next(terminal, "squeue --jobs " + number);
  return print_result(terminal, number + "\n");
}

// Writes the job, looks whether the cluster can give what it asks for, asks, submits.
int launch_on_slurm(const Arguments& given, const Terminal& terminal, const std::string& plan_path) {
  Diagnostics refused = refuse_idle(given, kLocalFlags, "when the ranks start here");
  if (!given.passed_on.empty()) {
    refused.push_back(error(code::kConflict, command_line(), "words behind -- go to a trainer that starts here, not to a job",
                            "leave them out; a command of one's own: distsetup emit --target slurm -- COMMAND"));
  }
  if (has_error(refused)) return fail(given, terminal, refused);
  Arguments arguments = given;
  arguments.values["plan"] = plan_path;
  arguments.positionals.clear();
  const std::string from = std::filesystem::path(plan_path).parent_path().string();
  const Result<Session> session = open_session(arguments);
  if (!session.ok()) return fail(arguments, terminal, session.diagnostics);
  JobRequest request;
  request.target = "slurm";
  request.output = arguments.text("output", from.empty() ? "." : from);
  Result<JobFiles> job = job_files(arguments, *session, terminal, request);
  if (!job.ok()) return fail(arguments, terminal, job.diagnostics);
  Delivery& delivery = job->delivery;
  std::erase_if(delivery.diagnostics, [&said = job->plan->diagnostics](const Diagnostic& one) {  // when the plan was made
    return std::find(said.begin(), said.end(), one) != said.end();
  });
  if (job->plan->verdict == Verdict::kDoesNotFit) {
    return fail(arguments, terminal,
                {error(code::kLaunchRefused, {plan_path}, "this plan is marked 'does_not_fit'",
                       "run `distsetup plan` with one of the fixes it prints, and launch that plan")});
  }
  if (arguments.has("dry-run")) return deliver(arguments, terminal, std::move(delivery));
  append(delivery.diagnostics, ask_slurm(terminal, *job));
  if (has_error(delivery.diagnostics)) return fail(arguments, terminal, delivery.diagnostics);
  say_diagnostics(terminal, delivery.diagnostics);  // before the question
  delivery.diagnostics.clear();
  if (arguments.has("check")) return kDone;
  const HardwarePlan& machines = job->plan->hardware;
  const Result<bool> is_wanted = confirm(
      arguments, fmt::format("submit {}/{}, {} × {} GPUs?", request.output, kJobScript, machines.nodes, machines.gpus_per_node));
  if (!is_wanted.ok()) return fail(arguments, terminal, is_wanted.diagnostics);
  if (!*is_wanted) return kInterrupted;
  delivery.next = "";
  const int code = deliver(arguments, terminal, std::move(delivery));
  return code == kDone ? submit(arguments, terminal, request.output) : code;
}

bool is_plan_text(const std::string& text) { return text.find("\"schema_version\"") != std::string::npos; }

// A plan, or what one is made of: a run file, a config.yaml.
Result<Plan> plan_or_run_file(const Arguments& arguments, const Session& session, const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.diagnostics;
  if (is_plan_text(*text)) {
    Result<Plan> plan = read_plan(path);
    if (plan.ok()) move_inputs(*plan, std::filesystem::path(path).parent_path().string(), ".");
    return plan;
  }
  Arguments one = arguments;
  one.positionals = {path};
  one.values.erase("plan");
  Result<PlanSource> source = read_or_make_plan(one, session);
  if (!source.ok()) return source.diagnostics;
  return {std::move(source->plan), std::move(source.diagnostics)};
}

// A run file becomes plan.json in the folder of --output, or beside it; a plan is used as it is.
Result<std::string> path_of_plan(const Arguments& arguments, const Terminal& terminal, const std::string& path) {
  const Result<std::string> text = read_file(path);
  const bool is_run_file = text.ok() && !is_plan_text(*text) && text->find_first_not_of(" \t\r\n") != std::string::npos &&
                           (*text)[text->find_first_not_of(" \t\r\n")] != '{';
  if (!is_run_file) return path;  // what is wrong with it is said when it is read
  const Result<Session> session = open_session(arguments);
  if (!session.ok()) return session.diagnostics;
  Result<Plan> plan = plan_or_run_file(arguments, *session, path);
  if (!plan.ok()) return plan.diagnostics;
  const std::string beside = std::filesystem::path(path).parent_path().string();
  const std::string folder = arguments.text("output", beside.empty() ? "." : beside);
  move_inputs(*plan, ".", folder);
  mention(terminal, machines_line(*plan) + headline(*plan) + "\n");
  const Result<std::vector<WrittenFile>> written = write_artifacts(arguments, {{"plan.json", dump_json(to_json(*plan))}}, folder);
  if (!written.ok()) return written.diagnostics;
  say_diagnostics(terminal, plan.diagnostics);
  mention_written(terminal, *written);
  return written->front().path;
}

// What only a job has.
Diagnostics refuse_job_flags(const Arguments& arguments, bool writes_plan) {
  std::vector<std::string> names = {"yes"};
  if (!writes_plan) names.emplace_back("force");
  for (const Flag& flag : job_flags()) names.push_back(flag.name);
  Diagnostics refused = refuse_idle(arguments, names, "with --target slurm");
  for (const Arguments::RunFlag& flag : arguments.run_flags) {
    refused.push_back(error(code::kConflict, command_line(), fmt::format("--{} acts only with --target slurm", flag.spelling),
                            "leave it out, or add --target slurm"));
  }
  return refused;
}

int run_launch_command(const Arguments& arguments, const Terminal& terminal) {
  LaunchOptions options;
  Diagnostics diagnostics;
  options.plan_path = arguments.text("plan", arguments.positionals.empty() ? "" : arguments.positionals[0]);
  if (options.plan_path.empty()) {
    diagnostics.push_back(
        error(code::kMissingArgument, command_line(), "no plan, expected the plan.json to run", "add --plan plan.json"));
  }
  const Result<int64_t> node_rank = int_flag(arguments, "node-rank", 0, 0, 1 << 20);
  const Result<int64_t> port = int_flag(arguments, "master-port", 0, 1, kMaxPort);
  const Result<double> grace_s = double_flag(arguments, "grace", options.grace_s);
  append(diagnostics, node_rank.diagnostics);
  append(diagnostics, port.diagnostics);
  append(diagnostics, grace_s.diagnostics);
  if (arguments.has("json")) {
    diagnostics.push_back(error(code::kConflict, command_line(), "launch passes the job's own output on and has no JSON form",
                                "leave out --json; the run's numbers are in report.json and metrics.jsonl"));
  }
  const Result<std::string> target = choice_flag(arguments, "target", std::string(kNative), {std::string(kNative), "slurm"});
  append(diagnostics, target.diagnostics);
  if (has_error(diagnostics)) return fail(arguments, terminal, diagnostics);
  if (arguments.has("smoke")) {
    append(diagnostics, refuse_job_flags(arguments, false));
    append(diagnostics, refuse_idle(arguments, {"check", "node-rank", "master-addr", "master-port"}, "without --smoke"));
    if (*target == "slurm") append(diagnostics, refuse_idle(arguments, {"target"}, "without --smoke, which runs here"));
    const Result<Session> session = open_session(arguments);
    append(diagnostics, session.diagnostics);
    const Result<Plan> plan =
        has_error(diagnostics) ? Result<Plan>(diagnostics) : plan_or_run_file(arguments, *session, options.plan_path);
    if (!plan.ok()) return fail(arguments, terminal, plan.diagnostics);
    say_diagnostics(terminal, plan.diagnostics);
    options.grace_s = *grace_s;
    options.output_dir = arguments.text("output");
    options.trainer_path = arguments.text("trainer-program");
    options.trainer_arguments = trainer_arguments(arguments);
    return run_smoke(arguments, *session, terminal, options, *plan);
  }
  const Result<std::string> plan_path = path_of_plan(arguments, terminal, options.plan_path);
  if (!plan_path.ok()) return fail(arguments, terminal, plan_path.diagnostics);
  if (*target == "slurm") return launch_on_slurm(arguments, terminal, *plan_path);
  append(diagnostics, refuse_job_flags(arguments, *plan_path != options.plan_path));
  if (has_error(diagnostics)) return fail(arguments, terminal, diagnostics);
  options.plan_path = *plan_path;
  options.node_rank = static_cast<int>(*node_rank);
  options.master_port = static_cast<int>(*port);
  options.grace_s = *grace_s;
  options.master_addr = arguments.text("master-addr");
  options.output_dir = arguments.text("output");
  options.trainer_path = arguments.text("trainer-program");
  options.trainer_arguments = trainer_arguments(arguments);
  if (!arguments.has("check")) return run_launch(options);
  const Result<Plan> plan = read_plan(options.plan_path);
  if (!plan.ok()) return fail(arguments, terminal, plan.diagnostics);
  const Diagnostics found = report_findings(terminal, check_node(options, *plan));
  return has_error(found) ? fail(arguments, terminal, found) : kDone;
}

}  // namespace

Command launch_command() {
  Command command;
  command.summary = "start the trainer on this node, one process per GPU, or as a job";
  command.examples = {"distsetup launch --plan run/plan.json",
                      "distsetup launch --plan run/plan.json --node-rank 1 --master-addr node0 --master-port 29500",
                      "distsetup launch --plan run/plan.json --dry-run",
                      "distsetup launch run.yaml",
                      "distsetup launch run.yaml --smoke",
                      "distsetup launch --plan run/plan.json --target slurm --partition gpu --check"};
  command.notes =
      "Words behind -- go to the trainer as they are. The exit code of a failed rank is kept as 6, and the first rank that failed is "
      "named.";
  command.flags = {
      {"plan", {}, FlagKind::kValue, "PLAN.JSON", "the plan to run; of a run file plan.json is made first", 0},
      {"target",
       {},
       FlagKind::kValue,
       "WHICH",
       "native: the ranks start here (the default); slurm: submit a job",
       0,
       {std::string(kNative), "slurm"}},
      {"check", {}, FlagKind::kSwitch, "", "only look whether this node, or the cluster, has what the plan needs", 0},
      {"smoke", {}, FlagKind::kSwitch, "", "train a few steps of a small stand-in here, of a plan, a run file or a config.yaml", 0},
      {"yes", {}, FlagKind::kSwitch, "", "submit without asking", 'y'},
      {"node-rank", {}, FlagKind::kValue, "K", "which node this is, from 0 (0)", 0},
      {"master-addr", {"master-address"}, FlagKind::kValue, "HOST", "first node; needed on several nodes", 0},
      {"master-port", {}, FlagKind::kValue, "PORT", "port on the first node; on one node a free one is found", 0},
      {"output", {"output-dir"}, FlagKind::kValue, "DIR", "where metrics and reports go (the plan's folder)", 'o'},
      {"grace", {}, FlagKind::kValue, "SECONDS", "between asking the others to stop when a rank has failed and killing them (10)", 0},
      {"trainer-program", {"trainer"}, FlagKind::kValue, "PATH", "distsetup-train (the one beside this program)", 0},
      {"dry-run", {}, FlagKind::kSwitch, "", "trainer: check plan, data and memory, train nothing", 'n'},
      {"stop-after", {}, FlagKind::kValue, "N", "trainer: stop after N steps", 0},
      {"tensorboard", {}, FlagKind::kSwitch, "", "trainer: write the metrics for TensorBoard, too: OUTPUT/tensorboard", 0},
      {"poison", {}, FlagKind::kSwitch, "", "trainer: fill freed memory with NaN", 0},
      {"trace", {}, FlagKind::kValue, "PATH", "trainer: write what was executed", 0},
      {"profile",
       {},
       FlagKind::kValue,
       "A:B",
       "trainer: write when each op of steps A to B ran, beside what was predicted, for Perfetto",
       0},
      {"metrics-address", {}, FlagKind::kValue, "HOST:PORT", "trainer: answer GET /metrics as OpenMetrics, from rank 0", 0},
      {"threads", {}, FlagKind::kValue, "N", "trainer: CPU threads per rank", 0},
      {"offload-folder",
       {},
       FlagKind::kValue,
       "DIR",
       "trainer: of a local disk, for an optimizer that lies there (TMPDIR, else /tmp)",
       0}};
  command.flags.push_back(force_flag());
  for (const Flag& flag : job_flags()) command.flags.push_back(flag);
  command.run_keys = {"launch.site", "launch.time_limit"};
  command.positional = "[plan.json | run.yaml]";
  command.max_positionals = 1;
  command.after_dashes = AfterDashes::kPassedOn;
  command.run = run_launch_command;
  return command;
}

}  // namespace distsetup
