// distsetup-train: one rank of a run. Never spawns: `distsetup launch`, torchrun, srun or mpirun start it once per rank.
#include <fmt/format.h>

#include <cstdio>

#include "runtime/generate/generate.h"
#include "runtime/monitor/probe_kernels.h"
#include "runtime/train.h"
#include "runtime/train_flags.h"

int main(int argc, char** argv) {
  const distsetup::TrainCommand command = distsetup::read_train_flags({argv + (argc > 0 ? 1 : 0), argv + argc});
  if (!command.mistake.empty()) {
    fmt::print(stderr, "distsetup-train: {}\n{}", command.mistake, distsetup::train_usage());
    return 2;
  }
  switch (command.what) {
    case distsetup::TrainCommand::What::kHelp: std::fputs(distsetup::train_usage(), stdout); return 0;
    case distsetup::TrainCommand::What::kVersion: fmt::print("distsetup-train {}\n", DISTSETUP_VERSION); return 0;
    case distsetup::TrainCommand::What::kProbe: return distsetup::run_probe_kernels(static_cast<double>(command.probe_s));
    case distsetup::TrainCommand::What::kGenerate:
      return distsetup::run_generate({command.options.plan_path, command.request_path, command.options.num_threads});
    case distsetup::TrainCommand::What::kTrain: break;
  }
  return distsetup::run_training(command.options);
}
