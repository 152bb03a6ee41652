#include "runtime/device/plugin.h"
#include "base/own_program.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/own_program.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> candidates() {
  if (const char* named = std::getenv("DISTSETUP_CUDA_PLUGIN"); named != nullptr && *named != '\0') return {named};
  const fs::path program = own_program().parent_path();
  return {(program.parent_path() / "lib" / "libdistsetup_cuda.so").string(), (program / "libdistsetup_cuda.so").string()};
}

}  // namespace

std::unique_ptr<Device> load_cuda_device(int index) {
  std::string path;
  for (const std::string& candidate : candidates()) {
    if (path.empty() && fs::exists(candidate)) path = candidate;
  }
  if (path.empty()) {
    throw DeviceError(fmt::format("this trainer has no CUDA plugin (looked for {})", fmt::join(candidates(), ", ")),
                      "build it on a machine with nvcc (scripts/build), or plan with --gpu cpu");
  }
  // Lazy: functions of libtorch that training never calls need no library.
  void* handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    throw DeviceError(fmt::format("the CUDA plugin {} cannot be loaded: {}", path, why != nullptr ? why : "no reason given"),
                      "fetch the NVIDIA libraries that torch loads (scripts/test --gpu does), or plan with --gpu cpu");
  }
  const auto entry = reinterpret_cast<const DevicePlugin* (*)()>(dlsym(handle, kPluginSymbol));
  const DevicePlugin* plugin = entry != nullptr ? entry() : nullptr;
  if (plugin == nullptr || std::strcmp(plugin->version, kPluginVersion) != 0) {
    throw DeviceError(
        fmt::format("{} is plugin version '{}', expected '{}'", path, plugin != nullptr ? plugin->version : "none", kPluginVersion),
        "build trainer and plugin together: scripts/build");
  }
  try {
    return plugin->make_device(index);
  } catch (const std::exception& e) {
    const std::string what = e.what();
    throw DeviceError(what.substr(0, what.find('\n')), "check nvidia-smi, or plan with --gpu cpu");
  }
}

}  // namespace distsetup
