#include "service/event_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "base/json.h"
#include "base/names.h"
#include "service/http_message.h"
#include "service/job_record.h"

namespace distsetup {
namespace {

constexpr std::array<std::string_view, 4> kLevelNames = {"debug", "info", "warning", "error"};

}  // namespace

std::optional<LogLevel> log_level_from(std::string_view name) {
  if (same_name(name, "warn")) return LogLevel::kWarning;
  if (same_name(name, "critical")) return LogLevel::kError;
  for (size_t i = 0; i < kLevelNames.size(); ++i) {
    if (same_name(name, kLevelNames[i])) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

void EventLog::open_file(const std::string& path) {
  OpenFile file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct stat facts = {};
  const int failure = errno;
  if (!file.is_open() || ::fstat(file.fd(), &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_uid != ::geteuid()) {
    write(LogLevel::kWarning, "log_file_not_written",
          {{"path", path}, {"reason", file.is_open() ? "it is no file of ours" : errno_text(failure)}});
    return;
  }
  const std::lock_guard lock(mutex_);
  file_ = std::move(file);
}

void EventLog::write(LogLevel level, std::string_view event, const Json& fields) {
  if (level < least_) return;
  Json line = fields.is_object() ? fields : Json::object();
  line["time"] = utc_text(wall_clock_ms());
  line["level"] = kLevelNames[static_cast<size_t>(level)];
  line["event"] = event;
  line["pid"] = ::getpid();
  const std::string text = compact_text(line) + "\n";
  const std::lock_guard lock(mutex_);
  // A log that cannot be written (a full disk) must not stop the service.
  [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  if (file_.is_open()) written = ::write(file_.fd(), text.data(), text.size());
}

void EventLog::write(LogLevel level, std::string_view event) { write(level, event, Json::object()); }

std::string service_log_path() {
  const char* folder = std::getenv("TMPDIR");
  return std::string(folder != nullptr && folder[0] == '/' ? folder : "/tmp") + "/trl_remote_fsdp_provider.log";
}

}  // namespace distsetup
