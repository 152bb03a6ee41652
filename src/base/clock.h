// Clocks.
#pragma once
#include <chrono>
#include <ctime>

namespace distsetup {

// Seconds of a clock that never goes back: for differences alone.
inline double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

inline std::tm local_time() {
  const std::time_t seconds = std::time(nullptr);
  std::tm now = {};
  localtime_r(&seconds, &now);
  return now;
}

}  // namespace distsetup
