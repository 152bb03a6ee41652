// See checkpoint.h. Loading is in load.cc.
#include "runtime/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <functional>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNamePrefix = "checkpoint_";

Diagnostic unwritable(const std::string& path, int number) {
  return error(code::kUnwritableFile, {path}, fmt::format("cannot write '{}', {}", path, errno_text(number)));
}

std::string partial_path(const std::string& directory, int64_t step) { return checkpoint_path(directory, step) + ".partial"; }

bool is_our_file(const std::string& name) {
  return name == "index.json" || name == "metadata.json" || name == "COMMIT" || is_rank_file_name(name);
}

int sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno;
  const int number = ::fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : errno;
  ::close(fd);
  return number;
}

// Removes our files, COMMIT first, then the directory. 0, or errno of what could not be removed (ENOTEMPTY: files that are not ours).
int remove_ours(const std::string& path) {
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

Diagnostics write_json(const std::string& path, const Json& json, FileDigest* digest) {
  const std::string text = dump_json(json);
  if (digest != nullptr) *digest = {static_cast<int64_t>(text.size()), sha256(text)};
  return write_file_atomic(path, text, Overwrite::kForce).diagnostics;
}

// Of the name of a tensor that holds a part of a parameter.
std::string suffix_of(const Parameter& parameter, const std::vector<Box>& boxes, size_t k) {
  return boxes[k].numel() == full_numel(parameter) ? "" : fmt::format(".box{}", k);
}

// The parameters that a pipeline's stage writes; without stages all of them.
void add_stage(const Layout& layout, CheckpointIndex& index) {
  for (const UnitLayout& unit : layout.units) {
    if (unit.is_copy || unit.is_frozen) continue;
    for (const Parameter& parameter : unit.parameters) {
      StoredParameter stored;
      stored.shape = parameter.full_shape;
      for (const int rank : writer_ranks(layout)) {
        const Coordinates at = coordinates(layout.mesh, rank);
        if (at.pp != layout.stage) continue;
        const std::vector<Box> boxes = boxes_of(layout, unit, parameter, at);
        for (size_t k = 0; k < boxes.size(); ++k)
          stored.boxes.push_back({rank_file_name(rank), boxes[k].start, boxes[k].size, suffix_of(parameter, boxes, k)});
      }
      const bool fresh = index.parameters.emplace(parameter.name, std::move(stored)).second;
      CHECK(fresh, "{} twice", parameter.name);
    }
  }
}

CheckpointIndex make_index(const ShardState& state, const std::string& plan_digest) {
  const Layout& layout = *state.layout;
  CheckpointIndex index;
  index.states = {""};
  for (const StateValues& s : state.states) index.states.push_back("." + std::string(s.name));
  index.plan_digest = plan_digest;
  index.mesh = layout.mesh;
  for (int stage = 0; stage < layout.mesh.pp; ++stage)
    add_stage(make_layout(layout.geometry, layout.mesh, layout.sharding, stage, layout.chunks_per_stage, layout.tuning), index);
  return index;
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
    const std::string name = it->path().filename().string();
    int64_t step = -1;
    const char* const first = name.data() + std::min(name.size(), kNamePrefix.size());
    const auto parsed = std::from_chars(first, name.data() + name.size(), step);
    const bool ours = name.starts_with(kNamePrefix) && parsed.ec == std::errc() && step >= 0 && name == checkpoint_name(step);
    std::error_code ignored;
    if (ours && fs::is_directory(it->symlink_status(ignored))) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

std::vector<int> writer_ranks(const Layout& layout) { return group_members(layout.mesh, layout.state_group, 0); }

Diagnostics begin_checkpoint(const std::string& directory, int64_t step) {
  const std::string partial = partial_path(directory, step);
  std::error_code failure;
  fs::create_directories(directory, failure);
  if (failure) return {unwritable(directory, failure.value())};
  if (fs::exists(fs::symlink_status(partial, failure))) {
    if (const int number = remove_ours(partial); number != 0) {
      return {error(code::kUnwritableFile, {partial}, fmt::format("left-over '{}' cannot be removed, {}", partial, errno_text(number)),
                    "move what is in it elsewhere and remove it")};
    }
  }
  if (::mkdir(partial.c_str(), 0777) != 0) return {unwritable(partial, errno)};
  return {};
}

Result<FileDigest> write_rank_file(const std::string& directory, int64_t step, int rank, const ShardState& state) {
  std::vector<TensorData> tensors;
  std::vector<std::pair<std::string, std::span<float>>> states = {{"", state.master}};
  for (const StateValues& s : state.states) states.emplace_back("." + std::string(s.name), s.values);
  for (const UnitLayout& unit : state.layout->units) {
    if (unit.is_copy || unit.is_frozen) continue;  // its owner writes it
    for (const Parameter& parameter : unit.parameters) {
      const std::vector<Box> boxes = boxes_of(*state.layout, unit, parameter, state.at);
      for (size_t k = 0; k < boxes.size(); ++k) {
        const std::string suffix = suffix_of(parameter, boxes, k);
        for (const auto& [name, values] : states) {
          CHECK(boxes[k].shard_offset + boxes[k].numel() <= static_cast<int64_t>(values.size()), "{}", parameter.name);
          tensors.push_back({parameter.name + name + suffix, boxes[k].size, values.data() + boxes[k].shard_offset});
        }
      }
    }
  }
  const std::string path = (fs::path(partial_path(directory, step)) / rank_file_name(rank)).string();
  return write_safetensors(path, tensors, {{"format", "pt"}, {"step", std::to_string(step)}});
}

Diagnostics commit_checkpoint(const std::string& directory, const ShardState& state, const std::string& plan_digest,
                              const CheckpointMetadata& metadata, const std::map<std::string, FileDigest>& files) {
  const std::string partial = partial_path(directory, metadata.step), final_path = checkpoint_path(directory, metadata.step);
  CheckpointCommit commit = {metadata.step, files};
  Diagnostics found =
      write_json((fs::path(partial) / "index.json").string(), to_json(make_index(state, plan_digest)), &commit.files["index.json"]);
  if (has_error(found)) return found;
  found = write_json((fs::path(partial) / "metadata.json").string(), to_json(metadata), &commit.files["metadata.json"]);
  if (has_error(found)) return found;
  if (const int number = sync_directory(partial); number != 0) return {unwritable(partial, number)};

  std::error_code failure;
  if (fs::exists(fs::symlink_status(final_path, failure))) {  // never committed, or refused: a good one would have been resumed from
    if (const int number = remove_ours(final_path); number != 0) {
      return {error(code::kUnwritableFile, {final_path},
                    fmt::format("'{}' is in the way and cannot be removed, {}", final_path, errno_text(number)),
                    "move what is in it elsewhere and remove it")};
    }
  }
  if (::rename(partial.c_str(), final_path.c_str()) != 0) return {unwritable(final_path, errno)};
  if (const int number = sync_directory(directory); number != 0) return {unwritable(directory, number)};
  return write_json((fs::path(final_path) / "COMMIT").string(), to_json(commit), nullptr);
}

void discard_partial(const std::string& directory, int64_t step) { remove_ours(partial_path(directory, step)); }

std::vector<std::string> retire_checkpoints(const std::string& directory, int64_t newest, int64_t keep,
                                            const std::set<int64_t>& refused) {
  std::vector<std::string> complaints;
  int64_t num_kept = 0;
  for (int64_t step : list_checkpoints(directory)) {
    if (keep <= 0 || step > newest || refused.contains(step)) continue;
    const std::string path = checkpoint_path(directory, step);
    const std::string commit_path = (fs::path(path) / "COMMIT").string();
    const Result<std::string> text = read_file(commit_path);
    if (!text.ok()) continue;
    const Result<CheckpointCommit> commit = commit_from_json(*text, commit_path);
    if (!commit.ok() || commit->step != step) continue;
    if (++num_kept <= keep) continue;
    if (const int number = remove_ours(path); number != 0)
      complaints.push_back(fmt::format("'{}' is no longer needed but cannot be removed, {}", path, errno_text(number)));
  }
  return complaints;
}

}  // namespace distsetup
