// What a list does where activations wait on the host (OffloadPlan::activations): of each block but the last, whose backward comes
// first, its input and all that its forward keeps. Both lie in buffers of their own:
//   forward    of a block: its buffers are copied down, and freed one block later, when the copy is done;
//   backward   of a block: they are copied up while the one above runs, and freed with it.
// Instruction::stage says where an instruction's program finds them, as in a pipeline.
#pragma once
#include <map>
#include <vector>

#include "plan/schedule_writer.h"

namespace distsetup {

inline bool has_host_activations(const Plan& plan) { return plan.offload.activations != OffloadPlace::kNone; }

class ActivationWriter {
 public:
  // Of a step, on one stage.
  explicit ActivationWriter(ScheduleWriter& writer);

  // The forward of a unit, which is the last instruction: it has buffers for what moves. Then what moves is on its way.
  void forward(int u);
  // What the backward of a unit reads is on its way from here on; nothing for a unit that there is not.
  void raise(int u);
  // The backward of a unit, which is the last instruction.
  void backward(int u);

 private:
  struct Moved {
    int device = -1, host = -1;  // buffers, -1: there is none now
    int event = -1;              // of the copy between them that nobody has waited for yet
  };
  // Of a block: its input, and all else that its forward keeps. 0 bytes: there is none.
  struct Kept {
    int64_t input_bytes = 0, rest_bytes = 0;
    Moved input, rest;
  };
  void lay_out(int u);
  int device_buffer(int u, bool is_input, int64_t bytes);
  void lower(int u, Moved& moved);
  void free_lowered();

  ScheduleWriter& w_;
  std::map<int, Kept> kept_;  // of the blocks that move
  int lowered_ = -1;          // whose copies down are under way
};

}  // namespace distsetup
