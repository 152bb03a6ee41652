// The memory of a machine, as /proc/meminfo says it.
#include <catch2/catch.hpp>

#include "base/machine_memory.h"

using namespace distsetup;

TEST_CASE("machine memory: what is there, and what can be had") {
  const std::optional<MachineMemory> memory =
      parse_machine_memory("MemTotal:       16316412 kB\nMemFree:          500000 kB\nMemAvailable:    8000000 kB\nBuffers: 1 kB\n");
  REQUIRE(memory.has_value());
  CHECK(memory->total_bytes == 16316412LL * 1024);
  CHECK(memory->available_bytes == 8000000LL * 1024);
  CHECK(memory->used_bytes() == 8316412LL * 1024);
  CHECK_FALSE(parse_machine_memory("").has_value());
  CHECK_FALSE(parse_machine_memory("MemTotal:  1000 kB\nMemFree: 10 kB\n").has_value());
  CHECK_FALSE(parse_machine_memory("MemTotal:\nMemAvailable: x kB").has_value());
  CHECK_FALSE(parse_machine_memory("xMemTotal: 1000 kB\n MemAvailable: 10 kB\n").has_value());
}

TEST_CASE("machine memory: this machine has some") {
  const std::optional<MachineMemory> memory = machine_memory();
  REQUIRE(memory.has_value());
  CHECK(memory->available_bytes < memory->total_bytes);
  CHECK(memory->total_bytes > 100'000'000);
}
