#include "plan/recorded_step.h"

#include "plan/activation_writer.h"
#include "plan/host_writer.h"

namespace distsetup {
namespace {

bool is_recordable(const Instruction& i) {
  switch (i.op) {
    case InstructionOp::kForward:
    case InstructionOp::kBackward:
    case InstructionOp::kAllGather:
    case InstructionOp::kReduceScatter:
    case InstructionOp::kAccumulate:
    case InstructionOp::kCast:
    case InstructionOp::kZero:
    case InstructionOp::kFree:
    case InstructionOp::kWait: return i.stream != Stream::kHost;
    case InstructionOp::kAllReduce: return i.unit >= 0;  // of gradients; sums of scalars belong to the update
    default: return false;
  }
}

}  // namespace

int recorded_end(const Schedule& s, const Segment& segment) {
  const int end = segment.first_instruction + segment.num_instructions;
  int i = segment.first_instruction;
  bool has_program = false;
  for (; i < end && is_recordable(s.instructions[static_cast<size_t>(i)]); ++i)
    has_program |= is_program(s.instructions[static_cast<size_t>(i)].op);
  return has_program ? i : segment.first_instruction;
}

std::string recording_problem(const Plan& p) {
  if (p.mesh.pp > 1) return "stages of a pipeline take tokens and messages in between";
  if (p.model.num_experts > 0) return "the host reads how many rows each expert gets";
  if (p.data.packing) return "the host reads where the documents of a row begin";
  if (has_host_optimizer(p) || has_host_parameters(p) || has_host_activations(p)) return "the host has its part in what is offloaded";
  if (p.train.method == kDpo) return "pairs take tokens of two models in between";
  return "";
}

}  // namespace distsetup
