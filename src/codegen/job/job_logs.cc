#include "codegen/job/job_logs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "codegen/shell/quote.h"

namespace distsetup {
namespace {

std::string log_folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, std::max<size_t>(slash, 1));
}

// "logs/%j.out" -> "logs/%j.err"
std::string error_beside(const std::string& path) {
  const bool is_out = path.size() > 4 && path.compare(path.size() - 4, 4, ".out") == 0;
  return (is_out ? path.substr(0, path.size() - 4) : path) + ".err";
}

Diagnostic refuse_log(const char* code, std::string message, std::string help = "") {
  return error(code, {"command line", 0, 0}, std::move(message), std::move(help));
}

}  // namespace

Result<JobLogs> job_logs(const JobValues& settings) {
  const std::string output = settings.text("output_log"), error_log = settings.text("error_log");
  const std::string job_name = settings.text("job_name");
  const std::string folder = log_folder(output);
  const std::string shown = comment_text(output), shown_error = comment_text(error_log);
  if (output.empty() || output.back() == '/')
    return refuse_log(code::kOutOfRange, fmt::format("log '{}' names no file, expected a path like logs/%x-%j.out", shown));
  if (folder.find('%') != std::string::npos) {
    return refuse_log(code::kOutOfRange,
                      fmt::format("log '{}' has a pattern in its folder, which nobody could make before the job", shown),
                      "use % patterns in the file name only");
  }
  if ((output + error_log).find("%x") != std::string::npos && job_name.find('/') != std::string::npos) {
    return refuse_log(
        code::kOutOfRange,
        fmt::format("the job's name '{}' becomes part of the log's path (%x) and has a '/' in it", comment_text(job_name)),
        "take %x out of --output-log, or '/' out of --job-name");
  }
  if (folder.empty() && error_log.find('/') != std::string::npos) {
    return refuse_log(code::kConflict, fmt::format("the error log '{}' has a folder, the log '{}' has none", shown_error, shown),
                      "give both the same folder");
  }
  const std::string error_path = error_log.empty() ? error_beside(output) : error_log;
  if (folder.empty()) return JobLogs{output, error_path, "", "", ""};
  if (log_folder(error_path) != folder) {
    return refuse_log(code::kConflict, fmt::format("the logs '{}' and '{}' are in different folders", shown, shown_error),
                      "give both the same folder");
  }
  return JobLogs{"slurm-%j.out", "slurm-%j.err", folder, output, error_path};
}

}  // namespace distsetup
