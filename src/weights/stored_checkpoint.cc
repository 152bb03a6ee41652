// See stored_checkpoint.h: the intersection of stored boxes with wanted ones.
#include "weights/stored_checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <numeric>

#include "base/diagnostic_codes.h"
#include "base/digest.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

Diagnostic bad_checkpoint(const std::string& path, std::string what) { return error(code::kCheckpoint, {path}, std::move(what)); }

Result<CheckpointCommit> read_commit(const std::string& path) {
  const std::string file = (fs::path(path) / "COMMIT").string();
  std::error_code failure;
  if (!fs::exists(file, failure)) return bad_checkpoint(path, fmt::format("'{}' has no COMMIT: it was never finished", path));
  const Result<std::string> text = read_file(file);
  return text.ok() ? commit_from_json(*text, file) : text.diagnostics;
}

struct Overlap {
  std::vector<int64_t> start, size;
  int64_t numel = 0;
};

Overlap intersect(const Box& wanted, const StoredBox& stored) {
  Overlap overlap;
  overlap.numel = 1;
  for (size_t d = 0; d < wanted.start.size(); ++d) {
    const int64_t begin = std::max(wanted.start[d], stored.start[d]);
    const int64_t end = std::min(wanted.start[d] + wanted.size[d], stored.start[d] + stored.size[d]);
    overlap.start.push_back(begin);
    overlap.size.push_back(std::max<int64_t>(0, end - begin));
    overlap.numel *= overlap.size.back();
  }
  return overlap;
}

int64_t numel_of(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

// "": the boxes hold each element once.
std::string cover_fault(const StoredParameter& parameter) {
  std::vector<const StoredBox*> boxes;
  int64_t held = 0;
  for (const StoredBox& box : parameter.boxes) {
    boxes.push_back(&box);
    held += numel_of(box.size);
  }
  std::sort(boxes.begin(), boxes.end(), [](const StoredBox* a, const StoredBox* b) { return a->start < b->start; });
  for (size_t i = 0; i < boxes.size(); ++i) {
    const Box one = {boxes[i]->start, boxes[i]->size, 0};
    for (size_t k = i + 1; k < boxes.size() && boxes[k]->start[0] < one.start[0] + one.size[0]; ++k)
      if (intersect(one, *boxes[k]).numel > 0)
        return fmt::format("'{}' and '{}' hold the same elements", boxes[i]->file, boxes[k]->file);
  }
  const int64_t numel = numel_of(parameter.shape);
  return held == numel ? "" : fmt::format("the files hold {} of {} elements", held, numel);
}

int64_t flat(const std::vector<int64_t>& at, const std::vector<int64_t>& start, const std::vector<int64_t>& size) {
  int64_t index = 0;
  for (size_t d = 0; d < at.size(); ++d) index = index * size[d] + (at[d] - start[d]);
  return index;
}

// Copies the overlap of both boxes in the longest runs that lie in one piece in both. 0 or errno.
int copy_overlap(const Overlap& overlap, const StoredBox& stored, int fd, int64_t file_offset, const Box& wanted, float* target) {
  size_t inner = overlap.size.size() - 1;  // dimensions after `inner` are whole in both boxes
  int64_t run = overlap.size[inner];
  while (inner > 0 && overlap.size[inner] == stored.size[inner] && overlap.size[inner] == wanted.size[inner])
    run *= overlap.size[--inner];
  std::vector<int64_t> at = overlap.start;
  for (int64_t done = 0; done < overlap.numel; done += run) {
    const int64_t from = file_offset + flat(at, stored.start, stored.size) * static_cast<int64_t>(sizeof(float));
    const int number = read_at(fd, target + flat(at, wanted.start, wanted.size), run * static_cast<int64_t>(sizeof(float)), from);
    if (number != 0) return number;
    for (size_t d = inner; d-- > 0;) {
      if (++at[d] < overlap.start[d] + overlap.size[d]) break;
      at[d] = overlap.start[d];
    }
  }
  return 0;
}

}  // namespace

