// Whether the streams of a device keep a rank's accesses to memory in order. The idea: every access carries the clock of its stream;
// two accesses to the same bytes, one of them a write, must be ordered by what streams wait for (a vector clock per stream). Two
// buffers that take turns at the same bytes of the arena are the same bytes here, so a transfer that outlives its buffer is found
// without knowing what a buffer is.
//
// What waits for what is the engine's rule (runtime/engine): an instruction's stream waits for the events it names; a stream other
// than compute first waits for everything issued on compute; a collective that signals no event is waited for by compute at once.
// Left out: order between ranks (check_job.h), and what a CPU adds (there the host runs everything but collectives in list order).
#pragma once
#include <string>
#include <vector>

#include "plan/schedule.h"

namespace distsetup {

// Accesses of an expanded list that nothing orders, and waits for events that were not signalled, as messages, at most 20; empty:
// there are none. `at`: the rank whose own chunks are looked at.
std::vector<std::string> check_order(const Schedule& schedule, const Coordinates& at);

}  // namespace distsetup
