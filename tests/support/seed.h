// The seed of a randomised test: a fresh one each run, which the test prints; DISTSETUP_SEED repeats one.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <random>

namespace distsetup {

inline uint64_t test_seed() {
  static const uint64_t seed = [] {
    const char* given = std::getenv("DISTSETUP_SEED");
    return given != nullptr ? std::strtoull(given, nullptr, 10) : uint64_t{std::random_device{}()};
  }();
  return seed;
}

}  // namespace distsetup
