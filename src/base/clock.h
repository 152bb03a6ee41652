// Seconds of a clock that never goes back: for differences alone.
#pragma once
#include <chrono>

namespace distsetup {

inline double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace distsetup
