// See environment.h. Variables: torch.distributed.run's documentation ("Environment Variables"); srun(1) "OUTPUT ENVIRONMENT
// VARIABLES"; mpirun(1) of Open MPI.
#include "runtime/monitor/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/diagnostic_codes.h"

namespace distsetup {
namespace {

constexpr int kMostRanks = 1 << 20;
constexpr int kDefaultPort = 29500;  // torch.distributed.run's

struct VariableNames {
  const char* source;
  const char* rank;
  const char* world;
  const char* local_rank;
  const char* local_world;  // may be unset
};

class LauncherVariables {
 public:
  explicit LauncherVariables(const Getenv& get) : get_(get) {}
  // `least` … `most`; `missing` when unset.
  int number(const char* name, int least, int most, std::optional<int> missing) {
    const std::optional<std::string> text = get_(name);
    if (!text) {
      if (!missing) fail(name, fmt::format("{} is not set, expected a number beside its kin", name));
      return missing.value_or(least);
    }
    int value = 0;
    const auto parsed = std::from_chars(text->data(), text->data() + text->size(), value);
    if (parsed.ec != std::errc() || parsed.ptr != text->data() + text->size() || value < least || value > most) {
      fail(name, fmt::format("{} is '{}', expected a number from {} to {}", name, *text, least, most));
      return least;
    }
    return value;
  }
  Diagnostics found;

 private:
  void fail(const char* name, std::string message) {
    found.push_back(error(code::kEnvironment, {std::string("environment variable ") + name}, std::move(message)));
  }
  const Getenv& get_;
};

}  // namespace

std::string host_name() {
  char text[256] = {};
  return ::gethostname(text, sizeof(text) - 1) == 0 ? text : "unknown host";
}

std::optional<std::string> process_getenv(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

Result<RankEnvironment> read_environment(const Getenv& get) {
  RankEnvironment environment;
  environment.host = host_name();
  VariableNames names = {nullptr, nullptr, nullptr, nullptr, nullptr};
  if (get("RANK") || get("WORLD_SIZE")) {
    names = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
  } else if (get("SLURM_STEP_ID") && get("SLURM_PROCID")) {  // a task of srun; the batch shell has no step id
    names = {"SLURM", "SLURM_PROCID", get("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", "SLURM_LOCALID", nullptr};
  } else if (get("OMPI_COMM_WORLD_RANK")) {
    names = {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
  } else {
    environment.rendezvous.run_id = "single";
    return environment;
  }
  LauncherVariables reader(get);
  environment.source = names.source;
  environment.world = reader.number(names.world, 1, kMostRanks, std::nullopt);
  environment.rank = reader.number(names.rank, 0, std::max(environment.world, 1) - 1, std::nullopt);
  environment.local_rank =
      reader.number(names.local_rank, 0, kMostRanks, environment.world == 1 ? std::optional<int>(0) : std::nullopt);
  if (names.local_world != nullptr) {
    environment.local_world =
        reader.number(names.local_world, 1, environment.world, environment.world == 1 ? 1 : environment.local_rank + 1);
  } else {  // "2(x3),1": tasks of each node; the first number is right on all but uneven jobs
    const std::string tasks = get("SLURM_STEP_TASKS_PER_NODE").value_or(get("SLURM_NTASKS_PER_NODE").value_or("1"));
    environment.local_world = std::max(1, std::atoi(tasks.c_str()));
  }
  Rendezvous& rendezvous = environment.rendezvous;
  rendezvous.rank = environment.rank;
  rendezvous.world = environment.world;
  const std::optional<std::string> address = get("MASTER_ADDR");
  if (address) rendezvous.master_address = *address;
  if (!address && environment.world > environment.local_world) {
    reader.found.push_back(error(code::kEnvironment, {"environment variable MASTER_ADDR"},
                                 fmt::format("MASTER_ADDR is not set, and {} started ranks on several hosts", environment.source),
                                 "export MASTER_ADDR=HOST_OF_RANK_0 MASTER_PORT=29500"));
  }
  rendezvous.master_port = reader.number("MASTER_PORT", 1, 65535, kDefaultPort);
  rendezvous.agent_store = get("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  rendezvous.run_id =
      fmt::format("{}/{}/{}.{}", get("TORCHELASTIC_RUN_ID").value_or(""), get("TORCHELASTIC_RESTART_COUNT").value_or("0"),
                  get("SLURM_JOB_ID").value_or(""), get("SLURM_STEP_ID").value_or(""));
  rendezvous.interface = get("GLOO_SOCKET_IFNAME").value_or("");
  if (has_error(reader.found)) return reader.found;
  return environment;
}

Diagnostics check_environment(const RankEnvironment& environment, const Plan& plan) {
  const int world = plan.mesh.world();
  if (environment.world != world) {
    const std::string help = environment.world == 1 ? "start it with: distsetup launch --plan PLAN"
                                                    : fmt::format("start {} ranks, or plan for {}", world, environment.world);
    return {error(code::kEnvironment, {},
                  fmt::format("{} started {} {}, the plan is for {}", environment.source, environment.world,
                              environment.world == 1 ? "rank" : "ranks", world),
                  help)};
  }
  const int local = world / std::max(1, plan.hardware.nodes);
  if (environment.world > 1 && plan.hardware.accelerator == Accelerator::kCuda && environment.local_rank >= local) {
    return {error(code::kEnvironment, {},
                  fmt::format("local rank {} on {}, the plan has {} per node", environment.local_rank, environment.host, local))};
  }
  return {};
}

}  // namespace distsetup
