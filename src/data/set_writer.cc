#include "data/set_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <filesystem>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "data/set_json.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

// Of the folders that sets are filled in: processes of several machines may write beside each other.
std::string partial_prefix(const std::string& folder) {
  char host[256] = {};
  if (::gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  return fmt::format("{}.partial.{}.", folder, host);
}

// What processes of this machine have left that were killed before they finished.
void remove_stale(const std::string& folder) {
  const std::string prefix = fs::path(partial_prefix(folder)).filename().string();
  std::error_code failure;
  const fs::path parent = fs::path(folder).has_parent_path() ? fs::path(folder).parent_path() : fs::path(".");
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, failure)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    pid_t process = 0;
    const auto [end, failed] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), process);
    const bool is_number = failed == std::errc() && end == name.data() + name.size() && process > 0;
    std::error_code ignored;
    if (is_number && ::kill(process, 0) != 0 && errno == ESRCH) fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

Result<SetWriter> SetWriter::create(const std::string& folder) {
  SetWriter w;
  std::error_code failure;
  w.folder_ = fs::path(folder).lexically_normal().string();
  while (w.folder_.size() > 1 && w.folder_.ends_with('/')) w.folder_.pop_back();
  if (fs::exists(w.folder_, failure) && !(fs::is_directory(w.folder_, failure) && fs::is_empty(w.folder_, failure)))
    return error(code::kFileExists, {w.folder_}, fmt::format("'{}' exists, and is no empty folder", w.folder_),
                 "name another --output, or remove it");
  remove_stale(w.folder_);
  const std::string partial = fmt::format("{}{}", partial_prefix(w.folder_), ::getpid());
  fs::create_directories(partial, failure);
  if (failure) return error(code::kUnwritableFile, {partial}, fmt::format("cannot make the folder: {}", failure.message()));
  w.partial_ = partial;
  for (const SetSplit split : {SetSplit::kTraining, SetSplit::kHeldOut}) {
    SplitFiles& files = w.splits_[static_cast<size_t>(split)];
    for (auto [output, ending] : {std::pair{&files.tokens, "tokens"}, {&files.samples, "samples"}, {&files.spans, "spans"}}) {
      Diagnostics said = w.open(*output, fmt::format("{}.{}", name(split), ending));
      if (has_error(said)) return said;
    }
  }
  return w;
}

SetWriter::~SetWriter() {
  std::error_code ignored;
  if (!partial_.empty()) fs::remove_all(partial_, ignored);
}

Diagnostics SetWriter::failed(const std::string& name, int number) const {
  return {error(code::kUnwritableFile, {(fs::path(partial_) / name).string()}, fmt::format("cannot write: {}", errno_text(number)),
                "nothing was left behind; make room, then run it again")};
}

Diagnostics SetWriter::open(Output& output, const std::string& name) {
  output.name = name;
  output.file = {std::fopen((fs::path(partial_) / name).c_str(), "wb"), &std::fclose};
  return output.file == nullptr ? failed(name, errno) : Diagnostics{};
}

Diagnostics SetWriter::append(Output& output, const void* data, size_t bytes) {
  if (bytes == 0) return {};
  output.digest.update(data, bytes);
  output.bytes += static_cast<int64_t>(bytes);
  return std::fwrite(data, 1, bytes, output.file.get()) == bytes ? Diagnostics{} : failed(output.name, errno);
}

Diagnostics SetWriter::close(Output& output) {
  const bool is_written = std::fflush(output.file.get()) == 0 && ::fsync(::fileno(output.file.get())) == 0;
  const int number = errno;
  output.file.reset();
  return is_written ? Diagnostics{} : failed(output.name, number);
}

Diagnostics SetWriter::add(const NewSample& s, SetSplit split) {
  SplitFiles& f = splits_[static_cast<size_t>(split)];
  CHECK(!partial_.empty() && s.ids.size() <= UINT32_MAX, "{} tokens", s.ids.size());
  const auto length = static_cast<int64_t>(s.ids.size());
  SampleRecord record;
  record.first_token = static_cast<uint64_t>(f.counts.tokens);
  record.first_span = static_cast<uint64_t>(f.spans.bytes) / sizeof(TrainedSpan);
  record.num_tokens = static_cast<uint32_t>(s.ids.size());
  record.num_spans = static_cast<uint32_t>(s.spans.size());
  record.too_long = s.too_long;
  record.source = s.source;
  f.counts.samples += 1;
  f.counts.tokens += length;
  f.counts.trained_tokens += num_trained(s.spans, 0, length);
  longest_ = std::max(longest_, length);
  const auto bin = static_cast<size_t>(length <= 1 ? 0 : std::bit_width(static_cast<uint64_t>(length - 1)));
  if (lengths_.size() <= bin) lengths_.resize(bin + 1);
  ++lengths_[bin];
  Diagnostics said = append(f.tokens, s.ids.data(), s.ids.size() * sizeof(uint32_t));
  if (!has_error(said)) said = append(f.spans, s.spans.data(), s.spans.size() * sizeof(TrainedSpan));
  if (!has_error(said)) said = append(f.samples, &record, sizeof record);
  return said;
}

Result<SetDescription> SetWriter::finish(SetDescription d) {
  d.training = splits_[0].counts;
  d.held_out = splits_[1].counts;
  d.longest = longest_;
  d.lengths = lengths_;
  for (SplitFiles& f : splits_) {
    for (Output* output : {&f.tokens, &f.samples, &f.spans}) {
      Diagnostics said = close(*output);
      if (has_error(said)) return said;
      d.files.push_back({output->name, output->bytes, output->digest.hex()});
    }
  }
  Result<Written> written =
      write_file_atomic((fs::path(partial_) / kSetDescriptionFile).string(), format_set_description(d), Overwrite::kRefuse);
  if (!written.ok()) return written.diagnostics;
  std::error_code failure;
  fs::rename(partial_, folder_, failure);
  if (failure) return error(code::kUnwritableFile, {folder_}, fmt::format("cannot name the folder so: {}", failure.message()));
  partial_.clear();
  return d;
}

}  // namespace distsetup
