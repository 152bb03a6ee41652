// The files a run trains on: which, how long, with which digest, and which of them are held out. Looking at files is kept here, away
// from resolve(), so that planning itself depends on its arguments alone.
#pragma once
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "plan/plan.h"

namespace distsetup {

// `paths` are files or directories (searched through, hidden entries left out), relative to `root`. Files are sorted by path and
// named once. A binary file is an error when named itself, and passed over with a note when found in a directory.
// One file in `held_out_every` is held out (0: none), chosen by digest: adding a file moves few others, and names do not decide.
// Errors: kData for a missing, unreadable, empty or binary path; no text at all.
// A prepared data set (data/prepared_set.h) is a folder of its own and stands alone in `paths`; what it holds out was decided when it
// was prepared.
Result<DataPlan> scan_data(const std::vector<std::string>& paths, const std::string& root, int64_t held_out_every);

int64_t train_bytes(const DataPlan& data);
int64_t held_out_bytes(const DataPlan& data);
int64_t train_tokens(const DataPlan& data);

}  // namespace distsetup
