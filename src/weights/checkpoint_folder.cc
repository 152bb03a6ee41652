// See checkpoint_folder.h.
#include "weights/checkpoint_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <functional>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_text.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

bool is_committed(const std::string& folder) {
  std::error_code failure;
  return fs::exists(fs::path(folder) / "COMMIT", failure);
}

constexpr std::string_view kNamePrefix = "checkpoint_";

bool is_our_file(const std::string& name) {
  return name == "index.json" || name == "metadata.json" || name == "COMMIT" || is_rank_file_name(name);
}

// Of exactly checkpoint_<step>.
std::optional<int64_t> step_of_name(const std::string& name) {
  if (!name.starts_with(kNamePrefix)) return std::nullopt;
  int64_t step = -1;
  std::from_chars(name.data() + kNamePrefix.size(), name.data() + name.size(), step);
  if (step < 0 || name != checkpoint_name(step)) return std::nullopt;
  return step;
}

// Of a checkpoint that was committed at that step; nullopt: it was not.
std::optional<CheckpointMetadata> committed_metadata(const std::string& path, int64_t step) {
  const std::string commit_path = (fs::path(path) / "COMMIT").string(), metadata_path = (fs::path(path) / "metadata.json").string();
  const Result<std::string> commit_text = read_file(commit_path), metadata_text = read_file(metadata_path);
  if (!commit_text.ok() || !metadata_text.ok()) return std::nullopt;
  const Result<CheckpointCommit> commit = commit_from_json(*commit_text, commit_path);
  const Result<CheckpointMetadata> metadata = metadata_from_json(*metadata_text, metadata_path);
  if (!commit.ok() || !metadata.ok() || commit->step != step || metadata->step != step) return std::nullopt;
  return *metadata;
}

}  // namespace

std::string checkpoint_name(int64_t step) { return fmt::format("{}{}", kNamePrefix, step); }
std::string checkpoint_path(const std::string& directory, int64_t step) {
  return (fs::path(directory) / checkpoint_name(step)).string();
}

