// Files to write, as values.
#pragma once
#include <string>
#include <vector>

namespace distsetup {

// One file. `path` is relative to the folder the user named (or a bare name when a single file was asked for).
struct Artifact {
  std::string path;
  std::string text;
  bool executable = false;
  bool operator==(const Artifact&) const = default;
};
using Artifacts = std::vector<Artifact>;

}  // namespace distsetup
