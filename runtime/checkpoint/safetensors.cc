// See safetensors.h.
#include "runtime/checkpoint/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <set>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"

namespace distsetup {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

constexpr int64_t kLongestHeader = 100'000'000;  // the reference implementation's limit
constexpr int64_t kLengthBytes = 8;
constexpr size_t kWriteBytes = 1 << 22;

Diagnostic bad(const std::string& path, const std::string& what) {
  return error(code::kCheckpoint, {path}, fmt::format("'{}' is not a valid safetensors file: {}", path, what));
}

struct OpenFile {
  int fd = -1;
  ~OpenFile() {
    if (fd >= 0) ::close(fd);
  }
};

class DigestingWriter {
 public:
  explicit DigestingWriter(int fd) : fd_(fd) {}
  // 0 or errno
  int write(const void* data, int64_t num_bytes) {
    const char* p = static_cast<const char*>(data);
    while (num_bytes > 0) {
      const size_t wanted = std::min(static_cast<size_t>(num_bytes), kWriteBytes);
      const ssize_t n = ::write(fd_, p, wanted);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return n == 0 ? ENOSPC : errno;
      digest_.update(p, static_cast<size_t>(n));
      bytes_ += n;
      p += n;
      num_bytes -= n;
    }
    return 0;
  }
  FileDigest finish() { return {bytes_, digest_.hex()}; }

 private:
  int fd_;
  Sha256 digest_;
  int64_t bytes_ = 0;
};

std::string header_text(const std::vector<TensorData>& tensors, const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t offset = 0;
  for (const TensorData& tensor : tensors) {
    const int64_t end = offset + num_elements(tensor.shape) * static_cast<int64_t>(sizeof(float));
    CHECK(!header.contains(tensor.name), "{} twice", tensor.name);
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // data starts at a multiple of eight
  return text;
}

// JSON with duplicate keys refused; nlohmann alone keeps the last one.
std::optional<Json> parse_unique(std::string_view text, std::string& why) {
  std::vector<std::set<std::string>> open;
  bool duplicate = false;
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second) {
      duplicate = true;
      why = fmt::format("key '{}' twice", parsed.get<std::string>());
    }
    return true;
  };
  Json json = Json::parse(text, watch, false);
  if (duplicate) return std::nullopt;
  if (json.is_discarded() || !json.is_object()) {
    why = "its header is not a JSON object";
    return std::nullopt;
  }
  return json;
}

bool as_count(const Json& json, int64_t& out) {
  if (!json.is_number_unsigned() || json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return false;
  out = json.get<int64_t>();
  return true;
}

// Empty, or what is wrong with the entry.
std::string read_entry(const Json& json, TensorEntry& entry) {
  if (!json.is_object() || json.size() != 3 || !json.contains("dtype") || !json.contains("shape") || !json.contains("data_offsets")) {
    return "expected the keys dtype, shape, data_offsets";
  }
  if (json["dtype"] != "F32")
    return fmt::format("dtype {}, expected \"F32\"", json["dtype"].dump(-1, ' ', false, Json::error_handler_t::replace));
  if (!json["shape"].is_array() || !json["data_offsets"].is_array() || json["data_offsets"].size() != 2)
    return "shape or data_offsets is not a list";
  int64_t bytes = sizeof(float);
  for (const Json& item : json["shape"]) {
    int64_t size = 0;
    if (!as_count(item, size)) return "a size is not a natural number";
    if (__builtin_mul_overflow(bytes, size, &bytes)) return "its shape is too large";
    entry.shape.push_back(size);
  }
  if (!as_count(json["data_offsets"][0], entry.begin) || !as_count(json["data_offsets"][1], entry.end))
    return "an offset is not a natural number";
  if (entry.end < entry.begin || entry.end - entry.begin != bytes)
    return fmt::format("its offsets hold {} bytes, its shape {}", entry.end - entry.begin, bytes);
  return "";
}

}  // namespace

int64_t num_elements(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  return n;
}

