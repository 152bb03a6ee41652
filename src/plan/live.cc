#include "plan/live.h"

#include "base/check.h"

namespace distsetup {

std::vector<VariantProfile> profile_variants(const Schedule& s) {
  std::vector<VariantProfile> out;
  for (const auto& v : s.variants) out.push_back(profile(*v, s.symbols, s.compute, 0));
  return out;
}

namespace {

// First op that writes a slot of the unit's own gradient.
int first_gradient_op(const ProgramVariant& v) {
  const int own = static_cast<int>(v.slots.size() - v.program->borrowed_slots.size());
  for (int j = 0; j < static_cast<int>(v.backward.size()); ++j)
    for (const Operand& w : v.backward[j].writes)
      if (w.kind == Operand::Kind::kGradient && w.index < own) return j;
  return static_cast<int>(v.backward.size());
}

}  // namespace

std::vector<InstructionLive> walk_live(const Schedule& s, const std::vector<VariantProfile>& profiles) {
  std::vector<InstructionLive> out(s.instructions.size());
  std::vector<int> first_gradient;
  for (const auto& v : s.variants) first_gradient.push_back(first_gradient_op(*v));
  int64_t buffers = 0, tensors = 0;
  const auto span_bytes = [&](int b) { return s.buffers[b].lifetime == BufferLifetime::kRun ? 0 : aligned(s.buffers[b].bytes); };
  for (size_t n = 0; n < s.instructions.size(); ++n) {
    const Instruction& i = s.instructions[n];
    InstructionLive& live = out[n];
    const bool is_backward = i.op == InstructionOp::kBackward;
    int64_t born_inside = 0;  // the unit's own gradient buffer appears with its first write
    for (const int b : i.allocates) {
      if (is_backward && s.buffers[b].unit == i.unit)
        born_inside += span_bytes(b);
      else
        buffers += span_bytes(b);
    }
    if (i.op == InstructionOp::kForward || is_backward) {
      const int variant = s.unit_variant[i.unit];
      const PassProfile& pass = is_backward ? profiles[variant].backward : profiles[variant].forward;
      const int64_t around = tensors - pass.entry_bytes;
      CHECK(around >= 0, "instruction {} tensors {} entry {}", n, tensors, pass.entry_bytes);
      for (int j = 0; j < static_cast<int>(pass.live_bytes.size()); ++j) {
        const int64_t now = buffers + around + pass.live_bytes[j] + (j >= first_gradient[variant] ? born_inside : 0);
        if (now > live.peak_bytes) {
          live.peak_bytes = now;
          live.peak_op = j;
          live.tensor_bytes = around + pass.live_bytes[j];
        }
      }
      tensors = around + pass.exit_bytes;
    } else {
      live.peak_bytes = buffers + tensors;
      live.tensor_bytes = tensors;
    }
    buffers += born_inside;
    for (const int b : i.frees) buffers -= span_bytes(b);
    live.after_bytes = buffers + tensors;
  }
  return out;
}

std::vector<InstructionLive> walk_live(const Schedule& s) { return walk_live(s, profile_variants(s)); }

}  // namespace distsetup
