// Seconds that a GPU waits for the host that enqueues its kernels.
#pragma once

namespace distsetup {

// What `host_s` of enqueueing adds to `gpu_s` of kernels and transfers: they run beside each other and wait for each other now and
// then, so both take (host^p + gpu^p)^(1/p), more than the longer of both and less than their sum. The queue of kernels lets the host
// run ahead, but not far where gathers bound it (two in flight: FSDP1's limit_all_gathers, DeepSpeed's fetches and reductions), and
// each value that Python reads empties it. `p`, at least 1: TimeConstants::host_beside_gpu. No source gives p; rows of tests/accuracy
// do.
double launch_exposed_s(double host_s, double gpu_s, double p);

}  // namespace distsetup