Result<FileDigest> write_safetensors(const std::string& path, const std::vector<TensorData>& tensors,
                                     const std::map<std::string, std::string>& metadata) {
  const auto failed = [&path](int number) {
    return error(code::kUnwritableFile, {path}, fmt::format("cannot write '{}', {}", path, errno_text(number)));
  };
  OpenFile file = {::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
  if (file.fd < 0) return failed(errno);
  DigestingWriter writer(file.fd);
  const std::string header = header_text(tensors, metadata);
  const uint64_t length = header.size();
  int number = writer.write(&length, kLengthBytes);
  if (number == 0) number = writer.write(header.data(), static_cast<int64_t>(header.size()));
  for (const TensorData& tensor : tensors) {
    if (number == 0) number = writer.write(tensor.data, num_elements(tensor.shape) * static_cast<int64_t>(sizeof(float)));
  }
  if (number == 0 && ::fsync(file.fd) != 0) number = errno;
  const int fd = file.fd;
  file.fd = -1;
  if (::close(fd) != 0 && number == 0) number = errno;  // quota and network file systems tell only here
  if (number != 0) return failed(number);
  return writer.finish();
}

Result<SafetensorsHeader> parse_safetensors(std::string_view prefix, int64_t file_bytes, const std::string& path) {
  if (static_cast<int64_t>(prefix.size()) < kLengthBytes)
    return bad(path, fmt::format("it has {} bytes, expected at least 8", prefix.size()));
  uint64_t length = 0;
  std::memcpy(&length, prefix.data(), kLengthBytes);
  if (length > static_cast<uint64_t>(kLongestHeader))
    return bad(path, fmt::format("its header claims {} bytes, expected at most {}", length, kLongestHeader));
  if (length + kLengthBytes > prefix.size())
    return bad(path, fmt::format("it ends inside its header, expected {} bytes of header", length));
  std::string why;
  const std::string_view text = prefix.substr(kLengthBytes, length);
  if (text.empty() || text.front() != '{') return bad(path, "its header is not a JSON object");
  const std::optional<Json> json = parse_unique(text, why);
  if (!json) return bad(path, why);

  SafetensorsHeader header;
  std::vector<const TensorEntry*> order;
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(length);
  for (const auto& [name, value] : json->items()) {
    if (name == "__metadata__") {
      if (!value.is_object()) return bad(path, "__metadata__ is not an object");
      for (const auto& [key, item] : value.items()) {
        if (!item.is_string()) return bad(path, "__metadata__ holds something that is not text");
        header.metadata[key] = item.get<std::string>();
      }
      continue;
    }
    TensorEntry entry;
    entry.name = name;
    if (why = read_entry(value, entry); !why.empty()) return bad(path, fmt::format("tensor '{}': {}", name, why));
    if (entry.end > INT64_MAX - data_begin) return bad(path, fmt::format("tensor '{}' ends beyond any file", name));
    order.push_back(&header.tensors.emplace(name, std::move(entry)).first->second);
  }
  std::sort(order.begin(), order.end(),
            [](const TensorEntry* a, const TensorEntry* b) { return std::pair(a->begin, a->end) < std::pair(b->begin, b->end); });
  int64_t end = 0;
  for (const TensorEntry* entry : order) {
    if (entry->begin != end) return bad(path, fmt::format("tensor '{}' begins at {}, expected {}", entry->name, entry->begin, end));
    end = entry->end;
  }
  for (auto& [name, entry] : header.tensors) entry.begin += data_begin, entry.end += data_begin;
  header.file_bytes = data_begin + end;
  if (file_bytes >= 0 && file_bytes != header.file_bytes)
    return bad(path, fmt::format("it has {} bytes, expected {}", file_bytes, header.file_bytes));
  return header;
}

Result<SafetensorsHeader> read_safetensors_header(const std::string& path) {
  const auto failed = [&path](int number) {
    return error(code::kUnreadableFile, {path}, fmt::format("cannot read '{}', {}", path, errno_text(number)));
  };
  const OpenFile file = {::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  struct stat info = {};
  if (file.fd < 0 || ::fstat(file.fd, &info) != 0) return failed(errno);
  if (!S_ISREG(info.st_mode)) return bad(path, "it is not a regular file");
  std::string prefix;
  const auto read_to = [&](int64_t size) {
    prefix.resize(static_cast<size_t>(std::min<int64_t>(size, info.st_size)));
    size_t done = 0;
    while (done < prefix.size()) {
      const ssize_t n = ::pread(file.fd, prefix.data() + done, prefix.size() - done, static_cast<off_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return n == 0 ? EIO : errno;
      done += static_cast<size_t>(n);
    }
    return 0;
  };
  if (const int number = read_to(kLengthBytes); number != 0) return failed(number);
  uint64_t length = 0;
  if (prefix.size() == static_cast<size_t>(kLengthBytes)) std::memcpy(&length, prefix.data(), kLengthBytes);
  if (length <= static_cast<uint64_t>(kLongestHeader)) {
    if (const int number = read_to(kLengthBytes + static_cast<int64_t>(length)); number != 0) return failed(number);
  }
  return parse_safetensors(prefix, info.st_size, path);
}

}  // namespace distsetup
