#include "cli/launch/trainer_program.h"

#include <unistd.h>

#include <filesystem>

#include "base/own_program.h"

namespace distsetup {

namespace fs = std::filesystem;

std::string trainer_program(const std::string& given) {
  return given.empty() ? (own_program().parent_path() / "distsetup-train").string() : given;
}

bool is_program(const std::string& path) {
  std::error_code failure;
  return ::access(path.c_str(), X_OK) == 0 && !fs::is_directory(path, failure);
}

}  // namespace distsetup
