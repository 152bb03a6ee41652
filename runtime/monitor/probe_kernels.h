// How fast libtorch multiplies matrices on this host.
#pragma once

namespace distsetup {

// --probe: GEMM rates of libtorch on this host as one JSON line, for `distsetup probe`. About `budget_s` seconds.
int run_probe_kernels(double budget_s);

}  // namespace distsetup
