// What check_job looks up of a list once for all ranks that run it: which parameters a program computes with, which gradients it
// writes.
#pragma once
#include <cstdint>
#include <set>
#include <vector>

#include "plan/schedule.h"

namespace distsetup {

// Parameters and gradients are told apart by slot. A buffer that lives as long as the run or the step may hold all units and has a
// slot for each; any other buffer is one slot.
struct JobList {
  explicit JobList(const Schedule& schedule);  // which must outlive this
  int slot(int buffer, int unit) const;
  bool has_slot_per_unit(int buffer) const { return s.buffers[buffer].lifetime != BufferLifetime::kSpan; }

  struct Touched {
    std::vector<int> parameters;  // slots of gathered parameters that have to be there; not the fp32 master itself
    struct Write {
      int slot = 0, unit = 0;
      bool fresh = false;  // the first write of the list: sets, does not add
    };
    std::vector<Write> gradients;
    bool adds_loss = false;
    bool writes_logps = false, reads_logps = false;  // of the reference
  };

  const Schedule& s;
  int num_units = 0, num_slots = 0;
  std::vector<TouchedUnits> backward;  // per unit with a program: what its backward reads and writes
  int loss = -1;                       // buffer; -1: there is none
  // Whether a unit adds to the loss in its forward and in its backward: the head does, in backward where the loss is made in chunks,
  // and layers whose routers have a z-loss.
  std::vector<bool> forward_adds_loss, backward_adds_loss;  // per unit
  int reference_logps = -1, router_sums = -1;               // the same
  std::vector<int> replica;                                 // per unit: replica_of()
  std::vector<int> first_slot;                              // per buffer
  std::vector<Touched> programs;                            // per instruction; empty but for Forward and Backward
  std::vector<uint64_t> exchanges;  // per instruction: which data its program exchanges with whom, in order, as one number

 private:
  Touched touched(const Instruction& i, std::set<int>& written) const;
  uint64_t exchanged(const Instruction& i) const;
};

}  // namespace distsetup
