#include "runtime/engine/host_shards.h"

namespace distsetup {

std::span<float> HostShards::of(const std::string& name) {
  if (device_.host_memory()) return {static_cast<float*>(memory_.run(name)), static_cast<size_t>(numel_)};
  Mirror& mirror = mirrors_[name];
  if (!mirror.valid) {
    mirror.values.resize(static_cast<size_t>(numel_));
    device_.copy_to_host(mirror.values.data(), memory_.run(name), numel_ * 4);
    mirror.valid = true;
  }
  return mirror.values;
}

void HostShards::upload() {
  for (const auto& [name, mirror] : mirrors_)
    if (mirror.valid) device_.copy_to_device(memory_.run(name), mirror.values.data(), numel_ * 4);
}

void HostShards::forget() {
  for (auto& [name, mirror] : mirrors_) mirror.valid = false;
}

}  // namespace distsetup
