#include "runtime/comm/yielding_trylock.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cerrno>

namespace {

std::atomic<int64_t> yields{0};

}  // namespace

extern "C" int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  using Trylock = int (*)(pthread_mutex_t*);
  static const Trylock of_the_c_library = reinterpret_cast<Trylock>(dlsym(RTLD_NEXT, "pthread_mutex_trylock"));
  const int error = of_the_c_library(mutex);
  if (error == EBUSY) {
    yields.fetch_add(1, std::memory_order_relaxed);
    sched_yield();
  }
  return error;
}

int64_t distsetup::num_yields() { return yields.load(std::memory_order_relaxed); }
