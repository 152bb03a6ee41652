// The command line of distsetup-train. Its own flags are few; all others are those of a run and go to `distsetup plan` as they stand.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/train.h"

namespace distsetup {

struct TrainCommand {
  enum class What { kTrain, kHelp, kVersion, kProbe, kGenerate };
  What what = What::kTrain;
  TrainOptions options;
  int64_t probe_s = 3;
  std::string request_path;  // of kGenerate
  std::string mistake;       // not empty: the line is wrong, and why
};

// `words`: without the program's name. '-' and '_' are the same in a flag; --help and --version end the line where they stand.
TrainCommand read_train_flags(const std::vector<std::string>& words);
const char* train_usage();

}  // namespace distsetup
