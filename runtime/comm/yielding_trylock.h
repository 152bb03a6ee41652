// This program's own pthread_mutex_trylock, which takes the place of the C library's in every library of the process: where the lock
// is taken it gives up the core before it says so. Why: Gloo's thread tries the lock of a connection when something has arrived there
// and, where another thread has it, asks the kernel for the same event again at once (libtorch 2.11, gloo/transport/tcp/pair.cc,
// Pair::handleEvents). With fewer free cores than threads it burns the time slice for which the holder of the lock waits: four ranks
// on two busy cores spent four fifths of their time that way.
#pragma once
#include <cstdint>

namespace distsetup {

// How often a thread of this process found a lock taken and gave up its core. A program that calls this has that function in it.
int64_t num_yields();

}  // namespace distsetup
