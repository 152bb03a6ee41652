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

void set_compute_threads(int num_threads) { at::set_num_threads(num_threads); }

}  // namespace distsetup
