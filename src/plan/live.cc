#include "plan/live.h"

namespace distsetup {

LiveChange live_change(const Schedule& s, const Instruction& i) {
  const auto span_bytes = [&](int b) {
    const Buffer& buffer = s.buffers[static_cast<size_t>(b)];
    return buffer.lifetime == BufferLifetime::kRun ? 0 : aligned(buffer.bytes);
  };
  LiveChange change;
  for (const int b : i.allocates) {
    const bool own = i.op == InstructionOp::kBackward && s.buffers[static_cast<size_t>(b)].unit == i.unit;
    (own ? change.born_bytes : change.allocated_bytes) += span_bytes(b);
  }
  for (const int b : i.frees) change.freed_bytes += span_bytes(b);
  return change;
}

std::vector<InstructionLive> walk_live(const Schedule& s) {
  std::vector<VariantProfile> units;
  for (const auto& variant : s.variants) units.push_back(profile(*variant, s.symbols, s.compute));
  std::vector<InstructionLive> out;
  LiveWalk walk;
  for (const Instruction& i : s.instructions) {
    const PassProfile* pass = nullptr;
    if (i.op == InstructionOp::kForward || i.op == InstructionOp::kBackward) {
      const VariantProfile& unit = units[static_cast<size_t>(s.unit_variant[static_cast<size_t>(i.unit)])];
      pass = i.op == InstructionOp::kForward ? &unit.forward : &unit.backward;
    }
    const int64_t peak_bytes = walk.run(live_change(s, i), pass);
    out.push_back({peak_bytes, walk.live_bytes()});
  }
  return out;
}

}  // namespace distsetup
