// Writing files so that nothing is lost: a temporary name in the same directory, fsync, rename.
#pragma once
#include <string>
#include <string_view>

#include "base/diagnostic.h"

namespace distsetup {

enum class Overwrite { kRefuse, kForce };
enum class Written { kCreated, kUnchanged, kReplaced };

// Creates missing parent directories. An existing file with the same bytes is left alone (kUnchanged); a different one is replaced
// only with kForce, else kFileExists. Errors name the path and errno's text.
Result<Written> write_file_atomic(const std::string& path, std::string_view bytes, Overwrite overwrite, bool executable = false);

}  // namespace distsetup
