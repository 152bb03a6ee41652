// `--profile FIRST:LAST`: when each op of these steps ran, as Chrome's trace format has it (chrome://tracing, Perfetto), a file per
// rank.
#pragma once
#include <string>
#include <vector>

#include "runtime/engine/profile.h"

namespace distsetup {

class ProfileFile {
 public:
  // The file, `directory`/profile.json or for rank r > 0 profile.rank<r>.json, now has this step behind those before; no ops: nothing
  // happens. Throws Failure.
  void add(const std::string& directory, int rank, int64_t step, std::vector<ProfiledOp> ops);

 private:
  struct ProfiledStep {
    int64_t step = 0;
    std::vector<ProfiledOp> ops;
  };
  std::vector<ProfiledStep> steps_;
};

}  // namespace distsetup
