// Writing a file so that a reader sees the old bytes or the new ones, never half: write to a temporary name in the same directory,
// fsync, rename, fsync the directory. Leaves out: locking (two writers: the last rename wins) and keeping the owner.
#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/diagnostic_codes.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLinks = 40;  // as Linux counts before ELOOP
constexpr int kMaxTemporaryNames = 100;

Diagnostic unwritable(const std::string& path, std::string_view why, std::string help = "") {
  return error(code::kUnwritableFile, {path}, fmt::format("cannot write '{}', {}", path, why), std::move(help));
}

// Where the bytes go once symbolic links are followed; the file itself need not exist. 0 or errno.
int follow_links(fs::path& path) {
  for (int i = 0; i < kMaxLinks; ++i) {
    std::error_code failure;
    if (!fs::is_symlink(fs::symlink_status(path, failure))) return 0;
    const fs::path target = fs::read_symlink(path, failure);
    if (failure) return failure.value();
    path = path.parent_path() / target;  // operator/ keeps an absolute target
  }
  return ELOOP;
}

int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t num_written = ::write(fd, bytes.data(), bytes.size());
    if (num_written < 0 && errno == EINTR) continue;
    if (num_written < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(num_written));
  }
  return 0;
}

// Some file systems cannot sync a directory and say EINVAL; that is not a failed write.
int sync_fd(int fd) {
  while (::fsync(fd) != 0) {
    if (errno == EINTR) continue;
    return errno == EINVAL || errno == ENOTSUP ? 0 : errno;
  }
  return 0;
}

int sync_directory(const fs::path& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno == EACCES ? 0 : errno;  // writable but not listable: nothing to sync through
  const int number = sync_fd(fd);
  ::close(fd);
  return number;
}

// /dev/stdout and its like are links to whatever the shell opened, a pipe or a file that others write to: never to be renamed over.
bool is_open_stream(const std::string& path) {
  const auto starts = [&path](std::string_view prefix) { return path.compare(0, prefix.size(), prefix) == 0; };
  return starts("/dev/std") || starts("/dev/fd/") || starts("/proc/");
}

// A device, pipe, socket or open stream: bytes are added, nothing is replaced.
int write_in_place(const fs::path& path, std::string_view bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) return errno;
  int number = write_all(fd, bytes);
  if (::close(fd) != 0 && number == 0) number = errno;
  return number;
}

int write_temporary(int fd, std::string_view bytes, mode_t keep_mode) {
  int number = write_all(fd, bytes);
  if (number == 0 && keep_mode != 0 && ::fchmod(fd, keep_mode) != 0) number = errno;
  if (number == 0) number = sync_fd(fd);
  if (::close(fd) != 0 && number == 0) number = errno;
  return number;
}

int rename_over(const fs::path& from, const fs::path& to, Overwrite overwrite) {
  if (overwrite == Overwrite::kRefuse) {  // refuse a file that appeared since we looked, where the file system can
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) return errno;
  }
  return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

// `keep_mode`: permission bits of the file that is replaced; 0 = new file, the umask decides.
int replace_file(const fs::path& target, std::string_view bytes, Overwrite overwrite, bool executable, mode_t keep_mode) {
  const fs::path directory = target.has_parent_path() ? target.parent_path() : fs::path(".");
  fs::path temporary;
  int fd = -1;
  for (int i = 0; i < kMaxTemporaryNames && fd < 0; ++i) {
    temporary = directory / fmt::format(".distsetup-{}-{}.tmp", ::getpid(), i);
    fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, executable ? 0777 : 0666);
    if (fd < 0 && errno != EEXIST) return errno;
  }
  if (fd < 0) return EBUSY;
  int number = write_temporary(fd, bytes, keep_mode);
  if (number == 0) number = rename_over(temporary, target, overwrite);
  if (number != 0) {
    ::unlink(temporary.c_str());
    return number;
  }
  return sync_directory(directory);
}

}  // namespace

