// The kernels that native programs are made of: what each reads and writes, the FLOPs it takes, and its adjoint, the ops that
// bring its gradients. A family made of these kernels is one YAML file (presets/programs/native); a new kernel is a row here and a
// function in runtime/.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/program_builder.h"

namespace distsetup {

inline constexpr size_t kAnyNumber = 0;

struct KernelRule {
  std::string_view name;
  OpKind kind = OpKind::kElementwise;
  size_t num_reads = 0, num_writes = 0;  // kAnyNumber: at least one
  std::vector<Overlay> over;
  void (*declare)(const Op& op, ProgramBuilder& program) = nullptr;       // the tensors it writes
  std::string (*flops)(const Op& op, ProgramBuilder& program) = nullptr;  // null: memory-bound
  void (*adjoint)(const Op& op, ProgramBuilder& program) = nullptr;
};

// A `declare`: the op writes what it reads first, in place or not.
inline void declare_same(const Op& op, ProgramBuilder& b) { b.declare(op.writes[0], b.shape(op.reads[0]), b.dtype(op.reads[0])); }

// An `adjoint`: nothing that the op writes needs a gradient of its own.
inline void no_adjoint(const Op&, ProgramBuilder&) {}

const KernelRule* find_kernel(std::string_view name);  // nullptr: none

// Run buffers that programs may read: ids, targets [T], rotary tables, and the loss, which is added to; of preference pairs the
// reference's log-probabilities of each sequence, and those of the model in training, which are written.
std::span<const std::string_view> program_inputs();

}  // namespace distsetup
