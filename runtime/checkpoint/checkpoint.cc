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
#include "plan/update_layout.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

Diagnostic unwritable(const std::string& path, int number) {
  return error(code::kUnwritableFile, {path}, fmt::format("cannot write '{}', {}", path, errno_text(number)));
}

std::string partial_path(const std::string& directory, int64_t step) { return checkpoint_path(directory, step) + ".partial"; }

int sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno;
  const int number = ::fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : errno;
  ::close(fd);
  return number;
}

Diagnostics write_json(const std::string& path, const Json& json, FileDigest* digest) {
  const std::string text = dump_json(json);
  if (digest != nullptr) *digest = {static_cast<int64_t>(text.size()), sha256(text)};
  return write_file_atomic(path, text, Overwrite::kForce).diagnostics;
}

// What of states is not a value for each element, by tensor.
void add_state_tensors(const Layout& layout, const std::vector<StateValues>& states, CheckpointIndex& index) {
  for (const int rank : writer_ranks(layout)) {
    const Coordinates at = coordinates(layout.mesh, rank);
    if (at.pp != layout.stage) continue;
    for (const StateValues& s : states) {
      if (s.scope == StateScope::kElements) continue;
      std::map<std::string, size_t> boxes;
      for (const StatePiece& piece : state_pieces(layout, s.name, s.scope, at)) {
        if (piece.is_copy) continue;
        StoredParameter& stored = index.state_tensors[piece.name()];
        stored.shape = piece.shape;
        stored.boxes.push_back({rank_file_name(rank, boxes[piece.name()]++), piece.box.start, piece.box.size, ""});
      }
    }
  }
}

// The parameters that a pipeline's stage writes; without stages all of them.
void add_stage(const Layout& layout, const std::vector<StateValues>& states, CheckpointIndex& index) {
  add_state_tensors(layout, states, index);
  for (const UnitLayout& unit : layout.units) {
    if (unit.is_copy || unit.is_frozen) continue;
    for (const Parameter& parameter : unit.parameters) {
      StoredParameter stored;
      stored.shape = parameter.full_shape;
      for (const int rank : writer_ranks(layout)) {
        const Coordinates at = coordinates(layout.mesh, rank);
        if (at.pp != layout.stage || is_copy_of_another(layout, unit, at)) continue;
        const std::vector<Box> boxes = boxes_of(layout, unit, parameter, at);
        for (size_t k = 0; k < boxes.size(); ++k) stored.boxes.push_back({rank_file_name(rank, k), boxes[k].start, boxes[k].size, ""});
      }
      const bool fresh = index.parameters.emplace(parameter.name, std::move(stored)).second;
      CHECK(fresh, "{} twice", parameter.name);
    }
  }
}

CheckpointIndex make_index(const ShardState& state, const std::string& plan_digest) {
  const Layout& layout = *state.layout;
  CheckpointIndex index;
  index.states = stored_names(state.states);
  index.plan_digest = plan_digest;
  index.mesh = layout.mesh;
  for (int stage = 0; stage < layout.mesh.pp; ++stage)
    add_stage(make_layout(layout.geometry, layout.mesh, layout.sharding, stage, layout.chunks_per_stage, layout.tuning), state.states,
              index);
  return index;
}

}  // namespace

std::vector<int> writer_ranks(const Layout& layout) { return group_members(layout.mesh, layout.state_group, 0); }

Diagnostics begin_checkpoint(const std::string& directory, int64_t step) {
  const std::string partial = partial_path(directory, step);
  std::error_code failure;
  fs::create_directories(directory, failure);
  if (failure) return {unwritable(directory, failure.value())};
  if (fs::exists(fs::symlink_status(partial, failure))) {
    if (const int number = remove_checkpoint(partial); number != 0) {
      return {error(code::kUnwritableFile, {partial}, fmt::format("left-over '{}' cannot be removed, {}", partial, errno_text(number)),
                    "move what is in it elsewhere and remove it")};
    }
  }
  if (::mkdir(partial.c_str(), 0777) != 0) return {unwritable(partial, errno)};
  return {};
}

