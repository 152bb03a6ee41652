// The memory of a machine, as /proc/meminfo says it.
#include <catch2/catch.hpp>

#include "base/host_memory.h"

using namespace distsetup;

TEST_CASE("host memory: what is there, and what can be had") {
  const std::optional<HostMemory> memory =
      parse_host_memory("MemTotal:       16316412 kB\nMemFree:          500000 kB\nMemAvailable:    8000000 kB\nBuffers: 1 kB\n");
  REQUIRE(memory.has_value());
  CHECK(memory->total_bytes == 16316412LL * 1024);
  CHECK(memory->available_bytes == 8000000LL * 1024);
  CHECK(memory->used_bytes() == 8316412LL * 1024);
  CHECK_FALSE(parse_host_memory("").has_value());
  CHECK_FALSE(parse_host_memory("MemTotal:  1000 kB\nMemFree: 10 kB\n").has_value());
  CHECK_FALSE(parse_host_memory("MemTotal:\nMemAvailable: x kB").has_value());
  CHECK_FALSE(parse_host_memory("xMemTotal: 1000 kB\n MemAvailable: 10 kB\n").has_value());
}

TEST_CASE("host memory: this machine has some") {
  const std::optional<HostMemory> memory = host_memory();
  REQUIRE(memory.has_value());
  CHECK(memory->available_bytes < memory->total_bytes);
  CHECK(memory->total_bytes > 100'000'000);
}