std::vector<int64_t> list_checkpoints(const std::string& directory) {
  std::vector<int64_t> steps;
  std::error_code failure;
  for (fs::directory_iterator it(directory, failure), end; !failure && it != end; it.increment(failure)) {
    const std::optional<int64_t> step = step_of_name(it->path().filename().string());
    std::error_code ignored;
    if (step && fs::is_directory(it->symlink_status(ignored))) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

std::string checkpoints_folder(const std::string& path) {
  std::error_code failure;
  if (!list_checkpoints(path).empty()) return path;
  const Result<std::string> text = read_file((fs::path(path) / "plan.json").string());
  if (text.ok()) {
    const Json plan = json_from_text(*text);
    const Json::json_pointer directory("/checkpoint/directory");
    if (plan.is_object() && plan.contains(directory) && plan[directory].is_string())
      return (fs::path(path) / plan[directory].get<std::string>()).string();
  }
  const fs::path usual = fs::path(path) / CheckpointPlan{}.directory;
  return fs::is_directory(usual, failure) ? usual.string() : path;
}

Result<std::vector<std::string>> find_checkpoints(const std::string& path) {
  std::error_code failure;
  const fs::path clean = fs::path(path).lexically_normal();
  const std::string name = (clean.has_filename() ? clean : clean.parent_path()).filename().string();
  if (fs::exists(fs::path(path) / "COMMIT", failure) || (step_of_name(name) && fs::is_directory(path, failure)))
    return std::vector<std::string>{path};
  const std::string folder = checkpoints_folder(path);
  std::vector<std::string> found;
  for (const int64_t step : list_checkpoints(folder)) found.push_back(checkpoint_path(folder, step));
  if (!found.empty()) return found;
  return error(code::kCheckpoint, {path}, fmt::format("no checkpoints in '{}'", path),
               "give the folder of a run, of its checkpoints, or one checkpoint_<step>");
}

Result<std::string> committed_checkpoint(const std::string& path) {
  if (is_committed(path)) return path;
  const std::string folder = checkpoints_folder(path);
  for (const int64_t step : list_checkpoints(folder))
    if (is_committed(checkpoint_path(folder, step))) return checkpoint_path(folder, step);
  return error(code::kCheckpoint, {path}, fmt::format("no committed checkpoint in '{}'", path),
               "give a folder checkpoint_<step> that has a file COMMIT, or the folder of a run");
}

Result<std::string> best_checkpoint(const std::string& path) {
  const std::string folder = checkpoints_folder(path);
  const RatedStep* best = nullptr;
  const std::vector<RatedStep> rated = rated_checkpoints(folder, INT64_MAX, CheckpointMetric::kHeldOutLoss);
  for (const RatedStep& one : rated)
    if (one.metric && (best == nullptr || *one.metric < *best->metric)) best = &one;
  return best == nullptr || is_committed(path) ? committed_checkpoint(path) : checkpoint_path(folder, best->step);
}

int remove_checkpoint(const std::string& path) {
  std::error_code failure;
  if (!fs::is_directory(fs::symlink_status(path, failure))) return ENOTDIR;
  if (::unlink((fs::path(path) / "COMMIT").c_str()) != 0 && errno != ENOENT) return errno;
  std::vector<std::string> names;
  for (fs::directory_iterator it(path, failure), end; !failure && it != end; it.increment(failure))
    names.push_back(it->path().filename().string());
  if (failure) return failure.value();
  for (const std::string& name : names) {
    const bool ours = is_our_file(name) || name.starts_with(".distsetup-");
    if (ours && ::unlink((fs::path(path) / name).c_str()) != 0 && errno != ENOENT) return errno;
  }
  return ::rmdir(path.c_str()) == 0 ? 0 : errno;
}

std::optional<double> metric_of(const CheckpointMetadata& metadata, CheckpointMetric metric) {
  if (metric == CheckpointMetric::kLoss) return metadata.loss;
  return metadata.held_out_loss;
}

Retention retention_of(const CheckpointPlan& plan) { return {plan.keep, plan.keep_every, plan.keep_best, plan.metric}; }

std::vector<int64_t> steps_to_retire(std::span<const RatedStep> committed, const Retention& rule) {
  if (rule.keep <= 0) return {};
  std::vector<RatedStep> best;
  for (const RatedStep& one : committed)
    if (one.metric) best.push_back(one);
  std::stable_sort(best.begin(), best.end(), [](const RatedStep& a, const RatedStep& b) { return *a.metric < *b.metric; });
  best.resize(std::min(best.size(), static_cast<size_t>(std::max<int64_t>(0, rule.keep_best))));
  std::vector<int64_t> retired;
  for (size_t i = static_cast<size_t>(rule.keep); i < committed.size(); ++i) {
    const int64_t step = committed[i].step;
    const bool is_mark = rule.keep_every > 0 && step % rule.keep_every == 0;
    const bool is_best = std::any_of(best.begin(), best.end(), [&](const RatedStep& one) { return one.step == step; });
    if (!is_mark && !is_best) retired.push_back(step);
  }
  return retired;
}

std::vector<RatedStep> rated_checkpoints(const std::string& directory, int64_t newest, CheckpointMetric metric,
                                         const std::set<int64_t>& refused) {
  std::vector<RatedStep> rated;
  for (const int64_t step : list_checkpoints(directory)) {
    if (step > newest || refused.contains(step)) continue;
    const std::optional<CheckpointMetadata> metadata = committed_metadata(checkpoint_path(directory, step), step);
    if (metadata) rated.push_back({step, metric_of(*metadata, metric)});
  }
  return rated;
}

std::vector<std::string> retire_checkpoints(const std::string& directory, int64_t newest, const Retention& rule,
                                            const std::set<int64_t>& refused) {
  if (rule.keep <= 0) return {};
  std::vector<std::string> complaints;
  for (const int64_t step : steps_to_retire(rated_checkpoints(directory, newest, rule.metric, refused), rule)) {
    const std::string path = checkpoint_path(directory, step);
    if (const int number = remove_checkpoint(path); number != 0)
      complaints.push_back(fmt::format("'{}' is no longer needed but cannot be removed, {}", path, errno_text(number)));
  }
  return complaints;
}

}  // namespace distsetup
