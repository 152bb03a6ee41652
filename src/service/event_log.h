// The service's own log: a JSON object a line, to standard error and to trl_remote_fsdp_provider.log in the system's temporary folder.
//   {"time": "2026-11-24T13:24:45.123Z", "level": "info", "event": "job_started", "pid": 17, "job_uuid": "a", …}
#pragma once
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/json_fwd.h"

namespace distsetup {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
std::optional<LogLevel> log_level_from(std::string_view name);  // as Python's logging names them, in any case

class EventLog {
 public:
  explicit EventLog(LogLevel least) : least_(least) {}
  // Appends there too. A warning in the log when it cannot be: a symbolic link, somebody else's file.
  void open_file(const std::string& path);
  void write(LogLevel level, std::string_view event, const Json& fields);
  void write(LogLevel level, std::string_view event);

 private:
  LogLevel least_;
  std::mutex mutex_;
  OpenFile file_;
};

std::string service_log_path();  // below TMPDIR, else /tmp

}  // namespace distsetup
