// Reading checkpoints: verification, and the intersection of stored boxes with wanted ones. Reads are positioned (pread): a rank reads
// the bytes it needs and no others.
#include "runtime/checkpoint/load.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/digest.h"
#include "base/file.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

Diagnostic bad(const std::string& path, std::string what) { return error(code::kCheckpoint, {path}, std::move(what)); }

Result<CheckpointCommit> read_commit(const std::string& path, int64_t step) {
  const std::string file = (fs::path(path) / "COMMIT").string();
  std::error_code failure;
  if (!fs::exists(file, failure)) return bad(path, fmt::format("'{}' has no COMMIT: it was never finished", path));
  const Result<std::string> text = read_file(file);
  if (!text.ok()) return text.diagnostics;
  Result<CheckpointCommit> commit = commit_from_json(*text, file);
  if (commit.ok() && commit->step != step) return bad(path, fmt::format("'{}' says step {}, expected {}", file, commit->step, step));
  return commit;
}

// An open rank file.
struct RankFile {
  int fd = -1;
  SafetensorsHeader header;
};

class RankFiles {
 public:
  explicit RankFiles(std::string path) : path_(std::move(path)) {}
  RankFiles(const RankFiles&) = delete;
  RankFiles& operator=(const RankFiles&) = delete;
  ~RankFiles() {
    for (const auto& entry : open_) ::close(entry.second.fd);
  }
  Result<const RankFile*> get(const std::string& name) {
    const auto known = open_.find(name);
    if (known != open_.end()) return &known->second;
    const std::string file = (fs::path(path_) / name).string();
    Result<SafetensorsHeader> header = read_safetensors_header(file);
    if (!header.ok()) return header.diagnostics;
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return error(code::kUnreadableFile, {file}, fmt::format("cannot read '{}', {}", file, errno_text(errno)));
    return &open_.emplace(name, RankFile{fd, std::move(*header)}).first->second;
  }

 private:
  std::string path_;
  std::map<std::string, RankFile> open_;
};

