#include "data/megatron_files.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>

#include "base/diagnostic_codes.h"
#include "base/file.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic{"MMIDIDX\0\0", 9};
constexpr uint64_t kIndexVersion = 1;
constexpr uint8_t kUint16 = 8, kInt32 = 4;
constexpr int64_t kMostUint16Ids = 65500;  // DType.optimal_dtype

struct IdType {
  uint8_t code;
  int64_t bytes;
  bool is_signed;
};
constexpr IdType kIdTypes[] = {{1, 1, false}, {2, 1, true}, {3, 2, true}, {4, 4, true}, {5, 8, true}, {8, 2, false}};

std::string with_ending(const std::string& path, const char* ending) { return fs::path(path).replace_extension(ending).string(); }

// Takes numbers from the front of a text, which must have them.
class NumberReader {
 public:
  explicit NumberReader(std::string_view text) : text_(text) {}
  template <class T>
  T take() {
    T value{};
    if (text_.size() < sizeof value) {
      is_short_ = true;
      return value;
    }
    std::memcpy(&value, text_.data(), sizeof value);
    text_.remove_prefix(sizeof value);
    return value;
  }
  template <class T>
  std::vector<T> take(uint64_t count) {
    std::vector<T> values;
    if (count > text_.size() / sizeof(T)) {
      is_short_ = true;
      return values;
    }
    values.resize(static_cast<size_t>(count));
    if (count > 0) std::memcpy(values.data(), text_.data(), values.size() * sizeof(T));
    text_.remove_prefix(values.size() * sizeof(T));
    return values;
  }
  bool is_short() const { return is_short_; }

 private:
  std::string_view text_;
  bool is_short_ = false;
};

struct Index {
  IdType type{};
  std::vector<int32_t> lengths;
  std::vector<int64_t> pointers, documents;
};

Result<Index> read_sequence_index(const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.diagnostics;
  const auto refuse = [&](std::string why) {
    return error(code::kData, {path}, std::move(why), "an index of Megatron-LM is what its tools/preprocess_data.py writes");
  };
  if (!text->starts_with(kMagic)) return refuse("this is no index of Megatron-LM: it does not begin with MMIDIDX");
  NumberReader numbers(std::string_view(*text).substr(kMagic.size()));
  const auto version = numbers.take<uint64_t>();
  if (version != kIndexVersion) return refuse(fmt::format("this index has version {}, expected {}", version, kIndexVersion));
  const auto type = numbers.take<uint8_t>();
  Index index;
  for (const IdType& t : kIdTypes)
    if (t.code == type) index.type = t;
  if (index.type.code == 0) return refuse(fmt::format("its type of ids has code {}, expected a whole number: 1 to 5, or 8", type));
  const auto num_sequences = numbers.take<uint64_t>(), num_documents = numbers.take<uint64_t>();
  index.lengths = numbers.take<int32_t>(num_sequences);
  index.pointers = numbers.take<int64_t>(num_sequences);
  index.documents = numbers.take<int64_t>(num_documents);
  if (numbers.is_short())
    return refuse(
        fmt::format("it ends before the {} sequences and {} document indices that it announces", num_sequences, num_documents));
  int64_t before = 0;
  for (const int64_t d : index.documents) {
    if (d < before || d > static_cast<int64_t>(num_sequences))
      return refuse(fmt::format("a document begins at sequence {}, after one at {}, of {} sequences", d, before, num_sequences));
    before = d;
  }
  return index;
}

int64_t id_at(const char* data, const IdType& type) {
  int64_t value = 0;
  std::memcpy(&value, data, static_cast<size_t>(type.bytes));
  const int unused = static_cast<int>(64 - 8 * type.bytes);
  if (!type.is_signed) return value;
  return static_cast<int64_t>(static_cast<uint64_t>(value) << unused) >> unused;
}

