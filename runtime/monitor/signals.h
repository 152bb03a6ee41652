// Signals of a rank. SIGUSR1 always, SIGTERM and SIGINT once training has begun, mean: checkpoint at the next step border and end.
// Before that SIGTERM and SIGINT end the process at once, because there is nothing to save. SIGPIPE and SIGXFSZ become errors of
// write().
#pragma once
#include <string>
#include "runtime/comm/communicator.h"

namespace distsetup {

void catch_early_signals();
void catch_stop_signals();
int stop_signal();  // the first caught, 0 = none

// Collective: the signal that any rank was asked to stop with; 0: none was.
int agreed_stop_signal(Communicator& communicator);

}  // namespace distsetup
