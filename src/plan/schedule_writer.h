// A schedule while it is written: its programs in the variants the plan needs, its buffers, instructions and segments. What is
// gathered and reduced when is unit_compiler.h's.
#pragma once
#include <string>
#include <vector>

#include "plan/layout_cache.h"
#include "plan/schedule.h"

namespace distsetup {

class ScheduleWriter {
 public:
  ScheduleWriter(const Plan& plan, Phase phase, int stage, LayoutDetail detail);

  int num_units() const { return s_.layout->num_programs; }  // that have a program
  int head() const { return num_units() - 1; }
  const UnitLayout& unit(int u) const { return s_.layout->units[u]; }

  // Of unit u (-1: of none) and of the micro-batch being written. Returns its index.
  int add_buffer(std::string name, BufferClass buffer_class, int64_t bytes, Dtype dtype, BufferLifetime lifetime, int u = -1);
  // Lives as long as the run.
  int run_buffer(std::string name, BufferClass buffer_class, int64_t numel, Dtype dtype);
  // In the phase and micro-batch being written; the reference holds until the next one.
  Instruction& emit(InstructionOp op, int u);
  // A copy between device and host, on the stream of its direction; it signals an event of its own.
  Instruction& emit_copy(int u, int from, int to, int64_t bytes, Dtype dtype);
  // Of run buffers, those that the host does not have.
  void copy_to_host(const std::vector<int>& buffers);
  int new_event() { return s_.num_events++; }
  // What was emitted since the last segment is one, done `repeat` times.
  void close_segment(int64_t repeat);

  const Plan& plan_;
  Schedule s_;
  int micro_batch_ = -1;  // -1: outside of any
  std::string phase_;

 private:
  void keep_stage();
};

// The variants of its programs that a schedule needs, and which each unit runs, in all stages.
void derive_variants(const Plan& plan, int num_units, Schedule& schedule);

}  // namespace distsetup
