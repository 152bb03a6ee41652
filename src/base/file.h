// Reading a file whole, and writing one so that nothing is lost: a temporary name in the same directory, fsync, rename.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/diagnostic.h"

namespace distsetup {

enum class Overwrite { kRefuse, kForce };
enum class Written { kCreated, kUnchanged, kReplaced };

// errno's text as our messages write it: "no such file or directory"; of kEndOfFile that the file ends early.
std::string errno_text(int number);

// A file that Git LFS left in place of a large one, which nobody fetched, is an error that says so.
Result<std::string> read_file(const std::string& path);

// What such a file begins with.
inline constexpr std::string_view kLfsPointer = "version https://git-lfs";
Diagnostic lfs_pointer(const std::string& path);

// All files below a folder; hidden entries and links to folders are left out. An error names the folder.
Result<std::vector<std::string>> files_below(const std::string& folder);

// Owns a file descriptor; below 0: open() failed.
class OpenFile {
 public:
  explicit OpenFile(int fd = -1) : fd_(fd) {}
  OpenFile(OpenFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OpenFile& operator=(OpenFile&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~OpenFile() { close(); }
  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int close();  // 0 or errno

 private:
  int fd_ = -1;
};

// Reads exactly so many bytes from an offset on. 0 or errno; kEndOfFile: the file has fewer.
inline constexpr int kEndOfFile = -1;
int read_at(int fd, void* data, int64_t num_bytes, int64_t offset);

// Folders of a file's path that are not there, the innermost first.
std::vector<std::string> missing_folders(const std::string& file_path);

// Creates missing parent directories, and takes them away again when it fails. An existing file with the same bytes is left alone
// (kUnchanged); a different one is replaced only with kForce, else kFileExists. Errors name the path and errno's text. A symbolic link
// is followed, never replaced; a device or pipe (/dev/stdout) is written to as it is.
Result<Written> write_file_atomic(const std::string& path, std::string_view bytes, Overwrite overwrite, bool executable = false);

}  // namespace distsetup
