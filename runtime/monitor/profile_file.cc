// See profile_file.h. The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU ("complete events").
#include "runtime/monitor/profile_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "runtime/monitor/failure.h"

namespace distsetup {

void ProfileFile::add(const std::string& directory, int rank, int64_t step, std::vector<ProfiledOp> ops) {
  if (ops.empty()) return;
  steps_.push_back({step, std::move(ops)});
  constexpr double kMicroseconds = 1e6;
  Json events = Json::array();
  double begin_s = 0;  // each step behind the one before
  for (const ProfiledStep& profiled : steps_) {
    double end_s = 0;
    for (const ProfiledOp& op : profiled.ops) {
      end_s = std::max(end_s, op.begin_s + op.seconds);
      events.push_back({{"name", op.name},
                        {"cat", "executed"},
                        {"ph", "X"},
                        {"ts", (begin_s + op.begin_s) * kMicroseconds},
                        {"dur", op.seconds * kMicroseconds},
                        {"pid", rank},
                        {"tid", std::string(name(op.stream))},
                        {"args", {{"step", profiled.step}}}});
    }
    begin_s += end_s;
  }
  const Json trace = {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
  const std::string file = rank == 0 ? "profile.json" : fmt::format("profile.rank{}.json", rank);
  const std::string path = (std::filesystem::path(directory) / file).string();
  const Diagnostics failed = write_file_atomic(path, trace.dump(), Overwrite::kForce).diagnostics;
  throw_on_error(failed, kExitFailed);
}

}  // namespace distsetup