namespace {

struct RankTensors {
  std::vector<TensorData> tensors;
  Json places = Json::object();  // where each begins in its parameter, as torch/distributed/checkpoint/_hf_utils.py names it
};

void add_pieces(const Layout& layout, const StateValues& state, const Coordinates& at, std::vector<RankTensors>& files) {
  std::map<std::string, size_t> boxes;
  for (const StatePiece& piece : state_pieces(layout, state.name, state.scope, at)) {
    if (piece.is_copy) continue;
    const size_t k = boxes[piece.name()]++;
    files.resize(std::max(files.size(), k + 1));
    CHECK(piece.box.shard_offset + piece.box.numel() <= static_cast<int64_t>(state.values.size()), "{}", piece.name());
    files[k].tensors.push_back({piece.name(), piece.box.size, state.values.data() + piece.box.shard_offset});
    files[k].places[piece.name()] = {{"saved_offsets", piece.box.start}};
  }
}

// File k has box k of every tensor. There is always a first one.
std::vector<RankTensors> tensors_by_file(const ShardState& state) {
  std::vector<RankTensors> files(1);
  std::vector<std::pair<std::string, std::span<float>>> states = {{"", state.master}};
  for (const StateValues& s : state.states)
    if (s.scope == StateScope::kElements) states.emplace_back("." + std::string(s.name), s.values);
  for (const UnitLayout& unit : state.layout->units) {
    if (is_copy_of_another(*state.layout, unit, state.at) || unit.is_frozen) continue;  // its owner writes it
    for (const Parameter& parameter : unit.parameters) {
      const std::vector<Box> boxes = boxes_of(*state.layout, unit, parameter, state.at);
      files.resize(std::max(files.size(), boxes.size()));
      for (size_t k = 0; k < boxes.size(); ++k) {
        for (const auto& [suffix, values] : states) {
          CHECK(boxes[k].shard_offset + boxes[k].numel() <= static_cast<int64_t>(values.size()), "{}", parameter.name);
          const std::string name = parameter.name + suffix;
          files[k].tensors.push_back({name, boxes[k].size, values.data() + boxes[k].shard_offset});
          files[k].places[name] = {{"saved_offsets", boxes[k].start}};
        }
      }
    }
  }
  for (const StateValues& s : state.states)
    if (s.scope != StateScope::kElements) add_pieces(*state.layout, s, state.at, files);
  return files;
}

}  // namespace

Result<std::map<std::string, FileDigest>> write_rank_files(const std::string& directory, int64_t step, int rank,
                                                           const ShardState& state) {
  std::map<std::string, FileDigest> digests;
  const std::vector<RankTensors> files = tensors_by_file(state);
  for (size_t k = 0; k < files.size(); ++k) {
    const std::string name = rank_file_name(rank, k);
    const Result<FileDigest> digest = write_safetensors(
        (fs::path(partial_path(directory, step)) / name).string(), files[k].tensors,
        {{"format", "pt"}, {"step", std::to_string(step)}, {"DCP_VERSION", "1.0"}, {"DCP_SHARDING_INFO", files[k].places.dump()}});
    if (!digest.ok()) return digest.diagnostics;
    digests[name] = *digest;
  }
  return digests;
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
    if (const int number = remove_checkpoint(final_path); number != 0) {
      return {error(code::kUnwritableFile, {final_path},
                    fmt::format("'{}' is in the way and cannot be removed, {}", final_path, errno_text(number)),
                    "move what is in it elsewhere and remove it")};
    }
  }
  if (::rename(partial.c_str(), final_path.c_str()) != 0) return {unwritable(final_path, errno)};
  if (const int number = sync_directory(directory); number != 0) return {unwritable(directory, number)};
  return write_json((fs::path(final_path) / "COMMIT").string(), to_json(commit), nullptr);
}

void discard_partial(const std::string& directory, int64_t step) { remove_checkpoint(partial_path(directory, step)); }

}  // namespace distsetup
