// Writing files: the cases in which something could be lost. Failures are provoked with what works for root too: a file where a
// directory should be, a file size limit, a full device.
#include "base/file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>

#include "base/diagnostic_codes.h"
#include "support/temporary_directory.h"

using namespace distsetup;
namespace fs = std::filesystem;

namespace {

size_t num_files_in(const std::string& directory) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

mode_t mode_of(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 ? info.st_mode & 0777 : 0;
}

// A limit on the size of files, so that writing fails half way.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t num_bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {num_bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_ = {};
  void (*handler_)(int) = nullptr;
};

}  // namespace

TEST_CASE("a new file is created with its missing parents, and nothing else is left", "[file]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("a/b/c.txt");
  const Result<Written> written = write_file_atomic(path, "hello\n", Overwrite::kRefuse);
  REQUIRE(written.ok());
  CHECK(*written == Written::kCreated);
  CHECK(bytes_of_file(path) == "hello\n");
  CHECK(num_files_in(directory.path("a/b")) == 1);
}

TEST_CASE("a path without a directory is written here", "[file]") {
  const TemporaryDirectory directory;
  const fs::path before = fs::current_path();
  fs::current_path(directory.path());
  const Result<Written> written = write_file_atomic("plain.txt", "x", Overwrite::kRefuse);
  fs::current_path(before);
  REQUIRE(written.ok());
  CHECK(bytes_of_file(directory.path("plain.txt")) == "x");
}

TEST_CASE("the same bytes are left alone, with either rule", "[file]") {
  const TemporaryDirectory directory;
  const std::string path = directory.write("f", "same");
  fs::last_write_time(path, fs::file_time_type(std::chrono::hours(1)));
  const auto before = fs::last_write_time(path);
  CHECK(*write_file_atomic(path, "same", Overwrite::kRefuse) == Written::kUnchanged);
  CHECK(*write_file_atomic(path, "same", Overwrite::kForce) == Written::kUnchanged);
  CHECK(fs::last_write_time(path) == before);
}

TEST_CASE("a different file is refused, and replaced when forced", "[file]") {
  const TemporaryDirectory directory;
  const std::string path = directory.write("f", "old");
  const Result<Written> refused = write_file_atomic(path, "new", Overwrite::kRefuse);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.diagnostics[0].code == code::kFileExists);
  CHECK(refused.diagnostics[0].message.find("'" + path + "'") != std::string::npos);
  CHECK(refused.diagnostics[0].help.find("--force") != std::string::npos);
  CHECK(bytes_of_file(path) == "old");
  CHECK(*write_file_atomic(path, "new", Overwrite::kForce) == Written::kReplaced);
  CHECK(bytes_of_file(path) == "new");
  CHECK(num_files_in(directory.path()) == 1);
}

TEST_CASE("empty and binary content are content", "[file]") {
  const TemporaryDirectory directory;
  const std::string bytes("\0\xff\r\n\0", 5);
  CHECK(*write_file_atomic(directory.path("binary"), bytes, Overwrite::kRefuse) == Written::kCreated);
  CHECK(bytes_of_file(directory.path("binary")) == bytes);
  CHECK(*write_file_atomic(directory.path("empty"), "", Overwrite::kRefuse) == Written::kCreated);
  CHECK(fs::file_size(directory.path("empty")) == 0);
}

TEST_CASE("modes: the umask decides for new files, old files keep theirs", "[file]") {
  const TemporaryDirectory directory;
  const mode_t mask = ::umask(027);
  const bool wrote = write_file_atomic(directory.path("text"), "x", Overwrite::kRefuse).ok() &&
                     write_file_atomic(directory.path("script"), "x", Overwrite::kRefuse, true).ok();
  ::umask(mask);
  REQUIRE(wrote);
  CHECK(mode_of(directory.path("text")) == 0640);
  CHECK(mode_of(directory.path("script")) == 0750);

  fs::permissions(directory.path("text"), fs::perms(0604));
  REQUIRE(write_file_atomic(directory.path("text"), "y", Overwrite::kForce).ok());
  CHECK(mode_of(directory.path("text")) == 0604);
  REQUIRE(*write_file_atomic(directory.path("text"), "y", Overwrite::kRefuse, true) == Written::kUnchanged);
  CHECK(mode_of(directory.path("text")) == 0705);  // who may read may run
}

