#include "runtime/device/file_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/quantity.h"

namespace distsetup {
namespace {

constexpr int64_t kPage = 4096;

[[noreturn]] void fail(const std::string& folder, const std::string& why) {
  throw OffloadFolderError(
      fmt::format("the optimizer is to lie on a disk, in {}: {}; --offload-folder names another folder", folder, why));
}

// Without a name where the file system can do that, else its name is taken away at once.
int open_nameless(const std::string& folder) {
  const int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return file;
  std::string path = folder + "/distsetup-offload-XXXXXX";
  const int named = mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) unlink(path.c_str());
  return named;
}

}  // namespace

FileMemory::FileMemory(const std::string& folder, int64_t num_bytes) {
  file_ = open_nameless(folder);
  if (file_ < 0) fail(folder, std::strerror(errno));
  struct statfs system {};
  if (fstatfs(file_, &system) != 0 || system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC) {
    close(file_);
    fail(folder, "that is memory (tmpfs), not a disk");
  }
  num_bytes_ = num_bytes;
  if (num_bytes == 0) return;
  // Room now: a disk that is full later would end the process with SIGBUS.
  if (const int error = posix_fallocate(file_, 0, num_bytes); error != 0) {
    close(file_);
    fail(folder, fmt::format("no room for {} ({} are free): {}", format_bytes(num_bytes),
                             format_bytes(static_cast<int64_t>(system.f_bavail) * system.f_bsize), std::strerror(error)));
  }
  void* const mapped = mmap(nullptr, static_cast<size_t>(num_bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    close(file_);
    fail(folder, std::strerror(error));
  }
  data_ = mapped;
}

FileMemory::~FileMemory() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(num_bytes_));
  close(file_);
}

void FileMemory::will_need(int64_t offset, int64_t num_bytes) const {
  const int64_t from = offset / kPage * kPage, to = std::min(offset + num_bytes, num_bytes_);
  if (from < to) madvise(static_cast<char*>(data_) + from, static_cast<size_t>(to - from), MADV_WILLNEED);
}

void FileMemory::is_done(int64_t offset, int64_t num_bytes) const {
  const int64_t to = std::min(offset + num_bytes, num_bytes_);
  if (offset < to) sync_file_range(file_, offset, to - offset, SYNC_FILE_RANGE_WRITE);
}

std::string usual_offload_folder() {
  const char* named = std::getenv("TMPDIR");
  return named != nullptr && *named != '\0' ? named : "/tmp";
}

}  // namespace distsetup
