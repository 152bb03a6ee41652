// `distsetup launch`: flags to LaunchOptions.
#include "base/diagnostic_codes.h"
#include "cli/commands.h"
#include "cli/launch.h"
#include "cli/output.h"
#include "cli/run_source.h"

namespace distsetup {
namespace {

constexpr int kMaxPort = 65535;

// Switches and values that the trainer reads.
std::vector<std::string> trainer_arguments(const Arguments& arguments) {
  std::vector<std::string> out;
  for (const char* name : {"dry-run", "poison"}) {
    if (arguments.has(name)) out.push_back(std::string("--") + name);
  }
  for (const char* name : {"stop-after", "trace", "threads"}) {
    if (arguments.has(name)) out.insert(out.end(), {std::string("--") + name, arguments.text(name)});
  }
  out.insert(out.end(), arguments.passed_on.begin(), arguments.passed_on.end());
  return out;
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
  if (has_error(diagnostics)) return fail(arguments, terminal, diagnostics);
  options.node_rank = static_cast<int>(*node_rank);
  options.master_port = static_cast<int>(*port);
  options.grace_s = *grace_s;
  options.master_addr = arguments.text("master-addr");
  options.output_dir = arguments.text("output");
  options.trainer_path = arguments.text("trainer-program");
  options.trainer_arguments = trainer_arguments(arguments);
  return run_launch(options);
}

}  // namespace

Command launch_command() {
  Command command;
  command.name = "launch";
  command.summary = "start the trainer on this node: one process per GPU";
  command.examples = {"distsetup launch --plan run/plan.json",
                      "distsetup launch --plan run/plan.json --node-rank 1 --master-addr node0 --master-port 29500",
                      "distsetup launch --plan run/plan.json --dry-run"};
  command.notes =
      "Words behind -- go to the trainer as they are. The exit code of a failed rank is kept as 6, and the first rank that failed is "
      "named.";
  command.flags = {{"plan", {}, FlagKind::kValue, "PLAN.JSON", "the plan to run", 0},
                   {"node-rank", {}, FlagKind::kValue, "K", "which node this is, from 0 (0)", 0},
                   {"master-addr", {"master-address"}, FlagKind::kValue, "HOST", "first node; needed on several nodes", 0},
                   {"master-port", {}, FlagKind::kValue, "PORT", "port on the first node; on one node a free one is found", 0},
                   {"output", {"output-dir"}, FlagKind::kValue, "DIR", "where metrics and reports go (the plan's folder)", 'o'},
                   {"grace", {}, FlagKind::kValue, "SECONDS", "between asking ranks to stop and killing them (10)", 0},
                   {"trainer-program", {"trainer"}, FlagKind::kValue, "PATH", "distsetup-train (the one beside this program)", 0},
                   {"dry-run", {}, FlagKind::kSwitch, "", "trainer: check plan, data and memory, train nothing", 'n'},
                   {"stop-after", {}, FlagKind::kValue, "N", "trainer: stop after N steps", 0},
                   {"poison", {}, FlagKind::kSwitch, "", "trainer: fill freed memory with NaN", 0},
                   {"trace", {}, FlagKind::kValue, "PATH", "trainer: write what was executed", 0},
                   {"threads", {}, FlagKind::kValue, "N", "trainer: CPU threads per rank", 0}};
  command.positional = "[plan.json]";
  command.max_positionals = 1;
  command.after_dashes = AfterDashes::kPassedOn;
  command.run = run_launch_command;
  return command;
}

}  // namespace distsetup
