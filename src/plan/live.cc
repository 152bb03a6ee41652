#include "plan/live.h"

#include <map>
#include <string>
#include <utility>

namespace distsetup {

LiveChange live_change(const Schedule& s, const Instruction& i) {
  const auto span_bytes = [&](int b) {
    const Buffer& buffer = s.buffers[static_cast<size_t>(b)];
    return buffer.lifetime == BufferLifetime::kRun || !is_on_device(buffer) ? 0 : aligned(buffer.bytes);
  };
  LiveChange change;
  for (const int b : i.allocates) {
    const bool own = i.op == InstructionOp::kBackward && s.buffers[static_cast<size_t>(b)].unit == i.unit;
    (own ? change.born_bytes : change.allocated_bytes) += span_bytes(b);
  }
  for (const int b : i.frees) change.freed_bytes += span_bytes(b);
  return change;
}

bool is_kept_by_stage(const ProgramVariant& v, int tensor, bool is_head) {
  if (is_head) return tensor == v.x;
  const std::string& name = v.tensors[static_cast<size_t>(tensor)].name;
  return std::find(v.kept.begin(), v.kept.end(), name) != v.kept.end();
}

std::set<int> stage_tensors(const Schedule& s, const Instruction& i) {
  std::set<int> out;
  const StageTensors& t = i.stage;
  if (t == StageTensors{}) return out;
  const ProgramVariant& v = variant_of(s, i);
  if (t.kept >= 0) {
    const std::vector<int64_t>& offsets = s.kept_offset[static_cast<size_t>(i.unit)];
    for (int n = 0; n < static_cast<int>(offsets.size()); ++n)
      if (offsets[static_cast<size_t>(n)] >= 0) out.insert(n);
    const auto next = static_cast<size_t>(i.unit) + 1;
    const int of_next = next < s.unit_variant.size() ? s.unit_variant[next] : -1;
    if (i.op == InstructionOp::kForward && of_next >= 0) {  // y is the next unit's x
      const int x = s.variants[static_cast<size_t>(of_next)]->x;
      if (x >= 0 && s.kept_offset[next][static_cast<size_t>(x)] >= 0) out.insert(v.y);
    }
  }
  if (t.x >= 0) out.insert(v.x);
  if (t.y >= 0) out.insert(v.y);
  if (t.dy >= 0) out.insert(v.dy);
  if (t.dx >= 0) out.insert(v.dx);
  out.erase(-1);  // the head has no y
  return out;
}

std::vector<InstructionLive> walk_live(const Schedule& s) {
  std::map<std::pair<int, std::set<int>>, VariantProfile> units;
  std::vector<InstructionLive> out;
  LiveWalk walk;
  for (const Instruction& i : s.instructions) {
    const PassProfile* pass = nullptr;
    if (is_program(i.op)) {
      const int variant = variant_index(s, i);
      const auto [unit, fresh] = units.try_emplace({variant, stage_tensors(s, i)});
      if (fresh) unit->second = profile(*s.variants[static_cast<size_t>(variant)], s.symbols, s.compute, unit->first.second);
      pass = i.op == InstructionOp::kForward ? &unit->second.forward : &unit->second.backward;
    }
    const int64_t peak_bytes = walk.run(live_change(s, i), pass);
    out.push_back({peak_bytes, walk.live_bytes()});
  }
  return out;
}

}  // namespace distsetup
