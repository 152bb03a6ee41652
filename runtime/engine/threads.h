// How many threads a rank computes with, and loops over them.
#pragma once
#include <cstdint>
#include <functional>

namespace distsetup {

// Threads of libtorch's kernels and ours: DISTSETUP_NUM_THREADS or OMP_NUM_THREADS when set, else cores / ranks on this host, at
// least 1.
int compute_threads(int ranks_on_host);
void set_compute_threads(int num_threads);
int compute_threads_now();  // of this process

// body(begin, end) for ranges that together are 0 .. n, at the same time on the threads of this rank; on the calling thread alone
// where n · cost is small. cost: bytes that one of the n touches.
void parallel_ranges(int64_t n, int64_t cost, const std::function<void(int64_t begin, int64_t end)>& body);

}  // namespace distsetup
