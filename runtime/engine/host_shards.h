// A rank's flat shards (master, gradient, moments) as the host sees them: the memory itself where the device's is the host's, else
// copies.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/engine/bind.h"

namespace distsetup {

class HostShards {
 public:
  HostShards(const RankMemory& memory, Device& device, int64_t numel) : memory_(memory), device_(device), numel_(numel) {}
  std::span<float> of(const std::string& name);  // valid until forget()
  void upload();                                 // what has been written into copies
  void forget();                                 // a step changes what is on the device

 private:
  struct Mirror {
    std::vector<float> values;
    bool valid = false;
  };
  const RankMemory& memory_;
  Device& device_;
  const int64_t numel_;
  std::map<std::string, Mirror> mirrors_;
};

}  // namespace distsetup
