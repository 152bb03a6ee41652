// Live bytes of an unexpanded schedule: buffers between units by what instructions allocate and free, tensors inside units by the
// liveness profile of their program. This is what simulate walks; it equals the expanded list's liveness to the byte.
#pragma once
#include <cstdint>
#include <vector>

#include "plan/schedule.h"

namespace distsetup {

struct InstructionLive {
  int64_t peak_bytes = 0;    // span bytes (without run buffers), largest over the instruction's ops
  int peak_op = 0;           // op of the program where; 0 for instructions without one
  int64_t tensor_bytes = 0;  // activations and logits among them, at that op
  int64_t after_bytes = 0;   // span bytes once the instruction is done
};

// Profiles per variant, to share between schedules of one search; index as in schedule.variants.
std::vector<VariantProfile> profile_variants(const Schedule& schedule);

std::vector<InstructionLive> walk_live(const Schedule& schedule);
std::vector<InstructionLive> walk_live(const Schedule& schedule, const std::vector<VariantProfile>& profiles);

}  // namespace distsetup
