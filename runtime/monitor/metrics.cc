// See metrics.h. A line is one write(): a reader, and a kill, see whole lines or a cut last one.
#include "runtime/monitor/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_text.h"

namespace distsetup {
namespace {

// The line's step, -1 when it is not one of ours (cut short, foreign).
int64_t step_of(std::string_view line) {
  const Json json = json_from_text(line);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return -1;
  return json["step"].get<int64_t>();
}

Diagnostic unwritable(const std::string& path, int number) {
  return error(code::kUnwritableFile, {path}, fmt::format("cannot write '{}', {}", path, errno_text(number)));
}

}  // namespace

MetricsFile::~MetricsFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<int64_t> MetricsFile::open(const std::string& path, int64_t step, const std::string& events) {
  path_ = path;
  int64_t num_dropped = 0;
  if (::access(path.c_str(), F_OK) == 0) {
    const Result<std::string> text = read_file(path);
    if (!text.ok()) return text.diagnostics;
    std::string kept;
    size_t begin = 0;
    while (begin < text->size()) {
      const size_t end = text->find('\n', begin);
      const std::string_view line = std::string_view(*text).substr(begin, end == std::string::npos ? std::string::npos : end - begin);
      const int64_t found = end == std::string::npos ? -1 : step_of(line);
      if (found >= 0 && found <= step)
        kept += std::string(line) + '\n';
      else
        ++num_dropped;
      begin = end == std::string::npos ? text->size() : end + 1;
    }
    if (num_dropped > 0) {
      const Result<Written> written = write_file_atomic(path, kept, Overwrite::kForce);
      if (!written.ok()) return written.diagnostics;
    }
  }
  last_step_ = step;
  last_evaluation_ = -1;
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) return unwritable(path, errno);
  if (!events.empty()) {
    if (Diagnostics said = events_.open(events, step + 1); has_error(said)) return said;
  }
  return num_dropped;
}

Diagnostics MetricsFile::write(const Json& line) {
  int64_t& last = line.at("kind") == "step" ? last_step_ : last_evaluation_;
  CHECK(line.at("step").get<int64_t>() > last, "step {} after {}", line.at("step").get<int64_t>(), last);
  last = line.at("step").get<int64_t>();
  const std::string text = line.dump() + '\n';
  const ssize_t n = ::write(fd_, text.data(), text.size());
  if (n == static_cast<ssize_t>(text.size())) return events_.is_open() ? events_.write(line) : Diagnostics{};
  return {unwritable(path_, n < 0 ? errno : ENOSPC)};
}

}  // namespace distsetup
