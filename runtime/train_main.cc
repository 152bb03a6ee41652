// distsetup-train: one rank of a run. Never spawns: `distsetup launch`, torchrun, srun or mpirun start it once per rank.
#include <fmt/format.h>

#include <cstdio>

#include "base/end_process.h"
#include "runtime/generate/generate.h"
#include "runtime/monitor/probe_kernels.h"
#include "runtime/train.h"
#include "runtime/train_flags.h"

namespace {

int run(int argc, char** argv) {
  using namespace distsetup;
  const TrainCommand command = read_train_flags({argv + (argc > 0 ? 1 : 0), argv + argc});
  if (!command.mistake.empty()) {
    fmt::print(stderr, "distsetup-train: {}\n{}", command.mistake, train_usage());
    return 2;
  }
  switch (command.what) {
    case TrainCommand::What::kHelp: std::fputs(train_usage(), stdout); return 0;
    case TrainCommand::What::kVersion: fmt::print("distsetup-train {}\n", DISTSETUP_VERSION); return 0;
    case TrainCommand::What::kProbe: return run_probe_kernels(static_cast<double>(command.probe_s));
    case TrainCommand::What::kGenerate:
      return run_generate({command.options.plan_path, command.request_path, command.options.num_threads});
    case TrainCommand::What::kTrain: break;
  }
  return run_training(command.options);
}

}  // namespace

int main(int argc, char** argv) { return distsetup::end_process(run(argc, argv)); }
