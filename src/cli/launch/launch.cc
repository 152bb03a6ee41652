// `distsetup launch`: from a plan to running ranks on this node. Decides ranks, address and port; cli/local_ranks.cc runs them.
// On one node the port is picked by the kernel and held by a bound, not listening, socket with SO_REUSEADDR until the job ends: no
// other program is given it, and rank 0 may still listen on it (Linux: such sockets share a port while at most one of them listens).
// Leaves out: starting other nodes. Each node runs its own `distsetup launch --node-rank K` (the emitted launch_node.sh does).
#include "cli/launch/launch.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/quantity.h"
#include "cli/deliver/targets.h"
#include "cli/launch/local_ranks.h"
#include "cli/launch/predicted_profile.h"
#include "cli/launch/preflight.h"
#include "cli/launch/trainer_program.h"
#include "cli/line/terminal.h"
#include "codegen/shell/quote.h"
#include "plan/plan.h"
#include "plan/plan_json.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

std::string host_name() {
  char text[256] = {};
  return ::gethostname(text, sizeof(text) - 1) == 0 ? text : "this host";
}

// A port as a socket that holds it.
struct HeldPort {
  int fd = -1;
  int port = 0;
  int error_number = 0;
  HeldPort() = default;
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;
  ~HeldPort() {
    if (fd >= 0) ::close(fd);
  }
};

// `port` 0: any free one. A given port is tried with listen() as well, which is what tells that another program listens there.
void hold_port(int port, HeldPort& held) {
  const auto open_bound = [&held](int wanted) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    address.sin_port = htons(static_cast<uint16_t>(wanted));
    if (fd < 0 || ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      held.error_number = errno;
      if (fd >= 0) ::close(fd);
      return -1;
    }
    return fd;
  };
  if (port != 0) {
    const int probe = open_bound(port);
    if (probe < 0) return;
    if (::listen(probe, 1) != 0) held.error_number = errno;
    ::close(probe);
    if (held.error_number != 0) return;
  }
  held.fd = open_bound(port);
  if (held.fd < 0) return;
  sockaddr_in bound = {};
  socklen_t size = sizeof(bound);
  ::getsockname(held.fd, reinterpret_cast<sockaddr*>(&bound), &size);
  held.port = ntohs(bound.sin_port);
}

// The options against the plan; fills what they leave open.
Diagnostics check_options(const LaunchOptions& options, const Plan& plan) {
  const Location at = {"command line"};
  Diagnostics found;
  const int nodes = plan.hardware.nodes, world = plan.mesh.world();
  if (nodes < 1 || world % nodes != 0) {
    found.push_back(error(code::kLaunchRefused, at,
                          fmt::format("the plan has {} ranks on {} nodes, expected the same number on each", world, nodes)));
  }
  if (options.node_rank < 0 || options.node_rank >= nodes) {
    found.push_back(error(code::kOutOfRange, at,
                          fmt::format("--node-rank {} with {} {}, expected 0 to {}", options.node_rank, nodes,
                                      nodes == 1 ? "node" : "nodes", nodes - 1)));
  }
  if (options.master_port < 0 || options.master_port > 65535) {
    found.push_back(error(code::kOutOfRange, at, fmt::format("--master-port {}, expected 1 to 65535", options.master_port)));
  }
  if (nodes > 1 && (options.master_addr.empty() || options.master_port == 0)) {
    found.push_back(error(code::kMissingArgument, at,
                          fmt::format("the plan has {} nodes, and {} is not given", nodes,
                                      options.master_addr.empty() ? "--master-addr" : "--master-port"),
                          "run on every node: distsetup launch --plan " + options.plan_path +
                              " --node-rank K --master-addr HOST_OF_NODE_0 --master-port 29500"));
  }
  if (!(options.grace_s >= 0))
    found.push_back(error(code::kOutOfRange, at, fmt::format("--grace {}, expected at least 0", options.grace_s)));
  return found;
}

