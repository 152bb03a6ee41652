#include "plan/job_list.h"

#include <algorithm>

#include "base/splitmix.h"
#include "plan/expert_rules.h"

namespace distsetup {

namespace {

bool writes_loss(const ProgramVariant& v, const std::vector<OpInstance>& ops) {
  const auto is_loss = [&](const Operand& o) { return o.kind == Operand::Kind::kInput && v.program->inputs[o.index] == "loss"; };
  return std::any_of(ops.begin(), ops.end(),
                     [&](const OpInstance& op) { return std::any_of(op.writes.begin(), op.writes.end(), is_loss); });
}

}  // namespace

JobList::JobList(const Schedule& schedule)
    : s(schedule),
      num_units(static_cast<int>(schedule.layout->units.size())),
      backward(touched_by_units(schedule, InstructionOp::kBackward)) {
  for (size_t b = 0; b < s.buffers.size(); ++b) {
    first_slot.push_back(num_slots);
    num_slots += has_slot_per_unit(static_cast<int>(b)) ? num_units : 1;
    if (s.buffers[b].name == "loss") loss = static_cast<int>(b);
    if (s.buffers[b].name == "reference_logps") reference_logps = static_cast<int>(b);
    if (s.buffers[b].name == kRouterSums) router_sums = static_cast<int>(b);
  }
  for (int u = 0; u < num_units; ++u) replica.push_back(replica_of(s, u));
  for (const int of_unit : s.unit_variant) {
    const ProgramVariant* v = of_unit < 0 ? nullptr : s.variants[static_cast<size_t>(of_unit)].get();
    forward_adds_loss.push_back(v != nullptr && writes_loss(*v, v->forward));
    backward_adds_loss.push_back(v != nullptr && writes_loss(*v, v->backward));
  }
  std::set<int> written;
  for (const Instruction& i : s.instructions) {
    programs.push_back(is_program(i.op) ? touched(i, written) : Touched{});
    exchanges.push_back(exchanged(i));
  }
}

uint64_t JobList::exchanged(const Instruction& i) const {
  uint64_t sum = 0;
  const auto add = [&sum](uint64_t number) { sum = splitmix(sum + number + kSplitMixStep); };
  for (int n = i.first_step; n < i.first_step + i.num_steps; ++n) {
    const Step& step = s.steps[static_cast<size_t>(n)];
    if (step.program_op == nullptr || !is_communication(step.program_op->kind)) continue;
    add(static_cast<uint64_t>(step.program_op->kind));
    add(static_cast<uint64_t>(step.program_op->group));
    add(static_cast<uint64_t>(num_bytes(step.reads.front())));
  }
  return sum;
}

int JobList::slot(int buffer, int unit) const { return first_slot[buffer] + (has_slot_per_unit(buffer) ? unit : 0); }

JobList::Touched JobList::touched(const Instruction& i, std::set<int>& written) const {
  const ProgramVariant& v = variant_of(s, i);
  const TouchedUnits units = touched_units(s, i);
  Touched out;
  const auto is_input = [&](const Operand& o, std::string_view input) {
    return o.kind == Operand::Kind::kInput && v.program->inputs[o.index] == input;
  };
  for (const OpInstance& op : i.op == InstructionOp::kForward ? v.forward : v.backward) {
    for (const Operand& w : op.writes) {
      out.adds_loss |= is_input(w, "loss");
      out.writes_logps |= is_input(w, "reference_logps");
    }
    for (const Operand& r : op.reads) out.reads_logps |= is_input(r, "reference_logps");
  }
  // As the program finds them: in the first buffer that holds the unit.
  const auto holder = [&](BufferClass which, int u) {
    const auto found =
        std::find_if(i.uses.begin(), i.uses.end(), [&](int b) { return s.buffers[b].buffer_class == which && holds_unit(s, b, u); });
    return found == i.uses.end() ? -1 : *found;
  };
  for (const int u : units.parameters)
    if (const int b = holder(BufferClass::kGatheredParameter, u); b >= 0) out.parameters.push_back(slot(b, u));
  for (const int u : units.gradients)
    if (const int b = holder(BufferClass::kGradient, u); b >= 0)
      out.gradients.push_back({slot(b, u), u, written.insert(slot(b, u)).second});
  return out;
}

}  // namespace distsetup
