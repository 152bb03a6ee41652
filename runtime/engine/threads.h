// How many threads libtorch's own kernels take.
#pragma once

namespace distsetup {

// Threads of libtorch's own kernels: DISTSETUP_NUM_THREADS or OMP_NUM_THREADS when set, else cores / ranks on this host, at least 1.
int compute_threads(int ranks_on_host);
void set_compute_threads(int num_threads);

}  // namespace distsetup
