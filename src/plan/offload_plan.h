// What lies elsewhere than on the devices, as a plan says it.
#pragma once
#include <cstdint>

namespace distsetup {

enum class OffloadPlace { kNone, kHost, kNvme };
struct OffloadPlan {
  OffloadPlace optimizer = OffloadPlace::kNone, parameters = OffloadPlace::kNone, activations = OffloadPlace::kNone;
  double optimizer_ratio = 1;  // of the optimizer's sub-groups, how many move (DeepSpeed's twin-flow); the others stay on the device
  bool pin_memory = true;      // page-locked, so that a device copies by itself; else the driver copies through a buffer of its own
  bool operator==(const OffloadPlan&) const = default;
};

// Of the bundled trainer, where something is offloaded: what a rank has on its host, and how fast that is.
struct HostPlan {
  int64_t host_bytes = 0;         // run buffers and the host's arena
  double copy_bytes_per_s = 0;    // between a GPU and its host, one direction; 0 on CPUs
  double update_bytes_per_s = 0;  // of the host's passes over its buffers, for each rank; 0 on CPUs
  int64_t disk_bytes = 0;         // of a local disk: what the optimizer keeps, where it lies there
  double disk_bytes_per_s = 0;    // reading and writing together, for each rank; 0: nothing lies there
  bool operator==(const HostPlan&) const = default;
};

}  // namespace distsetup
