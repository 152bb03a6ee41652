// A program and a setup become two lists of events: what one pass of a block (or of embedding, or of head and loss) allocates and
// frees, forward and backward, in order. The idea: tensors are counted references and ops leave nodes on a tape, as in PyTorch's
// autograd; running that once per kind of block gives the lists, which every block and micro-batch then repeats.
// Rules: a node holds what its kernel saves until its backward has run; gradients of one tensor add up in place when nobody else
// holds the buffer; under a recompute policy forward saves the input alone (and, op-selective, the outputs of flagged ops), and
// backward runs the ops again, up to the last one that saves anything (non-reentrant) or all of them (reentrant).
#pragma once
#include <cstdint>
#include <vector>

#include "planner/replay/program_file.h"

namespace distsetup::replay {

enum class MemoryClass : uint8_t {
  kParameter,
  kGathered,
  kGradient,
  kOptimizer,
  kActivation,
  kLogits,
  kCommunication,
  kWorkspace,
  kCount
};

struct Event {
  enum class Kind : uint8_t { kAllocate, kFree, kWeightGradient, kGathered, kExperts };
  Kind kind = Kind::kAllocate;
  MemoryClass memory_class = MemoryClass::kActivation;
  int16_t slot = 0;  // of the trace's tensors; kWeightGradient: the weight's index
  int64_t bytes = 0;
};

struct Trace {
  static constexpr int16_t kInput = 0, kGradient = 1;  // slots filled from outside: x, and the gradient of the output
  std::vector<Event> forward, backward;
  std::vector<int16_t> held;  // slots that the training loop holds until backward is over
  int16_t num_slots = 2;
  int16_t output = -1;              // slot
  int16_t input_gradient = -1;      // slot that holds it after backward; may be kGradient itself; -1: none
  bool input_freed_forward = true;  // false: saved, its slot is freed in backward

  int64_t bytes_of_slot(int16_t slot, int64_t input_bytes) const;
};

enum class TraceMode : uint8_t { kKeepAll, kOpSelective, kFull, kNoGradient };  // kNoGradient: forward alone, nothing saved
struct TraceOptions {
  TraceMode mode = TraceMode::kKeepAll;
  bool reentrant = false;
  int64_t input_bytes = 0;     // of x, and of the gradient of the output
  bool keeps_matmuls = false;  // kOpSelective: the outputs of every matrix multiplication beside those of flagged ops
  bool drops_matmuls = false;  // or of none, flagged or not
  bool retains_input = false;  // x and the gradient of the output outlive backward: whoever plays the trace frees them
};

// `trained[i]`: whether weight i of the section gets a gradient.
Trace trace_section(const ProgramSection& section, uint64_t facts, const int64_t* symbols, const std::vector<bool>& trained,
                    const TraceOptions& options);

}  // namespace distsetup::replay
