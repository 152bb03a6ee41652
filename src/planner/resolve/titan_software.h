// What a torchtitan does, from the day of its commit or release: the switches of its files on that day. One place for plans
// (presets/trainers/fsdp2.yaml says which release a target writes for) and for measured runs (tests/accuracy).
#pragma once
#include "planner/frameworks/setup.h"

namespace distsetup {

// `date`: yyyymmdd. Reads s.gpu and s.compiled; sets software (but for its name and what a row's graph compiler decides), the
// optimizer's implementation and the loss.
void set_titan_software(Setup& s, int date);
// The loss of its default configurations.
LossHead titan_loss(int date, bool compiled);
inline constexpr int kTitanHeadInChunks = 20260427;  // cross-entropy in chunks, head included: no logits of the whole batch

}  // namespace distsetup