// The ids of sequence `s`, behind those that are there.
Diagnostics add_sequence(std::ifstream& file, const std::string& path, const Index& index, size_t s, std::vector<uint32_t>& ids) {
  const int64_t length = index.lengths[s], begin = index.pointers[s];
  std::string bytes;
  if (length < 0 || begin < 0)
    return {error(code::kData, {path}, fmt::format("sequence {} has {} ids from byte {}", s, length, begin))};
  bytes.resize(static_cast<size_t>(length * index.type.bytes));
  file.seekg(begin);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (file.gcount() != static_cast<std::streamsize>(bytes.size()))
    return {error(code::kData, {path}, fmt::format("sequence {} reaches beyond the file: {} ids from byte {}", s, length, begin),
                  "the index and the file belong together: were they copied whole?")};
  for (int64_t i = 0; i < length; ++i) {
    const int64_t id = id_at(bytes.data() + i * index.type.bytes, index.type);
    if (id < 0 || id > UINT32_MAX) return {error(code::kData, {path}, fmt::format("sequence {} has the id {}", s, id))};
    ids.push_back(static_cast<uint32_t>(id));
  }
  return {};
}

template <class T>
void put(std::string& text, T value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

bool is_megatron_file(const std::string& path) {
  const std::string ending = fs::path(path).extension().string();
  return ending == ".bin" || ending == ".idx";
}

Diagnostics read_megatron(const std::string& path,
                          const std::function<Diagnostics(int64_t document, std::vector<uint32_t> ids)>& use) {
  const std::string bin = with_ending(path, ".bin"), idx = with_ending(path, ".idx");
  std::error_code failure;
  for (const auto& [needed, other] : {std::pair{bin, idx}, {idx, bin}})
    if (!fs::is_regular_file(needed, failure))
      return {error(code::kUnreadableFile, {other}, fmt::format("there is no '{}' beside it", needed),
                    "Megatron-LM's sets are a pair: PREFIX.bin and PREFIX.idx")};
  const Result<Index> index = read_sequence_index(idx);
  if (!index.ok()) return index.diagnostics;
  std::ifstream file(bin, std::ios::binary);
  if (!file) return {error(code::kUnreadableFile, {bin}, fmt::format("cannot read '{}'", bin))};
  for (size_t d = 0; d + 1 < index->documents.size(); ++d) {
    std::vector<uint32_t> ids;
    for (int64_t s = index->documents[d]; s < index->documents[d + 1]; ++s) {
      Diagnostics said = add_sequence(file, bin, *index, static_cast<size_t>(s), ids);
      if (has_error(said)) return said;
    }
    Diagnostics said = use(static_cast<int64_t>(d), std::move(ids));
    if (has_error(said)) return said;
  }
  return {};
}

Diagnostics write_megatron(const std::string& prefix, int64_t vocabulary_size, int64_t num_documents,
                           const std::function<std::vector<uint32_t>(int64_t document)>& ids_of) {
  const std::string bin = prefix + ".bin", idx = prefix + ".idx";
  std::error_code failure;
  for (const std::string& path : {bin, idx})
    if (fs::exists(path, failure))
      return {error(code::kFileExists, {path}, fmt::format("'{}' exists", path), "name another --output")};
  const bool is_short = vocabulary_size < kMostUint16Ids;
  std::ofstream file(bin, std::ios::binary);
  std::string lengths, pointers, documents, bytes;
  int64_t at = 0;
  put<int64_t>(documents, 0);
  for (int64_t d = 0; d < num_documents && file; ++d) {
    bytes.clear();
    const std::vector<uint32_t> ids = ids_of(d);
    for (const uint32_t id : ids) is_short ? put<uint16_t>(bytes, static_cast<uint16_t>(id)) : put<uint32_t>(bytes, id);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    put<int32_t>(lengths, static_cast<int32_t>(ids.size()));
    put<int64_t>(pointers, at);
    put<int64_t>(documents, d + 1);
    at += static_cast<int64_t>(bytes.size());
  }
  file.close();
  std::string index(kMagic);
  put<uint64_t>(index, kIndexVersion);
  put<uint8_t>(index, is_short ? kUint16 : kInt32);
  put<uint64_t>(index, static_cast<uint64_t>(num_documents));
  put<uint64_t>(index, static_cast<uint64_t>(num_documents + 1));
  std::ofstream list(idx, std::ios::binary);
  for (const std::string* part : {&index, &lengths, &pointers, &documents})
    list.write(part->data(), static_cast<std::streamsize>(part->size()));
  list.close();
  if (file && list) return {};
  for (const std::string& path : {bin, idx}) fs::remove(path, failure);
  return {error(code::kUnwritableFile, {bin}, fmt::format("cannot write '{}' and '{}'", bin, idx), "is there room on the disk?")};
}

}  // namespace distsetup
