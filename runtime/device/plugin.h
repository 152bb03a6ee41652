// The CUDA device comes with a library of its own, libdistsetup_cuda.so: the trainer links no CUDA and starts on machines without it.
// Loaded only for a plan whose accelerator is a CUDA GPU.
#pragma once
#include <memory>
#include <stdexcept>
#include <string>

#include "runtime/device/device.h"

namespace distsetup {

// What the library exports under kPluginSymbol. Both sides are built from one source tree; the version tells when they were not.
struct DevicePlugin {
  const char* version = nullptr;                                // DISTSETUP_VERSION and the date of this layout
  std::unique_ptr<Device> (*make_device)(int index) = nullptr;  // throws std::runtime_error: no driver, no such GPU
};
inline constexpr char kPluginSymbol[] = "distsetup_cuda_plugin";  // extern "C" const DevicePlugin* distsetup_cuda_plugin()
inline constexpr char kPluginVersion[] = DISTSETUP_VERSION " layout 1";

class DeviceError : public std::runtime_error {
 public:
  DeviceError(const std::string& what, std::string help) : std::runtime_error(what), help_(std::move(help)) {}
  const std::string& help() const { return help_; }

 private:
  std::string help_;
};

// GPU `index` of this host. The library is environment variable DISTSETUP_CUDA_PLUGIN, else ../lib/libdistsetup_cuda.so or
// libdistsetup_cuda.so beside the program. To be called before libtorch is asked for anything: it looks for CUDA once.
// Throws DeviceError: no plugin, a library it needs is missing (named), no driver, no GPU.
std::unique_ptr<Device> load_cuda_device(int index);

}  // namespace distsetup
