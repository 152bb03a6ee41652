// The memory of this machine, as /proc/meminfo has it at this moment.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace distsetup {

struct MachineMemory {
  int64_t total_bytes = 0;
  int64_t available_bytes = 0;  // that programs can get without swapping: MemAvailable
  int64_t used_bytes() const { return total_bytes - available_bytes; }
};
std::optional<MachineMemory> machine_memory();                             // none: not on Linux
std::optional<MachineMemory> parse_machine_memory(std::string_view text);  // none: one of the two is not there

}  // namespace distsetup