Result<CheckpointMetadata> verify_stored(const std::string& path, int part, int parts) {
  const Result<CheckpointCommit> commit = read_commit(path);
  if (!commit.ok()) return commit.diagnostics;
  int number = 0;
  for (const auto& [name, digest] : commit->files) {
    const std::string file = (fs::path(path) / name).string();
    struct stat info = {};
    if (::stat(file.c_str(), &info) != 0) return bad_checkpoint(path, fmt::format("'{}' is missing", file));
    if (info.st_size != digest.bytes)
      return bad_checkpoint(path, fmt::format("'{}' has {} bytes, expected {}", file, info.st_size, digest.bytes));
    if (number++ % parts != part) continue;
    const Result<std::string> found = sha256_of_file(file);
    if (!found.ok()) return found.diagnostics;
    if (*found != digest.sha256)
      return bad_checkpoint(path, fmt::format("'{}' has the digest {:.12}…, expected {:.12}…", file, *found, digest.sha256));
  }
  const std::string file = (fs::path(path) / "metadata.json").string();
  const Result<std::string> text = read_file(file);
  if (!text.ok()) return text.diagnostics;
  Result<CheckpointMetadata> metadata = metadata_from_json(*text, file);
  if (metadata.ok() && metadata->step != commit->step)
    return bad_checkpoint(path, fmt::format("'{}' says step {}, COMMIT {}", file, metadata->step, commit->step));
  return metadata;
}

Result<StoredCheckpoint> StoredCheckpoint::open(const std::string& path) {
  const Result<CheckpointCommit> commit = read_commit(path);
  if (!commit.ok()) return commit.diagnostics;
  const std::string file = (fs::path(path) / "index.json").string();
  const Result<std::string> text = read_file(file);
  if (!text.ok()) return text.diagnostics;
  Result<CheckpointIndex> index = index_from_json(*text, file);
  if (!index.ok()) return index.diagnostics;
  for (const auto* tensors : {&index->parameters, &index->state_tensors}) {
    for (const auto& [name, tensor] : *tensors) {
      for (const StoredBox& box : tensor.boxes)
        if (!commit->files.contains(box.file))
          return bad_checkpoint(path, fmt::format("'{}' names the file '{}', COMMIT does not", file, box.file));
    }
  }
  StoredCheckpoint stored;
  stored.path_ = path;
  stored.index_ = std::move(*index);
  return stored;
}

Diagnostics StoredCheckpoint::check_model(const Geometry& geometry, const Tuning& tuning) const {
  const auto other_model = [this, &tuning](const std::string& why) {
    return Diagnostics{bad_checkpoint(path_, fmt::format("'{}' is of another model{}: {}", path_,
                                                         tuning.trains_all() ? "" : ", or trained other parts of it", why))};
  };
  size_t num_parameters = 0;
  for (const UnitLayout& unit : make_layout(geometry, {}, Sharding::kZero3, 0, 1, tuning).units) {
    if (unit.is_frozen) continue;
    for (const Parameter& parameter : unit.parameters) {
      ++num_parameters;
      const auto stored = index_.parameters.find(parameter.name);
      if (stored == index_.parameters.end()) return other_model(fmt::format("it has no parameter '{}'", parameter.name));
      if (stored->second.shape != parameter.full_shape)
        return other_model(
            fmt::format("'{}' has the shape {}, expected {}", parameter.name, stored->second.shape, parameter.full_shape));
    }
  }
  if (num_parameters == index_.parameters.size()) return {};
  return other_model(fmt::format("it has {} parameters, expected {}", index_.parameters.size(), num_parameters));
}

