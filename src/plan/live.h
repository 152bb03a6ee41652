// Live bytes of an unexpanded schedule: buffers between units by what instructions allocate and free, tensors inside units by the
// liveness profile of their program. This is what simulate walks; it equals the expanded list's liveness to the byte.
#pragma once
#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "plan/schedule.h"

namespace distsetup {

// What one instruction does to the span buffers between units.
struct LiveChange {
  int64_t allocated_bytes = 0;  // before it runs
  int64_t born_bytes = 0;       // of kBackward: its unit's gradient buffer, from the first write on
  int64_t freed_bytes = 0;      // when it is done
};
LiveChange live_change(const Schedule& schedule, const Instruction& instruction);

// The walk itself, one instruction after the other.
class LiveWalk {
 public:
  // The most span bytes that are live while the instruction runs. `pass`: of kForward and kBackward, else nullptr.
  int64_t run(const LiveChange& change, const PassProfile* pass) {
    buffers_ += change.allocated_bytes;
    int64_t peak = buffers_ + tensors_;
    if (pass != nullptr) {
      const int64_t around = tensors_ - pass->entry_bytes;
      peak = std::max(pass->peak_bytes, pass->late_peak_bytes > 0 ? pass->late_peak_bytes + change.born_bytes : 0) + buffers_ + around;
      tensors_ = around + pass->exit_bytes;
    }
    buffers_ += change.born_bytes - change.freed_bytes;
    return peak;
  }
  int64_t live_bytes() const { return buffers_ + tensors_; }  // now

 private:
  int64_t buffers_ = 0, tensors_ = 0;
};

// Does a stage, which lays out what it keeps itself, keep this tensor of a unit from forward to backward? Of the head, whose forward
// runs with its backward, the input alone.
bool is_kept_by_stage(const ProgramVariant& variant, int tensor, bool is_head);

// Tensors of an instruction's program that lie in buffers which live as long as the step (pipelines).
std::set<int> stage_tensors(const Schedule& schedule, const Instruction& instruction);

struct InstructionLive {
  int64_t peak_bytes = 0;   // span bytes (without run buffers), largest over the instruction's ops
  int64_t after_bytes = 0;  // once the instruction is done
};
std::vector<InstructionLive> walk_live(const Schedule& schedule);

}  // namespace distsetup
