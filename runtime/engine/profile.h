// When each instruction of a step ran, and each op of its program, on which stream: what `--profile` writes. On a device with streams
// these are times of the stream, found by events around every op (a step takes a little longer with them than without); on the CPU, of
// the host.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "plan/step_track.h"
#include "runtime/device/device.h"

namespace distsetup {

class Profile {
 public:
  explicit Profile(Device& device);  // a step begins
  // What begins from now on belongs to this instruction. Returns its entry.
  int at(int index, const Instruction& instruction, int64_t repetition);
  void begin(std::string_view program_op);  // "": the instruction has no program
  void end(int64_t live_bytes);             // of what has begun; -1: not metered
  // The host has waited so long for what an entry has started. With streams it does not say when that was done: nothing happens.
  void waited(int entry, double seconds);
  StepTrack finish();  // waits for the device; in the order of the list, without instructions that do nothing

 private:
  struct Timed {
    TrackOp op;
    int timer = -1;
  };
  struct Entry {
    TrackEntry track;
    std::vector<Timed> timed;
  };
  void settle(Entry& entry, std::vector<double>& stream_ends) const;

  Device& device_;
  std::vector<Entry> entries_;
  int first_timer_ = -1;
  double first_s_ = 0;
};

}  // namespace distsetup