TEST_CASE("a symbolic link is followed and stays a link", "[file]") {
  const TemporaryDirectory directory;
  fs::create_directory(directory.path("real"));
  directory.write("real/target", "old");
  fs::create_symlink("real/target", directory.path("link"));
  fs::create_symlink("link", directory.path("link_to_link"));
  REQUIRE(*write_file_atomic(directory.path("link_to_link"), "new", Overwrite::kForce) == Written::kReplaced);
  CHECK(fs::is_symlink(directory.path("link")));
  CHECK(fs::is_symlink(directory.path("link_to_link")));
  CHECK_FALSE(fs::is_symlink(directory.path("real/target")));
  CHECK(bytes_of_file(directory.path("real/target")) == "new");

  fs::create_symlink("real/later", directory.path("dangling"));
  REQUIRE(*write_file_atomic(directory.path("dangling"), "x", Overwrite::kRefuse) == Written::kCreated);
  CHECK(bytes_of_file(directory.path("real/later")) == "x");
  CHECK(fs::is_symlink(directory.path("dangling")));
}

TEST_CASE("links in a circle are an error", "[file]") {
  const TemporaryDirectory directory;
  fs::create_symlink("b", directory.path("a"));
  fs::create_symlink("a", directory.path("b"));
  const Result<Written> written = write_file_atomic(directory.path("a"), "x", Overwrite::kForce);
  REQUIRE_FALSE(written.ok());
  CHECK(written.diagnostics[0].message == "cannot write '" + directory.path("a") + "', too many levels of symbolic links");
}

TEST_CASE("a directory is not a file", "[file]") {
  const TemporaryDirectory directory;
  for (const std::string& path : {directory.path(), directory.path() + "/", directory.path("missing/"), std::string()}) {
    const Result<Written> written = write_file_atomic(path, "x", Overwrite::kForce);
    INFO("path '" << path << "'");
    REQUIRE_FALSE(written.ok());
    CHECK(written.diagnostics[0].code == code::kUnwritableFile);
    CHECK(written.diagnostics[0].message.find("expected the path of a file") != std::string::npos);
  }
  CHECK(num_files_in(directory.path()) == 0);
}

TEST_CASE("a parent that is a file is named with the reason", "[file]") {
  const TemporaryDirectory directory;
  directory.write("file", "x");
  const Result<Written> written = write_file_atomic(directory.path("file/inside"), "y", Overwrite::kForce);
  REQUIRE_FALSE(written.ok());
  CHECK(written.diagnostics[0].code == code::kUnwritableFile);
  CHECK(written.diagnostics[0].message == "cannot write '" + directory.path("file/inside") + "', not a directory");
  CHECK(bytes_of_file(directory.path("file")) == "x");
}

