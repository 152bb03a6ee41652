#include "runtime/run_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "runtime/monitor/environment.h"

namespace distsetup {
namespace {

// 0, or errno. A lock of the open file, not of the process: closing another one of this path leaves it.
int try_lock(int fd) {
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return ::fcntl(fd, F_OFD_SETLK, &whole) == 0 ? 0 : errno;
}

bool is_held(int failure) { return failure == EAGAIN || failure == EACCES; }

std::string text_of(int fd) {
  std::array<char, 300> text = {};
  const ssize_t size = ::pread(fd, text.data(), text.size() - 1, 0);
  std::string out(text.data(), size > 0 ? static_cast<size_t>(size) : 0);
  return out.substr(0, out.find('\n'));
}

}  // namespace

RunLock::~RunLock() {
  if (fd_ >= 0) ::close(fd_);
}

Diagnostics RunLock::take(const std::string& directory, double patience_s) {
  const std::string path = directory + "/.lock", host = host_name();
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) return {error(code::kUnwritableFile, {path}, fmt::format("cannot open '{}', {}", path, errno_text(errno)))};
  const double begin_s = now_s();
  int failure = try_lock(fd_);
  while (is_held(failure) && !text_of(fd_).ends_with(" of " + host) && now_s() - begin_s < patience_s) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    failure = try_lock(fd_);
  }
  if (is_held(failure)) {
    const std::string holder = text_of(fd_);
    return {error(code::kUnwritableFile, {directory},
                  fmt::format("another run writes its checkpoints into '{}': {}", directory,
                              holder.empty() ? "its process is not known" : holder),
                  "wait for its end or stop it, or name another --output")};
  }
  if (failure != 0)
    return {
        warning(code::kUnwritableFile, {path},
                fmt::format("'{}' cannot be locked ({}): a second run in this directory is not noticed", path, errno_text(failure)))};
  const std::string text = fmt::format("process {} of {}\n", ::getpid(), host);
  const bool is_written = ::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  if (!is_written) return {error(code::kUnwritableFile, {path}, fmt::format("cannot write '{}', {}", path, errno_text(errno)))};
  return {};
}

}  // namespace distsetup
