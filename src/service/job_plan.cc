#include "service/job_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/file.h"
#include "base/json.h"
#include "base/subprocess.h"
#include "data/prepared_set.h"
#include "service/job_folder.h"
#include "service/launcher.h"
#include "service/sibling_program.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;
constexpr int kFailedCode = 6;

// "train.learning_rate" -> "--learning-rate"
std::string flag_of(const std::string& path) {
  std::string name = path.substr(path.rfind('.') + 1);  // the whole of it where there is no dot
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

// Checkpoints of the runs: a model each, which nobody asks for any more.
void drop_checkpoints() {
  std::error_code failure;
  for (fs::directory_iterator run(kTuningFolder, failure), end; !failure && run != end; run.increment(failure)) {
    if (!run->is_directory(failure)) continue;
    for (fs::directory_iterator it(run->path(), failure); !failure && it != end; it.increment(failure)) {
      std::error_code kept;
      if (it->is_directory(kept)) fs::remove_all(it->path(), kept);
    }
  }
}

}  // namespace

std::vector<std::string> words_with_settings(const std::vector<std::string>& words, const Json& settings) {
  std::vector<std::string> out, flags;
  for (const auto& [path, _] : settings.items()) flags.push_back(flag_of(path));
  for (size_t i = 0; i < words.size(); ++i) {
    if (std::find(flags.begin(), flags.end(), words[i]) != flags.end())
      ++i;  // its value
    else
      out.push_back(words[i]);
  }
  for (const auto& [path, value] : settings.items()) {
    out.emplace_back("--set");
    out.push_back(path + "=" + (value.is_string() ? value.get<std::string>() : value.dump()));
  }
  return out;
}

namespace {

// Settings of the best of the short runs; none: there is nothing to choose from, and the reason is said.
std::optional<Json> tuned_settings() {
  const Json all = read_json(kTunedRuns);
  const Json runs = all.is_object() ? all.value("runs", Json::array()) : Json::array();
  const auto num_trained = std::count_if(runs.begin(), runs.end(), [](const Json& one) { return !one.contains("problem"); });
  if (num_trained == 0) {
    fmt::print(stderr, "error: none of {} runs with other settings was trained to its end{}\n", runs.size(),
               runs.empty() ? "" : ": " + runs[0].value("problem", ""));
    return std::nullopt;
  }
  Json settings = runs[0].value("settings", Json::object());
  const Json tuned = {{"settings", settings}, {"runs", num_trained}};
  if (!write_file_atomic(kTunedFile, tuned.dump(1) + "\n", Overwrite::kForce).ok()) return std::nullopt;
  std::string best;
  for (const auto& [path, value] : settings.items())
    best += fmt::format(" {}={}", path, value.is_string() ? value.get<std::string>() : value.dump());
  fmt::print("of {} runs the best has{}\n", num_trained, best);
  std::fflush(stdout);
  return settings;
}

}  // namespace

int plan_job(std::vector<std::string> words) {
  std::error_code failure;
  const bool was_tuned = fs::exists(kTunedRuns, failure);
  if (was_tuned) {
    const std::optional<Json> settings = tuned_settings();
    if (!settings) return kFailedCode;
    words = words_with_settings(words, *settings);
  }
  if (const Result<SetDescription> set = read_set_description(kPreparedSet); set.ok() && set->held_out.trained_tokens > 0)
    words.insert(words.end(), {"--keep-best", "1"});
  std::vector<std::string> command = {sibling_program()};
  command.insert(command.end(), words.begin(), words.end());
  const Said said = run_program(command, 600, "", Spawn::Errors::kWithOutput);
  fmt::print("{}", said.text);
  if (was_tuned && said.started && said.code == 0) drop_checkpoints();
  return said.started ? said.code : kFailedCode;
}

}  // namespace distsetup
