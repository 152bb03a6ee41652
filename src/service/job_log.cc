#include "service/job_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include "base/json.h"
#include "service/job_record.h"

namespace distsetup {
namespace {

constexpr size_t kLongestLine = 8192;

// "[rank 3] text" as both parts; -1: no rank.
int64_t rank_of_line(std::string_view& text) {
  constexpr std::string_view kPrefix = "[rank ";
  if (!text.starts_with(kPrefix)) return -1;
  int64_t rank = -1;
  const auto [end, failure] = std::from_chars(text.data() + kPrefix.size(), text.data() + text.size(), rank);
  if (failure != std::errc() || end == text.data() + text.size() || *end != ']') return -1;
  text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  if (text.starts_with(" ")) text.remove_prefix(1);
  return rank;
}

Json line_json(std::string_view line) {
  const size_t first = line.find('\t'), second = first == std::string_view::npos ? first : line.find('\t', first + 1);
  if (second == std::string_view::npos) return {{"timestamp", ""}, {"stream", "out"}, {"rank", nullptr}, {"message", line}};
  std::string_view text = line.substr(second + 1);
  const int64_t rank = rank_of_line(text);
  return {{"timestamp", line.substr(0, first)},
          {"stream", line.substr(first + 1, second - first - 1)},
          {"rank", rank < 0 ? Json() : Json(rank)},
          {"message", text}};
}

}  // namespace

JobLog::JobLog(const std::string& path, int64_t most_bytes) : most_bytes_(most_bytes) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

JobLog::~JobLog() {
  if (fd_ >= 0) ::close(fd_);
}

void JobLog::add(std::string_view stream, std::string_view text) {
  struct stat facts = {};
  if (fd_ < 0 || ::fstat(fd_, &facts) != 0 || facts.st_size > most_bytes_) return;
  std::string line = utc_text(wall_clock_ms()) + "\t" + std::string(stream) + "\t";
  for (const char c : text.substr(0, kLongestLine)) line += c == '\n' || c == '\r' || c == '\0' ? ' ' : c;
  line += '\n';
  [[maybe_unused]] const ssize_t written = ::write(fd_, line.data(), line.size());
}

LogLines read_job_log(const std::string& path, int64_t after, int64_t limit) {
  LogLines out;
  out.lines = Json::array();
  std::ifstream file(path, std::ios::binary);
  std::vector<std::string> kept;
  std::string line;
  const int64_t first = std::max<int64_t>(after, 0);
  while (std::getline(file, line)) {
    if (file.eof()) break;  // not whole yet
    const int64_t number = out.num_lines++;
    if (after < 0) {
      if (static_cast<int64_t>(kept.size()) == limit && limit > 0) kept.erase(kept.begin());
      kept.push_back(line);
    } else if (number >= first && static_cast<int64_t>(kept.size()) < limit) {
      kept.push_back(line);
    }
  }
  for (const std::string& one : kept) out.lines.push_back(line_json(one));
  out.next = after < 0 ? out.num_lines : std::min(out.num_lines, first + static_cast<int64_t>(kept.size()));
  if (after > out.num_lines) out.next = after;
  return out;
}

}  // namespace distsetup
