// In a build with AddressSanitizer an arena's bytes are open from the first to the last step of the buffer that lies there, and closed
// otherwise: a kernel that reads or writes past its buffer, before it is born or after it has died, ends the program with a report.
// That is how bytes are guarded that are one allocation to the sanitizer. Code that is not instrumented (libtorch) is not seen, but
// for its copies. In every other build nothing is done.
#pragma once
#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#define DISTSETUP_GUARDS_ARENAS
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DISTSETUP_GUARDS_ARENAS
#endif
#endif

#ifdef DISTSETUP_GUARDS_ARENAS
#include <sanitizer/asan_interface.h>
#endif

namespace distsetup {

#ifdef DISTSETUP_GUARDS_ARENAS
constexpr bool kGuardsArenas = true;
inline void open_bytes(const void* data, int64_t num_bytes) { __asan_unpoison_memory_region(data, static_cast<size_t>(num_bytes)); }
inline void close_bytes(const void* data, int64_t num_bytes) { __asan_poison_memory_region(data, static_cast<size_t>(num_bytes)); }
#else
constexpr bool kGuardsArenas = false;
inline void open_bytes(const void*, int64_t) {}
inline void close_bytes(const void*, int64_t) {}
#endif

}  // namespace distsetup
