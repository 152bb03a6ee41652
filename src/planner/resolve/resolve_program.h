// What a trainer other than the bundled one runs: its release, its operations and its loss, and how it keeps values between steps.
#pragma once
#include "planner/resolve/resolving.h"

namespace distsetup {

void resolve_release(Resolving& r);
bool is_stored_in_16_bits(const Resolving& r);  // as its trainer does unless fp32 is asked for
void store_in_16_bits(Problem& problem);        // parameters that are their own master
void resolve_storage(Resolving& r);
void resolve_program(Resolving& r);
// Fills in the Setup that the models of its memory and time take.
void settle_setup(Resolving& r);

}  // namespace distsetup
