// What a list does where activations wait on the host (OffloadPlan::activations): of each block, its input and all that its forward
// keeps. Both lie in buffers of their own:
//   forward    of a block: its buffers are copied down, and freed one block later, when the copy is done;
//   backward   of a block: they are copied up while the one above runs, and freed with it.
// What a block keeps whose backward comes next stays on the device. Of a pipeline every micro-batch that is under way has such
// buffers; the first block of a chunk finds its input where it was received.
// Instruction::stage says where an instruction's program finds them.
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "plan/pipeline.h"
#include "plan/schedule_writer.h"

namespace distsetup {

inline bool has_host_activations(const Plan& plan) { return plan.offload.activations != OffloadPlace::kNone; }

class ActivationWriter {
 public:
  // Of a step; the chunks of its stage, of a plan without stages all units.
  ActivationWriter(ScheduleWriter& writer, const std::vector<UnitSpan>& chunks);

  // The forward of a unit, which is the last instruction: it has buffers for what is kept. Where that moves, it is on its way then.
  void forward(int u, bool moves);
  // What the backward of a unit of a micro-batch reads is on its way from here on; nothing for a unit that there is not.
  void raise(int u, int micro_batch);
  // The backward of a unit, which is the last instruction.
  void backward(int u);

 private:
  // Of a unit: its input, and all else that its forward keeps. 0 bytes: there is none.
  struct KeptBytes {
    int64_t input = 0, rest = 0;
  };
  struct Moved {
    int device = -1, host = -1;  // buffers, -1: there is none now
    int event = -1;              // of the copy between them that nobody has waited for yet
  };
  struct Kept {
    Moved input, rest;
  };
  using Key = std::pair<int, int>;  // micro-batch, unit

  void lay_out(int u, bool is_first);
  int device_buffer(int u, bool is_input, int64_t bytes);
  void lower(int u, Moved& moved);
  void free_lowered();

  ScheduleWriter& w_;
  const bool has_stages_;
  std::map<int, KeptBytes> bytes_;  // of units that keep something in buffers of their own
  std::map<Key, Kept> kept_;        // of those that are under way
  Key lowered_ = {-1, -1};          // whose copies down are under way
};

}  // namespace distsetup
