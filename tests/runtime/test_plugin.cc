// Loading the CUDA plugin where it cannot work: one error each, with the name of what is missing.
#include "runtime/device/plugin.h"

#include <cstdlib>
#include <fstream>

#include "support/temporary_directory.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

struct PluginPath {
  explicit PluginPath(const std::string& path) { setenv("DISTSETUP_CUDA_PLUGIN", path.c_str(), 1); }
  ~PluginPath() { unsetenv("DISTSETUP_CUDA_PLUGIN"); }
};

std::string failure() {
  try {
    load_cuda_device(0);
  } catch (const DeviceError& e) {
    return std::string(e.what()) + " | " + e.help();
  }
  return "loaded";
}

TEST_CASE("a build without the CUDA plugin says where it looked", "[plugin]") {
  const PluginPath path("/nowhere/libdistsetup_cuda.so");
  CHECK(failure() ==
        "this trainer has no CUDA plugin (looked for /nowhere/libdistsetup_cuda.so) | build it on a machine with nvcc "
        "(scripts/build), or plan with --gpu cpu");
}

TEST_CASE("a plugin that does not load says why, in the loader's words", "[plugin]") {
  const TemporaryDirectory directory;
  const std::string file = directory.path() + "/libdistsetup_cuda.so";
  std::ofstream(file) << "no library";
  const PluginPath path(file);
  CHECK_THAT(failure(),
             Catch::Contains("the CUDA plugin " + file + " cannot be loaded: " + file) && Catch::Contains("NVIDIA libraries"));
}

TEST_CASE("a library that is no plugin, or one of another build, is refused", "[plugin]") {
  const PluginPath path(DISTSETUP_FAKE_NCCL);
  CHECK_THAT(failure(), Catch::Contains("is plugin version 'none', expected '" + std::string(kPluginVersion) + "'"));
}

}  // namespace
}  // namespace distsetup
