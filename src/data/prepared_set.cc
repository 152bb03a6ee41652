#include "data/prepared_set.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <filesystem>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/json.h"
#include "data/set_json.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "files are read as they lie");

constexpr const char* kPrepareAgain = "prepare it again: distsetup data prepare";

struct Mapping {
  std::shared_ptr<const void> owner;
  std::string_view bytes;
};

Result<Mapping> map_file(const std::string& path) {
  const OpenFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return error(code::kData, {path}, fmt::format("cannot open: {}", errno_text(errno)), kPrepareAgain);
  struct stat status = {};
  if (::fstat(file.fd(), &status) != 0) return error(code::kData, {path}, fmt::format("cannot look at it: {}", errno_text(errno)));
  const auto bytes = static_cast<size_t>(status.st_size);
  if (bytes == 0) return Mapping{};
  void* const data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.fd(), 0);
  if (data == MAP_FAILED) return error(code::kData, {path}, fmt::format("cannot map: {}", errno_text(errno)));
  std::shared_ptr<const void> owner(data, [bytes](const void* p) { ::munmap(const_cast<void*>(p), bytes); });
  return Mapping{std::move(owner), {static_cast<const char*>(data), bytes}};
}

template <class T>
std::span<const T> elements(std::string_view bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

// "": what the table says lies in the other files.
std::string problem_of(const SampleRecord& s, std::span<const uint32_t> tokens, std::span<const TrainedSpan> spans) {
  if (s.first_token > tokens.size() || s.num_tokens > tokens.size() - s.first_token) return "its tokens reach beyond their file";
  if (s.first_span > spans.size() || s.num_spans > spans.size() - s.first_span) return "its spans reach beyond their file";
  uint32_t end = 0;
  for (const TrainedSpan& span : spans.subspan(s.first_span, s.num_spans)) {
    if (span.begin < end || span.end <= span.begin || span.end > s.num_tokens) return "its spans are not in order within its tokens";
    end = span.end;
  }
  return s.too_long == TooLong::kContinues || s.too_long == TooLong::kIsCut ? "" : "its flags are unknown";
}

}  // namespace

std::string_view name(SetSplit split) { return split == SetSplit::kTraining ? "training" : "held_out"; }

bool is_prepared_set(const std::string& folder) {
  std::error_code ignored;
  return fs::is_regular_file(fs::path(folder) / kSetDescriptionFile, ignored);
}

Result<SetDescription> read_set_description(const std::string& folder) {
  const std::string path = (fs::path(folder) / kSetDescriptionFile).string();
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.diagnostics;
  return parse_set_description(*text, path);
}

Result<PreparedSplit> PreparedSplit::open(const std::string& folder, SetSplit split) {
  PreparedSplit out;
  std::string_view bytes[3];
  constexpr std::string_view kEndings[] = {"tokens", "samples", "spans"};
  constexpr size_t kSizes[] = {sizeof(uint32_t), sizeof(SampleRecord), sizeof(TrainedSpan)};
  for (size_t i = 0; i < 3; ++i) {
    const std::string path = (fs::path(folder) / fmt::format("{}.{}", name(split), kEndings[i])).string();
    Result<Mapping> mapping = map_file(path);
    if (!mapping.ok()) return mapping.diagnostics;
    if (mapping->bytes.size() % kSizes[i] != 0)
      return error(code::kData, {path}, fmt::format("{} bytes are no multiple of {}", mapping->bytes.size(), kSizes[i]),
                   kPrepareAgain);
    bytes[i] = mapping->bytes;
    out.mappings_.push_back(std::move(mapping->owner));
  }
  out.tokens_ = elements<uint32_t>(bytes[0]);
  out.samples_ = elements<SampleRecord>(bytes[1]);
  out.spans_ = elements<TrainedSpan>(bytes[2]);
  for (size_t i = 0; i < out.samples_.size(); ++i) {
    const std::string problem = problem_of(out.samples_[i], out.tokens_, out.spans_);
    if (!problem.empty())
      return error(code::kData, {folder}, fmt::format("sample {} of the {} split: {}", i, name(split), problem), kPrepareAgain);
  }
  return out;
}

std::span<const uint32_t> PreparedSplit::tokens(int64_t i) const {
  return tokens_.subspan(sample(i).first_token, sample(i).num_tokens);
}
std::span<const TrainedSpan> PreparedSplit::spans(int64_t i) const {
  return spans_.subspan(sample(i).first_span, sample(i).num_spans);
}

int64_t num_trained(std::span<const TrainedSpan> spans, int64_t begin, int64_t end) {
  int64_t sum = 0;
  for (const TrainedSpan& s : spans)
    sum += std::max<int64_t>(0, std::min<int64_t>(s.end, end + 1) - std::max<int64_t>(s.begin, begin + 1));
  return sum;
}

}  // namespace distsetup
