// See safetensors.h.
#include "base/safetensors.h"

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

// Of the format's types: all that its library (version 0.6) knows.
struct TypeBits {
  std::string_view name;
  int64_t bits;
};
constexpr TypeBits kTypes[] = {{"BOOL", 8}, {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
                               {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},
                               {"U16", 16}, {"F16", 16},    {"BF16", 16},   {"I32", 32},    {"U32", 32},
                               {"F32", 32}, {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}};

// 0: no type of the format.
int64_t bits_of(std::string_view dtype) {
  const auto type = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeBits& one) { return dtype == one.name; });
  return type == std::end(kTypes) ? 0 : type->bits;
}

std::string header_text(const std::vector<SafetensorsWriter::Tensor>& tensors, const std::map<std::string, std::string>& metadata,
                        int64_t& data_bytes) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  data_bytes = 0;
  for (const SafetensorsWriter::Tensor& tensor : tensors) {
    const int64_t end = data_bytes + num_elements(tensor.shape) * bits_of(tensor.dtype) / 8;
    CHECK(!header.contains(tensor.name), "{} twice", tensor.name);
    header[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {data_bytes, end}}};
    data_bytes = end;
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
  entry.dtype = json["dtype"].is_string() ? json["dtype"].get<std::string>() : "";
  int64_t bits = bits_of(entry.dtype);
  if (bits == 0) return fmt::format("unknown dtype {}", json["dtype"].dump(-1, ' ', false, Json::error_handler_t::replace));
  if (!json["shape"].is_array() || !json["data_offsets"].is_array() || json["data_offsets"].size() != 2)
    return "shape or data_offsets is not a list";
  for (const Json& item : json["shape"]) {
    int64_t size = 0;
    if (!as_count(item, size)) return "a size is not a natural number";
    if (__builtin_mul_overflow(bits, size, &bits)) return "its shape is too large";
    entry.shape.push_back(size);
  }
  if (!as_count(json["data_offsets"][0], entry.begin) || !as_count(json["data_offsets"][1], entry.end))
    return "an offset is not a natural number";
  const int64_t bytes = (bits + 7) / 8;
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

SafetensorsWriter::SafetensorsWriter(std::string path, const std::vector<Tensor>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(std::move(path)),
      file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)),
      digest_(std::make_unique<Sha256>()) {
  if (!file_.is_open()) failure_ = errno;
  const std::string header = header_text(tensors, metadata, expected_bytes_);
  const uint64_t length = header.size();
  append(&length, kLengthBytes);
  append(header.data(), static_cast<int64_t>(header.size()));
  expected_bytes_ += kLengthBytes + static_cast<int64_t>(header.size());
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::append(const void* data, int64_t num_bytes) {
  const char* p = static_cast<const char*>(data);
  while (num_bytes > 0 && failure_ == 0) {
    const size_t wanted = std::min(static_cast<size_t>(num_bytes), kWriteBytes);
    const ssize_t n = ::write(file_.fd(), p, wanted);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      failure_ = n == 0 ? ENOSPC : errno;
      return;
    }
    digest_->update(p, static_cast<size_t>(n));
    bytes_ += n;
    p += n;
    num_bytes -= n;
  }
}

Result<FileDigest> SafetensorsWriter::finish() {
  if (failure_ == 0 && ::fsync(file_.fd()) != 0) failure_ = errno;
  if (const int closing = file_.close(); failure_ == 0) failure_ = closing;  // quota and network file systems tell only here
  if (failure_ != 0) return error(code::kUnwritableFile, {path_}, fmt::format("cannot write '{}', {}", path_, errno_text(failure_)));
  CHECK(bytes_ == expected_bytes_, "{}: {} of {} bytes", path_, bytes_, expected_bytes_);
  return FileDigest{bytes_, digest_->hex()};
}

Result<FileDigest> write_safetensors(const std::string& path, const std::vector<TensorData>& tensors,
                                     const std::map<std::string, std::string>& metadata) {
  std::vector<SafetensorsWriter::Tensor> announced;
  for (const TensorData& tensor : tensors) announced.push_back({tensor.name, "F32", tensor.shape});
  SafetensorsWriter writer(path, announced, metadata);
  for (const TensorData& tensor : tensors)
    writer.append(tensor.data, num_elements(tensor.shape) * static_cast<int64_t>(sizeof(float)));
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
  header.sha256 = sha256(prefix.substr(0, static_cast<size_t>(data_begin)));
  if (file_bytes >= 0 && file_bytes != header.file_bytes)
    return bad(path, fmt::format("it has {} bytes, expected {}", file_bytes, header.file_bytes));
  return header;
}

Result<SafetensorsHeader> read_safetensors_header(const std::string& path) {
  const auto failed = [&path](int number) {
    return error(code::kUnreadableFile, {path}, fmt::format("cannot read '{}', {}", path, errno_text(number)));
  };
  const OpenFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info = {};
  if (!file.is_open() || ::fstat(file.fd(), &info) != 0) return failed(errno);
  if (!S_ISREG(info.st_mode)) return bad(path, "it is not a regular file");
  std::string prefix;
  const auto read_to = [&](int64_t size) {
    prefix.resize(static_cast<size_t>(std::min<int64_t>(size, info.st_size)));
    return read_at(file.fd(), prefix.data(), static_cast<int64_t>(prefix.size()), 0);
  };
  if (const int number = read_to(kLengthBytes); number != 0) return failed(number);
  uint64_t length = 0;
  if (prefix.size() == static_cast<size_t>(kLengthBytes)) std::memcpy(&length, prefix.data(), kLengthBytes);
  if (kLfsPointer.starts_with(prefix)) {
    if (const int number = read_to(static_cast<int64_t>(kLfsPointer.size())); number != 0) return failed(number);
    if (prefix == kLfsPointer) return lfs_pointer(path);
  }
  if (length <= static_cast<uint64_t>(kLongestHeader)) {
    if (const int number = read_to(kLengthBytes + static_cast<int64_t>(length)); number != 0) return failed(number);
  }
  return parse_safetensors(prefix, info.st_size, path);
}

}  // namespace distsetup
