#include "runtime/engine/threads.h"

#include <ATen/Parallel.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>

namespace distsetup {

int compute_threads(int ranks_on_host) {
  for (const char* variable : {"DISTSETUP_NUM_THREADS", "OMP_NUM_THREADS"}) {
    const char* text = std::getenv(variable);
    if (text != nullptr && std::atoi(text) > 0) return std::atoi(text);
  }
  cpu_set_t set;
  const int cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  return std::max(1, cores / std::max(1, ranks_on_host));
}

void parallel_ranges(int64_t n, int64_t cost, const std::function<void(int64_t, int64_t)>& body) {
  constexpr int64_t kBytesWorthAThread = 64 * 1024;  // some microseconds of memory traffic: what waking a thread takes
  const int64_t grain = std::max<int64_t>(1, kBytesWorthAThread / std::max<int64_t>(1, cost));
  if (n <= grain || compute_threads_now() == 1) return body(0, n);
  at::parallel_for(0, n, grain, body);
}

void set_compute_threads(int num_threads) { at::set_num_threads(num_threads); }
int compute_threads_now() { return at::get_num_threads(); }

}  // namespace distsetup
