// A job's log: a line each, "TIME<tab>STREAM<tab>TEXT", appended by its keeper (and by the service, when it has to say something).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace distsetup {

// Appends whole lines; what cannot be written (a full disk) is lost, and so is what goes beyond `most_bytes`.
class JobLog {
 public:
  explicit JobLog(const std::string& path, int64_t most_bytes = int64_t{64} << 20);
  ~JobLog();
  JobLog(const JobLog&) = delete;
  JobLog& operator=(const JobLog&) = delete;
  void add(std::string_view stream, std::string_view text);  // "out", "error", "service"

 private:
  int fd_ = -1;
  int64_t most_bytes_;
};

struct LogLines {
  Json lines;             // [{"timestamp", "stream", "rank", "message"}]
  int64_t next = 0;       // number of the first line that is not there
  int64_t num_lines = 0;  // of the whole log
};
// Lines `after` … `after` + `limit` - 1; below 0: the last `limit`.
LogLines read_job_log(const std::string& path, int64_t after, int64_t limit);

}  // namespace distsetup