std::string errno_text(int number) {
  if (number == kEndOfFile) return "the file ends early";
  std::string text = std::generic_category().message(number);
  const bool is_word = text.size() > 1 && std::islower(static_cast<unsigned char>(text[1])) != 0;  // keep "RPC …" as it is
  if (is_word) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

std::vector<std::string> missing_folders(const std::string& file_path) {
  std::vector<std::string> missing;
  std::error_code ignored;
  for (fs::path folder = fs::path(file_path).parent_path(); !folder.empty() && !fs::exists(folder, ignored);
       folder = folder.parent_path())
    missing.push_back(folder.string());
  return missing;
}

Diagnostic lfs_pointer(const std::string& path) {
  return error(code::kUnreadableFile, {path}, fmt::format("'{}' is a pointer of Git LFS, and its content is elsewhere", path),
               "git lfs pull fetches it");
}

Result<std::string> read_file(const std::string& path) {
  constexpr size_t kMostBytes = 64'000'000;  // a plan, a tokenizer; what nobody means to give, such as /dev/zero, has no end
  const auto failed = [&path](int number) {
    return error(code::kUnreadableFile, {path}, fmt::format("cannot read '{}', {}", path, errno_text(number)));
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failed(errno);
  std::string text;
  char chunk[65536];
  while (true) {
    const ssize_t num_read = ::read(fd, chunk, sizeof(chunk));
    if (num_read < 0 && errno == EINTR) continue;
    if (text.size() > kMostBytes) {
      ::close(fd);
      return error(code::kUnreadableFile, {path},
                   fmt::format("cannot read '{}', it is larger than {} MB", path, kMostBytes / 1'000'000));
    }
    if (num_read <= 0) {
      const int number = errno;
      ::close(fd);
      if (num_read < 0) return failed(number);
      if (text.starts_with(kLfsPointer)) return lfs_pointer(path);
      return text;
    }
    text.append(chunk, static_cast<size_t>(num_read));
  }
}

Result<std::vector<std::string>> files_below(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code failure;
  fs::recursive_directory_iterator it(folder, failure), end;
  for (; !failure && it != end; it.increment(failure)) {
    if (it->path().filename().string().starts_with('.')) {
      it.disable_recursion_pending();
      continue;
    }
    std::error_code ignored;
    if (it->is_regular_file(ignored)) files.push_back(it->path().string());
  }
  if (failure) return error(code::kData, {folder, 0, 0}, fmt::format("cannot list '{}': {}", folder, failure.message()));
  return files;
}

int OpenFile::close() {
  const int fd = std::exchange(fd_, -1);
  return fd < 0 || ::close(fd) == 0 ? 0 : errno;
}

int read_at(int fd, void* data, int64_t num_bytes, int64_t offset) {
  char* p = static_cast<char*>(data);
  while (num_bytes > 0) {
    const ssize_t n = ::pread(fd, p, static_cast<size_t>(num_bytes), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n == 0 ? kEndOfFile : errno;
    p += n;
    offset += n;
    num_bytes -= n;
  }
  return 0;
}

Result<Written> write_file_atomic(const std::string& path, std::string_view bytes, Overwrite overwrite, bool executable) {
  struct stat info = {};
  const bool is_there = ::stat(path.c_str(), &info) == 0;
  if (is_there && !S_ISDIR(info.st_mode) && (!S_ISREG(info.st_mode) || is_open_stream(path))) {
    if (const int number = write_in_place(path, bytes); number != 0) return unwritable(path, errno_text(number));
    return Written::kReplaced;
  }
  fs::path target = path;
  if (const int number = follow_links(target); number != 0) return unwritable(path, errno_text(number));
  const bool exists = ::stat(target.c_str(), &info) == 0;
  if (!exists && errno != ENOENT) return unwritable(path, errno_text(errno));
  if (exists && S_ISDIR(info.st_mode)) return unwritable(path, "it is a directory, expected the path of a file");
  if (target.filename().empty()) return unwritable(path, "expected the path of a file");
  mode_t keep_mode = 0;
  std::vector<std::string> made;
  const auto remove_made = [&made] {  // what could not be written leaves no empty folder
    std::error_code ignored;
    for (const std::string& folder : made) fs::remove(folder, ignored);
  };
  if (exists) {
    keep_mode = (info.st_mode & 0777) | (executable ? (info.st_mode & 0444) >> 2 : 0);  // who may read may run
    const Result<std::string> present = read_file(target.string());
    if (present.ok() && *present == bytes) {
      const bool mode_is_right = keep_mode == (info.st_mode & 0777);
      if (!mode_is_right && ::chmod(target.c_str(), keep_mode) != 0) return unwritable(path, errno_text(errno));
      return Written::kUnchanged;
    }
    if (overwrite == Overwrite::kRefuse) {
      return error(code::kFileExists, {path}, fmt::format("'{}' exists with different content, expected a new file", path),
                   "add --force to replace it, or name another path");
    }
  } else if (target.has_parent_path()) {
    std::error_code failure;
    made = missing_folders(target.string());
    fs::create_directories(target.parent_path(), failure);
    if (failure) {
      remove_made();
      return unwritable(
          path, fmt::format("its directory '{}' cannot be made: {}", target.parent_path().string(), errno_text(failure.value())));
    }
  }
  const int number = replace_file(target, bytes, overwrite, executable, keep_mode);
  if (number != 0) remove_made();
  if (number == EEXIST) {
    return error(code::kFileExists, {path}, fmt::format("'{}' was made by someone else meanwhile, expected a new file", path),
                 "add --force to replace it, or name another path");
  }
  if (number != 0) return unwritable(path, errno_text(number));
  return exists ? Written::kReplaced : Written::kCreated;
}

}  // namespace distsetup