TEST_CASE("a write that fails half way leaves the old file and no temporary", "[file]") {
  const TemporaryDirectory directory;
  const std::string path = directory.write("f", "old");
  Result<Written> written;
  {
    const FileSizeLimit limit(1000);
    written = write_file_atomic(path, std::string(100'000, 'x'), Overwrite::kForce);
  }
  REQUIRE_FALSE(written.ok());
  CHECK(written.diagnostics[0].code == code::kUnwritableFile);
  CHECK(written.diagnostics[0].message == "cannot write '" + path + "', file too large");
  CHECK(written.diagnostics[0].location.file == path);
  CHECK(bytes_of_file(path) == "old");
  CHECK(num_files_in(directory.path()) == 1);
}

TEST_CASE("a write that fails leaves no folder that it made, and every one that was there", "[file]") {
  const TemporaryDirectory directory;
  const std::string bytes(4096, 'x');
  {
    const FileSizeLimit limit(1000);
    CHECK_FALSE(write_file_atomic(directory.path("made/for it/a"), bytes, Overwrite::kRefuse).ok());
  }
  CHECK(num_files_in(directory.path()) == 0);
  directory.write("was there/b", "b");
  CHECK_FALSE(write_file_atomic(directory.path("was there/b/c/d"), bytes, Overwrite::kRefuse).ok());
  CHECK(bytes_of_file(directory.path("was there/b")) == "b");
}

TEST_CASE("a device is written in place, a full one is an error", "[file]") {
  REQUIRE(write_file_atomic("/dev/null", "x", Overwrite::kRefuse).ok());
  CHECK(fs::is_character_file("/dev/null"));
  const Result<Written> full = write_file_atomic("/dev/full", "x", Overwrite::kForce);
  REQUIRE_FALSE(full.ok());
  CHECK(full.diagnostics[0].message == "cannot write '/dev/full', no space left on device");
}

TEST_CASE("an open stream is added to, pipe or file", "[file]") {
  int pipe_fds[2];
  REQUIRE(::pipe(pipe_fds) == 0);
  const std::string pipe_path = "/dev/fd/" + std::to_string(pipe_fds[1]);
  REQUIRE(write_file_atomic(pipe_path, "plan\n", Overwrite::kRefuse).ok());
  ::close(pipe_fds[1]);
  char read_back[16] = {};
  const ssize_t num_read = ::read(pipe_fds[0], read_back, sizeof(read_back));
  ::close(pipe_fds[0]);
  CHECK(std::string_view(read_back, num_read > 0 ? static_cast<size_t>(num_read) : 0) == "plan\n");

  const TemporaryDirectory directory;
  const std::string path = directory.write("log", "before\n");
  const int fd = ::open(path.c_str(), O_WRONLY);
  REQUIRE(write_file_atomic("/dev/fd/" + std::to_string(fd), "after\n", Overwrite::kRefuse).ok());
  ::close(fd);
  CHECK(bytes_of_file(path) == "before\nafter\n");
  CHECK(num_files_in(directory.path()) == 1);
}

TEST_CASE("a temporary name that is taken is not touched", "[file]") {
  const TemporaryDirectory directory;
  const std::string taken = directory.write(".distsetup-" + std::to_string(::getpid()) + "-0.tmp", "theirs");
  REQUIRE(write_file_atomic(directory.path("f"), "x", Overwrite::kRefuse).ok());
  CHECK(bytes_of_file(taken) == "theirs");
  CHECK(num_files_in(directory.path()) == 2);
}

TEST_CASE("read_file gives every byte, or says why not", "[file]") {
  const TemporaryDirectory directory;
  const std::string bytes = std::string(200'000, 'a') + std::string("\0b", 2);
  CHECK(*read_file(directory.write("f", bytes)) == bytes);
  CHECK(read_file(directory.write("empty", ""))->empty());
  const Result<std::string> missing = read_file(directory.path("missing"));
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.diagnostics[0].code == code::kUnreadableFile);
  CHECK(missing.diagnostics[0].location.file == directory.path("missing"));
  CHECK(missing.diagnostics[0].message == "cannot read '" + directory.path("missing") + "', no such file or directory");
  CHECK(read_file(directory.path()).diagnostics.at(0).message == "cannot read '" + directory.path() + "', is a directory");
}

TEST_CASE("a pointer of Git LFS is not read as the file", "[file]") {
  const TemporaryDirectory directory;
  const std::string path = directory.write("tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n");
  const Result<std::string> text = read_file(path);
  REQUIRE(!text.ok());
  CHECK(text.diagnostics.front().message == "'" + path + "' is a pointer of Git LFS, and its content is elsewhere");
  CHECK(text.diagnostics.front().help == "git lfs pull fetches it");
}

TEST_CASE("errno's text starts in lower case unless it is an abbreviation", "[file]") {
  CHECK(errno_text(ENOENT) == "no such file or directory");
  CHECK(errno_text(EDOTDOT) == "RFS specific error");
}
