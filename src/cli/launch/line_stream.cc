#include "cli/launch/line_stream.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "cli/line/terminal.h"

namespace distsetup {
namespace {

constexpr size_t kLongestLine = 1 << 16;  // longer ones are cut into several

bool write_lines(LineStream& stream, bool at_end) {
  std::string out;
  size_t begin = 0;
  while (begin < stream.pending.size()) {
    size_t end = stream.pending.find('\n', begin);
    if (end == std::string::npos) {
      if (!at_end && stream.pending.size() - begin < kLongestLine) break;
      end = std::min(stream.pending.size(), begin + kLongestLine);
    }
    const std::string_view line = std::string_view(stream.pending).substr(begin, end - begin);
    if (!line.empty()) stream.last_line = line;
    out += stream.prefix;
    out += line;
    out += '\n';
    begin = end < stream.pending.size() && stream.pending[end] == '\n' ? end + 1 : end;
  }
  stream.pending.erase(0, begin);
  return write_all(stream.to, out) == 0;
}

}  // namespace

bool drain(LineStream& stream) {
  bool is_open = true;
  std::array<char, 65536> chunk;
  while (stream.fd >= 0) {
    const ssize_t n = ::read(stream.fd, chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) {
      ::close(stream.fd);
      stream.fd = -1;
      is_open = write_lines(stream, true) && is_open;
      break;
    }
    stream.pending.append(chunk.data(), static_cast<size_t>(n));
    is_open = write_lines(stream, false) && is_open;
  }
  return is_open;
}

void finish(LineStream& stream) {
  drain(stream);
  write_lines(stream, true);
  if (stream.fd >= 0) ::close(stream.fd);
  stream.fd = -1;
}

}  // namespace distsetup