// A rank's device is its local rank among the visible ones: too few of them and the last ranks would fail one by one.
Diagnostics check_visible(const Plan& plan) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (plan.hardware.accelerator != Accelerator::kCuda || visible == nullptr) return {};
  const int ranks = plan.mesh.world() / plan.hardware.nodes, gpus = visible_gpus();
  if (gpus >= ranks) return {};
  return {error(code::kEnvironment, {"environment variable CUDA_VISIBLE_DEVICES"},
                fmt::format("CUDA_VISIBLE_DEVICES={} shows {} {}, the plan has {} ranks on this node", visible, gpus,
                            gpus == 1 ? "GPU" : "GPUs", ranks),
                "unset CUDA_VISIBLE_DEVICES, or plan again with --gpus " + std::to_string(gpus))};
}

Diagnostic refuse(const Plan& plan, const std::string& path) {
  const int64_t short_bytes = plan.memory.device_bytes - plan.memory.capacity_bytes;
  return error(code::kLaunchRefused, {path},
               fmt::format("this plan is marked 'does_not_fit': it needs {} per GPU, {} more than the {} there are",
                           format_gib(plan.memory.device_bytes), format_gib(short_bytes), format_gib(plan.memory.capacity_bytes)),
               "run `distsetup plan` with one of the fixes it prints, and launch that plan");
}

// Of our terminal, behind a rank's prefix; 0: our output goes elsewhere.
int columns_beside(int rank) {
  const TextStream out = make_terminal(ColourChoice::kAuto, Talk::kNormal).out;
  return out.is_terminal ? std::max(1, out.width_columns - static_cast<int>(rank_prefix(rank).size())) : 0;
}

std::vector<RankCommand> commands_of(const LaunchOptions& options, const Plan& plan, const std::string& trainer,
                                     const std::string& address, int port) {
  const int world = plan.mesh.world(), local_world = world / plan.hardware.nodes;
  std::vector<RankCommand> commands;
  for (int local = 0; local < local_world; ++local) {
    RankCommand command;
    command.rank = options.node_rank * local_world + local;
    command.arguments = {trainer, "--plan", options.plan_path};
    if (!options.output_dir.empty()) command.arguments.insert(command.arguments.end(), {"--output", options.output_dir});
    command.arguments.insert(command.arguments.end(), options.trainer_arguments.begin(), options.trainer_arguments.end());
    command.variables = {{"RANK", std::to_string(command.rank)},
                         {"LOCAL_RANK", std::to_string(local)},
                         {"WORLD_SIZE", std::to_string(world)},
                         {"LOCAL_WORLD_SIZE", std::to_string(local_world)},
                         {"GROUP_RANK", std::to_string(options.node_rank)},
                         {"MASTER_ADDR", address},
                         {"MASTER_PORT", std::to_string(port)},
                         {"TORCHELASTIC_USE_AGENT_STORE", "False"}};
    if (const int columns = columns_beside(command.rank); columns > 0)
      command.variables.emplace_back("DISTSETUP_COLUMNS", std::to_string(columns));
    commands.push_back(std::move(command));
  }
  return commands;
}

std::string describe(const RankEnd& end) {
  const std::string how = end.by_signal ? fmt::format("was killed by signal {} ({})", end.number, signal_name(end.number))
                                        : fmt::format("ended with exit code {}", end.number);
  std::string text = fmt::format("rank {} on {} {}", end.rank, host_name(), how);
  if (!end.last_error_line.empty()) text += fmt::format("; its last line: {}", end.last_error_line);
  return text;
}

int conclude(const RunEnd& run) {
  if (!run.start_error.empty()) {
    report({error(code::kLaunchRefused, {}, run.start_error)});
    return kFailed;
  }
  if (run.first_failure < 0) return run.interrupted_by == SIGINT ? kInterrupted : 0;
  // Before training begins a rank has nothing to save and leaves SIGTERM its default.
  const bool as_asked = run.interrupted_by != 0 && std::all_of(run.ends.begin(), run.ends.end(), [](const RankEnd& end) {
                          return !end.failed() || (end.by_signal && end.number == SIGTERM);
                        });
  if (as_asked) {
    fmt::print(stderr, "distsetup: stopped by {} before training began\n", signal_name(run.interrupted_by));
    return kInterrupted;
  }
  const RankEnd& first = run.ends[static_cast<size_t>(run.first_failure)];
  int num_failed = 0;
  for (const RankEnd& end : run.ends) num_failed += end.failed() ? 1 : 0;
  std::string message = describe(first);
  if (num_failed > 1) message += fmt::format(" ({} more {} ended because of it)", num_failed - 1, num_failed == 2 ? "rank" : "ranks");
  std::string help;
  if (first.by_signal && first.number == SIGKILL && run.interrupted_by == 0)
    help = "signal 9 that nobody sent is the kernel out of memory: see `dmesg | tail` on that host";
  report({error(code::kRankFailed, {}, message, help)});
  if (run.interrupted_by == SIGINT) return kInterrupted;
  const bool kept = !first.by_signal && (first.number == kConfigInvalid || first.number == kEnvironmentUnusable);
  return kept ? first.number : kJobFailed;
}

