#include "codegen/shell/wrappers.h"

#include <algorithm>
#include <array>

namespace distsetup::foreign {

bool starts_rest_of_line(std::string_view word) {
  static constexpr std::array<std::string_view, 22> kWrappers = {
      "exec",   "time",   "nohup", "env",    "numactl", "nice", "stdbuf", "timeout", "apptainer", "singularity", "shifter",
      "podman", "docker", "uv",    "poetry", "pixi",    "bash", "sh",     "eval",    "conda",     "mamba",       "micromamba"};
  return std::find(kWrappers.begin(), kWrappers.end(), word.substr(word.rfind('/') + 1)) != kWrappers.end();
}

}  // namespace distsetup::foreign
