#include "cli/launch/predicted_profile.h"

#include <algorithm>
#include <filesystem>

#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"
#include "planner/native/predicted_track.h"

namespace distsetup {

bool asks_for_profile(const std::vector<std::string>& words) {
  const auto has = [&](const auto& is) { return std::any_of(words.begin(), words.end(), is); };
  return has([](const std::string& word) { return word == "--profile" || word.starts_with("--profile="); }) &&
         !has([](const std::string& word) { return word == "--dry-run"; });
}

Diagnostics write_predicted_profile(const Plan& plan, const std::string& plan_text, const std::string& folder) {
  const std::vector<StepTrack> tracks = predicted_tracks(plan);
  const std::string digest = sha256(plan_text);
  for (int stage = 0; stage < plan.mesh.pp; ++stage) {
    const Json trace = predicted_trace(tracks[static_cast<size_t>(stage)], stage, digest);
    const std::string path = (std::filesystem::path(folder) / predicted_profile_name(stage)).string();
    if (const Result<Written> written = write_file_atomic(path, trace.dump(), Overwrite::kForce); !written.ok())
      return written.diagnostics;
  }
  return {};
}

}  // namespace distsetup
