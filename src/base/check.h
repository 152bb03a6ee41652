// CHECK(cond, values...): states an invariant of our own code. A failure is our bug, never the user's: it prints file, line, the
// condition and the values, asks for a report and aborts.
#pragma once
#include <fmt/format.h>

#include <string_view>

namespace distsetup {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, std::string_view values);

}  // namespace distsetup

// Usage: CHECK(a < b) or CHECK(a < b, "a {} b {}", a, b).
#undef CHECK  // libtorch's logging header defines one too
#define CHECK(condition, ...)                                                                                   \
  do {                                                                                                          \
    if (!(condition)) ::distsetup::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (false)
