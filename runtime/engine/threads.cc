// at::parallel_for is a loop on one thread wherever a source is compiled without OpenMP, as these are: no compiler flag gives clang the
// OpenMP runtime that libtorch loads, and a second one would have threads of its own. So libtorch's runtime is called by its entry points
// (GCC manual, "The libgomp ABI", Implementing PARALLEL construct), on the threads that libtorch's kernels have.
#include "runtime/engine/threads.h"

#include <ATen/Parallel.h>
#include <c10/util/ParallelGuard.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <mutex>

extern "C" {
void GOMP_parallel(void (*function)(void*), void* data, unsigned num_threads, unsigned flags);
int omp_get_thread_num();
}

namespace distsetup {
namespace {

struct ParallelLoop {
  const std::function<void(int64_t, int64_t)>& body;
  int64_t n = 0, each = 0;  // iterations of a thread
  std::mutex mutex;
  std::exception_ptr failure;  // the first
};

void run_share(void* data) {
  ParallelLoop& loop = *static_cast<ParallelLoop*>(data);
  const int64_t begin = omp_get_thread_num() * loop.each;
  if (begin >= loop.n) return;
  try {
    const c10::ParallelGuard guard(true);  // libtorch's operations inside stay on this thread
    loop.body(begin, std::min(loop.n, begin + loop.each));
  } catch (...) {
    const std::lock_guard<std::mutex> lock(loop.mutex);
    if (!loop.failure) loop.failure = std::current_exception();
  }
}

}  // namespace

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
  const int64_t threads = std::min<int64_t>(compute_threads_now(), (n + grain - 1) / grain);
  if (threads <= 1 || at::in_parallel_region()) return body(0, n);
  ParallelLoop loop{body, n, (n + threads - 1) / threads, {}, {}};
  GOMP_parallel(run_share, &loop, static_cast<unsigned>(threads), 0);
  if (loop.failure) std::rethrow_exception(loop.failure);
}

void set_compute_threads(int num_threads) { at::set_num_threads(num_threads); }
int compute_threads_now() { return at::get_num_threads(); }

}  // namespace distsetup