int read_at(int fd, void* data, int64_t num_bytes, int64_t offset) {
  char* p = static_cast<char*>(data);
  while (num_bytes > 0) {
    const ssize_t n = ::pread(fd, p, static_cast<size_t>(num_bytes), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n == 0 ? EIO : errno;
    p += n;
    offset += n;
    num_bytes -= n;
  }
  return 0;
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

Diagnostics load_box(const std::string& path, RankFiles& sources, const std::string& tensor, const StoredParameter& stored,
                     const Box& wanted, float* target) {
  int64_t num_copied = 0;
  for (const StoredBox& box : stored.boxes) {
    const Overlap overlap = intersect(wanted, box);
    if (overlap.numel == 0) continue;
    const Result<const RankFile*> source = sources.get(box.file);
    if (!source.ok()) return source.diagnostics;
    const std::string name = tensor + box.suffix;
    const auto entry = (*source)->header.tensors.find(name);
    if (entry == (*source)->header.tensors.end()) return {bad(path, fmt::format("'{}/{}' has no tensor '{}'", path, box.file, name))};
    if (entry->second.shape != box.size)
      return {bad(path, fmt::format("tensor '{}' of '{}/{}' has another shape than index.json says", name, path, box.file))};
    const int number = copy_overlap(overlap, box, (*source)->fd, entry->second.begin, wanted, target);
    if (number != 0)
      return {error(code::kUnreadableFile, {path}, fmt::format("cannot read '{}/{}', {}", path, box.file, errno_text(number)))};
    num_copied += overlap.numel;
  }
  if (num_copied == wanted.numel()) return {};
  return {bad(path, fmt::format("'{}' holds {} of {} wanted elements of '{}'", path, num_copied, wanted.numel(), tensor))};
}

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// The same parameters in the same shapes, and every box in a committed file.
Diagnostics check_model(const std::string& path, const CheckpointIndex& index, const CheckpointCommit& commit, const Layout& layout) {
  size_t num_parameters = 0;
  for (const UnitLayout& unit : layout.units) {
    for (const Parameter& parameter : unit.parameters) {
      ++num_parameters;
      const auto stored = index.parameters.find(parameter.name);
      if (stored == index.parameters.end())
        return {bad(path, fmt::format("'{}' is of another model: it has no parameter '{}'", path, parameter.name))};
      if (stored->second.shape != parameter.full_shape) {
        return {bad(path, fmt::format("'{}' is of another model: '{}' has the shape {}, expected {}", path, parameter.name,
                                      shape_text(stored->second.shape), shape_text(parameter.full_shape)))};
      }
      for (const StoredBox& box : stored->second.boxes) {
        if (!commit.files.contains(box.file))
          return {bad(path, fmt::format("'{}' names the file '{}', COMMIT does not", path + "/index.json", box.file))};
      }
    }
  }
  if (num_parameters != index.parameters.size()) {
    return {bad(path, fmt::format("'{}' is of another model: it has {} parameters, expected {}", path, index.parameters.size(),
                                  num_parameters))};
  }
  return {};
}

}  // namespace

Result<CheckpointMetadata> verify_checkpoint(const std::string& directory, int64_t step, int part, int parts) {
  const std::string path = checkpoint_path(directory, step);
  const Result<CheckpointCommit> commit = read_commit(path, step);
  if (!commit.ok()) return commit.diagnostics;
  int number = 0;
  for (const auto& [name, digest] : commit->files) {
    const std::string file = (fs::path(path) / name).string();
    struct stat info = {};
    if (::stat(file.c_str(), &info) != 0) return bad(path, fmt::format("'{}' is missing", file));
    if (info.st_size != digest.bytes)
      return bad(path, fmt::format("'{}' has {} bytes, expected {}", file, info.st_size, digest.bytes));
    if (number++ % parts != part) continue;
    const Result<std::string> found = sha256_of_file(file);
    if (!found.ok()) return found.diagnostics;
    if (*found != digest.sha256)
      return bad(path, fmt::format("'{}' has the digest {:.12}…, expected {:.12}…", file, *found, digest.sha256));
  }
  const std::string file = (fs::path(path) / "metadata.json").string();
  const Result<std::string> text = read_file(file);
  if (!text.ok()) return text.diagnostics;
  Result<CheckpointMetadata> metadata = metadata_from_json(*text, file);
  if (metadata.ok() && metadata->step != step)
    return bad(path, fmt::format("'{}' says step {}, expected {}", file, metadata->step, step));
  return metadata;
}

Diagnostics load_shard(const std::string& directory, int64_t step, const ShardState& state) {
  const std::string path = checkpoint_path(directory, step);
  const Result<CheckpointCommit> commit = read_commit(path, step);
  if (!commit.ok()) return commit.diagnostics;
  const Result<std::string> text = read_file((fs::path(path) / "index.json").string());
  if (!text.ok()) return text.diagnostics;
  const Result<CheckpointIndex> index = index_from_json(*text, (fs::path(path) / "index.json").string());
  if (!index.ok()) return index.diagnostics;
  if (Diagnostics found = check_model(path, *index, *commit, make_layout(state.layout->geometry, {})); has_error(found)) return found;

  RankFiles sources(path);
  const std::span<float> states[] = {state.master, state.moment1, state.moment2};
  for (const std::span<float>& values : states) std::fill(values.begin(), values.end(), 0.0f);  // padding stays zero
  for (const UnitLayout& unit : state.layout->units) {
    for (const Parameter& parameter : unit.parameters) {
      const StoredParameter& stored = index->parameters.at(parameter.name);
      for (const Box& box : boxes_of(*state.layout, unit, parameter, state.at)) {
        for (size_t s = 0; s < std::size(states); ++s) {
          CHECK(box.shard_offset + box.numel() <= static_cast<int64_t>(states[s].size()), "{}", parameter.name);
          Diagnostics found = load_box(path, sources, parameter.name + std::string(kStateSuffixes[s]), stored, box,
                                       states[s].data() + box.shard_offset);
          if (has_error(found)) return found;
        }
      }
    }
  }
  return {};
}

}  // namespace distsetup
