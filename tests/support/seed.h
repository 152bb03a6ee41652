// The seed of a randomised test, and how long it goes on. A fresh seed each run, which the test prints; DISTSETUP_SEED repeats one.
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

// Whether this is the nightly campaign (scripts/test --nightly).
inline bool is_nightly() {
  const char* nightly = std::getenv("DISTSETUP_NIGHTLY");
  return nightly != nullptr && *nightly != '\0' && *nightly != '0';
}

// Rounds of a random test: `usual` of them, fifty times as many in the nightly campaign.
inline int num_rounds(int usual) { return is_nightly() ? 50 * usual : usual; }

// Whether a test takes case NUMBER (0, 1, ...) of a long list: one of `each`, by steps of the golden ratio, which keep no time with
// the periods of the list's factors; the nightly campaign takes all. A test that asks has the tag [nightly].
inline bool is_taken(int number, int each) {
  return is_nightly() || uint64_t(number) * 0x9e3779b97f4a7c15u <= UINT64_MAX / uint64_t(each);
}

// A seed that is the same every time, for a test that must not change from run to run; the nightly campaign takes a fresh one.
// DISTSETUP_SEED has its way in both.
inline uint64_t fixed_seed(uint64_t seed) {
  const bool is_fresh = is_nightly() || std::getenv("DISTSETUP_SEED") != nullptr;
  return is_fresh ? test_seed() : seed;
}

}  // namespace distsetup
