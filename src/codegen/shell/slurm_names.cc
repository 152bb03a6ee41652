#include "codegen/shell/slurm_names.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace distsetup::foreign {
namespace {

// How many letters tell the name from all others of SLURM 22.05.8 to 26.05.3; 0: the command has no such option, or another one that
// begins with the whole of it. A test counts them in templates/_lint/names/slurm.yaml; sbatch 22.05.8 took them so on 2026-11-28.
struct SlurmName {
  std::string_view name;
  size_t in_sbatch, in_srun;
};
constexpr std::array<SlurmName, 35> kNames = {{{"account", 4, 4},
                                               {"array", 2, 0},
                                               {"begin", 2, 2},
                                               {"chdir", 2, 2},
                                               {"constraint", 5, 5},
                                               {"cpus-per-gpu", 10, 10},
                                               {"cpus-per-task", 10, 10},
                                               {"dependency", 3, 3},
                                               {"distribution", 2, 4},
                                               {"error", 2, 2},
                                               {"exclude", 6, 6},
                                               {"exclusive", 6, 6},
                                               {"export", 0, 3},
                                               {"gpus-per-node", 10, 10},
                                               {"gpus-per-task", 10, 10},
                                               {"hint", 2, 2},
                                               {"input", 2, 3},
                                               {"job-name", 1, 4},
                                               {"kill-on-bad-exit", 0, 1},
                                               {"licenses", 1, 2},
                                               {"mail-type", 6, 6},
                                               {"mail-user", 6, 6},
                                               {"mem-per-cpu", 9, 9},
                                               {"mem-per-gpu", 9, 9},
                                               {"nodelist", 5, 5},
                                               {"ntasks-per-node", 12, 12},
                                               {"open-mode", 2, 2},
                                               {"output", 2, 2},
                                               {"oversubscribe", 5, 5},
                                               {"partition", 4, 4},
                                               {"qos", 2, 2},
                                               {"requeue", 3, 0},
                                               {"reservation", 4, 4},
                                               {"signal", 2, 2},
                                               {"tasks-per-node", 2, 5}}};

}  // namespace

std::string whole_slurm_name(const std::string& name, SlurmCommand command) {
  const auto begins = [&name, command](const SlurmName& one) {
    const size_t shortest = command == SlurmCommand::kSbatch ? one.in_sbatch : one.in_srun;
    return shortest > 0 && name.size() >= shortest && name.size() < one.name.size() && one.name.starts_with(name);
  };
  const auto* found = std::find_if(kNames.begin(), kNames.end(), begins);
  return found == kNames.end() ? name : std::string(found->name);
}

}  // namespace distsetup::foreign