Result<int64_t> StoredCheckpoint::place_of(const std::string& tensor, const StoredBox& box) {
  const Result<const RankFile*> source = rank_file(box.file);
  if (!source.ok()) return source.diagnostics;
  const std::string name = tensor + box.suffix;
  const auto entry = (*source)->header.tensors.find(name);
  if (entry == (*source)->header.tensors.end())
    return bad_checkpoint(path_, fmt::format("'{}/{}' has no tensor '{}'", path_, box.file, name));
  if (entry->second.shape != box.size || entry->second.dtype != "F32")
    return bad_checkpoint(path_, fmt::format("tensor '{}' of '{}/{}' is {} {}, expected F32 {}", name, path_, box.file,
                                             entry->second.dtype, entry->second.shape, box.size));
  return entry->second.begin;
}

Diagnostics StoredCheckpoint::check_boxes() {
  std::vector<std::string> states = index_.states;
  if (!index_.state_tensors.empty()) states = {""};
  for (const auto& [name, parameter] : index_.parameters)
    if (Diagnostics said = check_boxes(name, parameter, states); has_error(said)) return said;
  for (const auto& [name, tensor] : index_.state_tensors)
    if (Diagnostics said = check_boxes(name, tensor, {""}); has_error(said)) return said;
  return {};
}

Diagnostics StoredCheckpoint::check_boxes(const std::string& name, const StoredParameter& stored,
                                          const std::vector<std::string>& states) {
  if (const std::string fault = cover_fault(stored); !fault.empty())
    return {bad_checkpoint(path_, fmt::format("'{}': {} of '{}'", path_, fault, name))};
  for (const StoredBox& box : stored.boxes) {
    for (const std::string& state : states) {
      const Result<int64_t> begin = place_of(name + state, box);
      if (!begin.ok()) return begin.diagnostics;
    }
  }
  return {};
}

Diagnostics StoredCheckpoint::read(const std::string& parameter, std::string_view state, const Box& wanted, float* values) {
  const std::string tensor = parameter + std::string(state);
  const StoredParameter* const stored = index_.find(parameter, state);
  if (stored == nullptr || stored->shape.size() != wanted.size.size())
    return {bad_checkpoint(path_, fmt::format("'{}' has no tensor '{}' of {} dimensions", path_, tensor, wanted.size.size()))};
  int64_t num_copied = 0;
  for (const StoredBox& box : stored->boxes) {
    const Overlap overlap = intersect(wanted, box);
    if (overlap.numel == 0) continue;
    const Result<int64_t> begin = place_of(tensor, box);
    if (!begin.ok()) return begin.diagnostics;
    const int number = copy_overlap(overlap, box, open_.at(box.file).file.fd(), *begin, wanted, values);
    if (number != 0)
      return {error(code::kUnreadableFile, {path_}, fmt::format("cannot read '{}/{}', {}", path_, box.file, errno_text(number)))};
    num_copied += overlap.numel;
  }
  if (num_copied == wanted.numel()) return {};
  return {
      bad_checkpoint(path_, fmt::format("'{}' holds {} of {} wanted elements of '{}'", path_, num_copied, wanted.numel(), tensor))};
}

Result<const StoredCheckpoint::RankFile*> StoredCheckpoint::rank_file(const std::string& name) {
  const auto known = open_.find(name);
  if (known != open_.end()) return &known->second;
  const std::string path = (fs::path(path_) / name).string();
  Result<SafetensorsHeader> header = read_safetensors_header(path);
  if (!header.ok()) return header.diagnostics;
  OpenFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return error(code::kUnreadableFile, {path}, fmt::format("cannot read '{}', {}", path, errno_text(errno)));
  return &open_.emplace(name, RankFile{std::move(file), std::move(*header)}).first->second;
}

std::string fault_of(const std::string& path) {
  const Result<CheckpointMetadata> metadata = verify_stored(path);
  if (!metadata.ok()) return metadata.diagnostics.front().message;
  Result<StoredCheckpoint> stored = StoredCheckpoint::open(path);
  if (!stored.ok()) return stored.diagnostics.front().message;
  const Diagnostics said = stored->check_boxes();
  return has_error(said) ? said.front().message : "";
}

}  // namespace distsetup