// Other trainers are started by the files of their targets, most of them with a command of one's own.
Diagnostic needs_command(const Plan& plan, const std::string& path) {
  return error(
      code::kLaunchRefused, {path},
      fmt::format("this plan is for trainer {}; launch starts the bundled trainer", plan.strategy.trainer),
      fmt::format("distsetup emit --target {0} --plan {1} --output run, or a command of your own: distsetup emit --target torchrun "
                  "--plan {1} --output run -- train.py",
                  usual_target(plan), join_command({path})));
}

std::optional<std::string> find_trainer(const LaunchOptions& options) {
  const std::string path = trainer_program(options.trainer_path);
  if (is_program(path)) return path;
  report({error(code::kEnvironment, {}, fmt::format("'{}' is not there or not executable", path),
                "build the trainer: ./scripts/build --runtime")});
  return std::nullopt;
}

}  // namespace

int run_launch(const LaunchOptions& options) {
  const Result<std::string> text = read_file(options.plan_path);
  if (!text.ok()) return report(text.diagnostics), kConfigInvalid;
  const Result<Plan> plan = plan_from_json(*text, options.plan_path);
  if (!plan.ok()) return report(plan.diagnostics), kConfigInvalid;
  if (!is_native(*plan)) return report({needs_command(*plan, options.plan_path)}), kConfigInvalid;
  if (const Diagnostics found = check_options(options, *plan); has_error(found)) return report(found), kUsage;
  if (plan->verdict == Verdict::kDoesNotFit) return report({refuse(*plan, options.plan_path)}), kNothingFits;
  const std::optional<std::string> trainer = find_trainer(options);
  if (!trainer) return kEnvironmentUnusable;
  if (const Diagnostics found = check_visible(*plan); has_error(found)) return report(found), kEnvironmentUnusable;

  if (asks_for_profile(options.trainer_arguments)) {
    const std::string folder = options.output_dir.empty() ? fs::path(options.plan_path).parent_path().string() : options.output_dir;
    if (const Diagnostics found = write_predicted_profile(*plan, *text, folder); has_error(found)) return report(found), kFailed;
  }

  HeldPort held;
  int port = options.master_port;
  if (options.node_rank == 0) {
    hold_port(options.master_port, held);
    if (held.fd < 0) {
      report({error(code::kEnvironment, {"command line"},
                    fmt::format("port {} on {} cannot be used, {}", options.master_port, host_name(), errno_text(held.error_number)),
                    plan->hardware.nodes == 1 ? "leave --master-port out: a free one is picked"
                                              : "name another --master-port, the same on every node")});
      return kEnvironmentUnusable;
    }
    port = held.port;
  }
  const std::string address = options.master_addr.empty() ? "127.0.0.1" : options.master_addr;
  const std::vector<RankCommand> commands = commands_of(options, *plan, *trainer, address, port);
  fmt::print(stderr, "{} {} × {} {} = {}, node {} of {}, {}:{}\n", plan->hardware.nodes, plan->hardware.nodes == 1 ? "node" : "nodes",
             commands.size(), commands.size() == 1 ? "rank" : "ranks", plan->mesh.world(), options.node_rank, plan->hardware.nodes,
             address, port);
  std::fflush(nullptr);
  return conclude(run_local_ranks(commands, options.grace_s));
}

}  // namespace distsetup
