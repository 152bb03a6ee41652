// The CPU as a device: memory of the host, every call done at once.
#pragma once
#include <memory>

#include "runtime/device/device.h"

namespace distsetup {

std::unique_ptr<Device> make_cpu_device();

}  // namespace distsetup
