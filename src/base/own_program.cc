#include "base/own_program.h"

namespace distsetup {

std::filesystem::path own_program() {
  std::error_code failure;
  return std::filesystem::read_symlink("/proc/self/exe", failure);
}

}  // namespace distsetup
