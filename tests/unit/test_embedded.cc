// The embedded copies of presets/ and templates/ are the files, byte for byte, sorted, without a gap.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/embedded.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST_CASE("embedded files equal the files of presets and templates") {
  const char* root = std::getenv("DISTSETUP_SOURCE");
  REQUIRE(root != nullptr);
  std::vector<std::string> paths;
  for (const char* folder : {"presets", "templates"}) {
    if (!fs::exists(fs::path(root) / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(root) / folder)) {
      if (entry.is_regular_file()) paths.push_back(fs::relative(entry.path(), root).string());
    }
  }
  std::sort(paths.begin(), paths.end());
  const auto files = embedded_files();
  REQUIRE(files.size() == paths.size());
  for (size_t i = 0; i < paths.size(); ++i) {
    CHECK(files[i].path == paths[i]);
    CHECK(files[i].text == bytes_of(fs::path(root) / paths[i]));
  }
}

}  // namespace
}  // namespace distsetup
