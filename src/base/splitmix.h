// The mixing of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014). The generator adds
// kSplitMixStep to its state and mixes it.
#pragma once
#include <cstdint>

namespace distsetup {

inline constexpr uint64_t kSplitMixStep = 0x9e3779b97f4a7c15u;

inline uint64_t splitmix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace distsetup
