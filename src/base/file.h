// Reading a file whole, and writing one so that nothing is lost: a temporary name in the same directory, fsync, rename.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

namespace distsetup {

enum class Overwrite { kRefuse, kForce };
enum class Written { kCreated, kUnchanged, kReplaced };

// errno's text as our messages write it: "no such file or directory".
std::string errno_text(int number);

Result<std::string> read_file(const std::string& path);

// Folders of a file's path that are not there, the innermost first.
std::vector<std::string> missing_folders(const std::string& file_path);

// Creates missing parent directories, and takes them away again when it fails. An existing file with the same bytes is left alone
// (kUnchanged); a different one is replaced only with kForce, else kFileExists. Errors name the path and errno's text. A symbolic link
// is followed, never replaced; a device or pipe (/dev/stdout) is written to as it is.
Result<Written> write_file_atomic(const std::string& path, std::string_view bytes, Overwrite overwrite, bool executable = false);

}  // namespace distsetup
