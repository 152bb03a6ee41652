// When each buffer of an expanded list lives. A tensor lives from the first step that writes it to the last that touches it; a buffer
// between units from the first step of the instruction that allocates it (a gradient buffer: from the first gradient written) to the
// last step of the one that frees it. A transfer in flight is covered: the instruction that frees its buffers waits for it.
#pragma once
#include "plan/schedule.h"

namespace distsetup {

// Activations and logits, which programs make.
inline bool is_tensor(const Buffer& buffer) {
  return buffer.buffer_class == BufferClass::kActivation || buffer.buffer_class == BufferClass::kLogits;
}

// Fills first_step, last_step and overlay_of of the buffers, and the live bytes of the list.
void set_lifetimes(Schedule& schedule);

}  // namespace distsetup
