// The load-balancing loss in a pipeline. It needs what the routers of all layers have chosen, of which a stage has some: router_sums
// (expert_rules.h) travels with the rows of its micro-batch, behind them in the same message. Going forward each stage adds what its
// own layers have chosen; the last one has the sums of all, makes the loss, and sends them back with the gradients. A stage takes the
// sums from the message before it runs, and puts them into the one that it sends.
#pragma once
#include <cstdint>

#include "plan/expert_rules.h"
#include "plan/schedule.h"

namespace distsetup {

// What a message has behind its rows, in bytes; 0: the model has no such loss. Its embedding's program clears the sums if there is
// one.
int64_t carried_routes_bytes(const Program& embedding, const Symbols& symbols);
// Where the sums lie in a message's buffer.
View carried_routes(const Schedule& schedule, int buffer);
// router_sums -> router_sums
const Op& carry_routes();

}  // namespace distsetup
