// Instructions → steps: every op of every unit with its tensors as buffers; then lifetimes, overlays and the arena.
#include "plan/expand.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "plan/arena.h"
#include "plan/carried_routes.h"
#include "plan/compile_schedule.h"
#include "plan/lifetimes.h"

namespace distsetup {
namespace {

class Expander {
 public:
  explicit Expander(Schedule& s) : s_(s), forward_tensors_(s.layout->units.size()), backward_in_(s.layout->units.size() + 1) {
    for (int b = 0; b < static_cast<int>(s.buffers.size()); ++b)
      if (s.buffers[b].lifetime == BufferLifetime::kRun) run_[s.buffers[b].name] = b;
  }

  void run() {
    for (int i = 0; i < static_cast<int>(s_.instructions.size()); ++i) {
      s_.instructions[i].first_step = static_cast<int>(s_.steps.size());
      switch (s_.instructions[i].op) {
        case InstructionOp::kForward: forward(i); break;
        case InstructionOp::kBackward: backward(i); break;
        default: single(i); break;
      }
      s_.instructions[i].num_steps = static_cast<int>(s_.steps.size()) - s_.instructions[i].first_step;
    }
    set_lifetimes(s_);
    std::vector<int> action_steps;
    for (const int i : s_.actions) action_steps.push_back(s_.instructions[i].first_step);
    s_.arena_bytes = pack_arena(s_.buffers, action_steps);
    s_.host_arena_bytes = pack_arena(s_.buffers, action_steps, ArenaPlace::kHost);
  }

 private:
  const UnitLayout& unit(int u) const { return s_.layout->units[u]; }
  // Of the policy.
  const ProgramVariant& variant(int u) const { return *s_.variants[s_.unit_variant[u]]; }

  // --- views

  View whole(int buffer, std::vector<int64_t> shape) const {
    return {buffer, 0, std::move(shape), s_.buffers[buffer].dtype, Group::kSelf};
  }

  View stretch(int buffer, int64_t offset_numel, int64_t numel) const {
    const Dtype dtype = s_.buffers[buffer].dtype;
    return {buffer, offset_numel * size_bytes(dtype), {numel}, dtype, Group::kSelf};
  }

  // A unit's whole flat buffer: in a span buffer of its own, the replica, or (unsharded) the fp32 run buffer.
  View unit_flat(int buffer, int u) const {
    const Buffer& b = s_.buffers[buffer];
    const int64_t numel = unit(u).shard_numel * unit(u).shard_ranks;
    if (b.unit == u) return stretch(buffer, 0, numel);
    if (b.name == "parameters") return stretch(buffer, unit(u).gathered_offset, numel);
    CHECK(unit(u).shard_ranks == 1, "buffer {} of unit {}", b.name, u);
    return stretch(buffer, unit(u).shard_offset, numel);
  }

  View own_chunk(int buffer, int u) const {
    View v = unit_flat(buffer, u);
    v.shape = {unit(u).shard_numel};
    v.own_of = unit(u).shard_group;
    return v;
  }

  // Of a flat shard; all of a buffer that has this unit's shard alone.
  View shard_range(int buffer, int u) const {
    return stretch(buffer, s_.buffers[buffer].unit == u ? 0 : unit(u).shard_offset, unit(u).shard_numel);
  }

  // A rank's own elements, in a buffer of all ranks' or of its own alone.
  View own_elements(int buffer, int u) const {
    const Buffer& b = s_.buffers[buffer];
    const bool is_whole =
        b.unit == u ? b.bytes == unit(u).shard_numel * unit(u).shard_ranks * size_bytes(b.dtype) : b.name == "parameters";
    return is_whole ? own_chunk(buffer, u) : shard_range(buffer, u);
  }

  // Slot `slot` of what an instruction's program reads or writes, in the buffer that holds it.
  View slot_view(const Instruction& i, int slot, bool gradient) const {
    const ProgramVariant& v_of = variant_of(s_, i);
    const int u = slot_unit(s_, v_of, i.unit, slot);
    const Slot& at = slot_of(s_, v_of, i.unit, slot);
    View v = unit_flat(holder(i, u, gradient), u);
    v.offset_bytes += at.offset * size_bytes(v.dtype);
    v.shape = at.shape;
    if (unit(u).is_quantized) v.dtype = Dtype::kNf4Double;
    return v;
  }

  // --- tensors

  // Where a tensor lies: most have a buffer of their own.
  struct Home {
    int buffer = -1;
    int64_t offset_bytes = 0;
  };
  using Homes = std::vector<Home>;  // per tensor instance of a variant

  Home home(const ProgramVariant& v, int index, const Instruction& i, Homes& table) {
    if (table[index].buffer >= 0) return table[index];
    const TensorInstance& t = v.tensors[index];
    Buffer b;
    b.name = fmt::format("{}{}/{}", i.unit, is_reference(i) ? ".reference" : "", t.name);
    b.buffer_class = t.decl->logits ? BufferClass::kLogits : BufferClass::kActivation;
    b.dtype = t.decl->dtype == Dtype::kCompute ? s_.compute : t.decl->dtype;
    b.bytes = num_bytes(shape(*t.decl), b.dtype);
    b.unit = i.unit;
    b.micro_batch = i.micro_batch;
    s_.buffers.push_back(std::move(b));
    return table[index] = {static_cast<int>(s_.buffers.size()) - 1, 0};
  }

  // Declarations are shared by all units of a kind.
  const std::vector<int64_t>& shape(const TensorDecl& decl) {
    const auto [known, fresh] = shapes_.try_emplace(&decl);
    if (fresh) known->second = shape_of(decl, s_.symbols);
    return known->second;
  }

  // The tensors of a pipeline's unit that outlive its action or are another stage's.
  void place_stage_tensors(const Instruction& i, Homes& table) const {
    const ProgramVariant& v = variant_of(s_, i);
    const auto place = [&](int tensor, Home at) {
      if (tensor >= 0 && at.buffer >= 0) table[tensor] = at;
    };
    if (i.stage.kept >= 0) {
      const std::vector<int64_t>& offsets = s_.kept_offset[i.unit];
      for (int t = 0; t < static_cast<int>(offsets.size()); ++t)
        if (offsets[t] >= 0) place(t, {i.stage.kept, offsets[t]});
      const bool next_is_here = i.unit + 1 < s_.layout->num_programs && s_.unit_variant[i.unit + 1] >= 0 && i.stage.y < 0;
      const int64_t x_of_next = next_is_here ? s_.kept_offset[i.unit + 1][variant(i.unit + 1).x] : -1;
      if (x_of_next >= 0 && i.op == InstructionOp::kForward) place(v.y, {i.stage.kept, x_of_next});
    }
    place(v.x, {i.stage.x, 0});
    place(v.y, {i.stage.y, 0});
    place(v.dy, {i.stage.dy, 0});
    place(v.dx, {i.stage.dx, 0});
  }

  // The buffer among an instruction's uses that holds unit `u`'s parameters (or gradient).
  int holder(const Instruction& i, int u, bool gradient) const {
    for (const int b : i.uses) {
      const Buffer& buffer = s_.buffers[b];
      const bool is_gradient = buffer.buffer_class == BufferClass::kGradient;
      if (is_gradient != gradient) continue;
      if (holds_unit(s_, b, u)) return b;
    }
    CHECK(false, "{} of unit {} does not hold its {}", name(i.op), i.unit, gradient ? "gradient" : "parameters");
    return -1;
  }

  View operand_view(const Instruction& i, const ProgramVariant& v, const Op& op, const Operand& o, Homes& table) {
    switch (o.kind) {
      case Operand::Kind::kInput: {
        const int b = run_.at(v.program->inputs[o.index]);
        const View all = whole(b, program_input(s_.buffers[b].name, s_.symbols).shape);
        return is_fed(s_.buffers[b].name) ? rows_of_chunk(op, all) : all;
      }
      case Operand::Kind::kParameter: return slot_view(i, o.index, false);
      case Operand::Kind::kGradient: return slot_view(i, o.index, true);
      case Operand::Kind::kTensor: break;
    }
    const TensorDecl& decl = *v.tensors[o.index].decl;
    const Home at = home(v, o.index, i, table);
    const Dtype dtype = decl.dtype == Dtype::kCompute ? s_.compute : decl.dtype;
    const View all = {at.buffer, at.offset_bytes, shape(decl), dtype, Group::kSelf};
    return has_all_rows(decl) ? rows_of_chunk(op, all) : all;
  }

  void add_ops(int index, const std::vector<OpInstance>& ops, Homes& table) {
    const ProgramVariant& v = variant_of(s_, s_.instructions[index]);
    for (const OpInstance& instance : ops) {
      const Instruction& i = s_.instructions[index];
      Step step;
      step.op = (instance.recomputed ? "R." : "") + instance.op->name;
      step.kernel = instance.op->kernel;
      step.instruction = index;
      step.unit = i.unit;
      step.recomputed = instance.recomputed;
      step.program_op = instance.op;
      for (const Operand& o : instance.reads) step.reads.push_back(operand_view(i, v, *instance.op, o, table));
      for (const Operand& o : instance.writes) {
        step.writes.push_back(operand_view(i, v, *instance.op, o, table));
        if (o.kind != Operand::Kind::kGradient) continue;
        const View& g = step.writes.back();
        step.accumulate = !gradients_written_.insert({g.buffer, g.offset_bytes}).second;
      }
      s_.steps.push_back(std::move(step));
    }
  }

  // The routers' sums from the message that came, and into the one that goes.
  void take_routes(int index) {
    const int from = s_.instructions[index].stage.routes_in;
    if (from >= 0) carry(index, carried_routes(s_, from), router_sums());
  }
  void pass_routes(int index) {
    const int to = s_.instructions[index].stage.routes_out;
    if (to >= 0) carry(index, router_sums(), carried_routes(s_, to));
  }
  View router_sums() const {
    const std::string sums(kRouterSums);
    return whole(run_.at(sums), program_input(sums, s_.symbols).shape);
  }
  void carry(int index, View from, View to) {
    Step step;
    step.program_op = &carry_routes();
    step.op = step.program_op->name;
    step.kernel = step.program_op->kernel;
    step.instruction = index;
    step.unit = s_.instructions[index].unit;
    step.reads = {std::move(from)};
    step.writes = {std::move(to)};
    s_.steps.push_back(std::move(step));
  }

  void forward(int index) {
    const Instruction& i = s_.instructions[index];
    const ProgramVariant& v = variant_of(s_, i);
    const bool of_reference = is_reference(i);
    Home& output = of_reference ? reference_output_ : output_;
    Homes table(v.tensors.size());
    if (v.x >= 0) table[v.x] = output;
    place_stage_tensors(i, table);
    take_routes(index);
    add_ops(index, v.forward, table);
    pass_routes(index);
    output = v.y >= 0 ? table[v.y] : Home{};
    if (!of_reference) forward_tensors_[i.unit] = std::move(table);
  }

  void backward(int index) {
    const Instruction& i = s_.instructions[index];
    const ProgramVariant& v = variant(i.unit);
    Homes& table = forward_tensors_[i.unit];
    const bool is_head = i.unit + 1 == s_.layout->num_programs;  // its forward has just run
    if (s_.layout->mesh.pp > 1 && !is_head) table.assign(v.tensors.size(), {});
    if (v.dy >= 0) table[v.dy] = backward_in_[i.unit + 1];
    place_stage_tensors(i, table);
    take_routes(index);
    add_ops(index, v.backward, table);
    pass_routes(index);
    backward_in_[i.unit] = v.dx >= 0 ? table[v.dx] : Home{};
  }

  // Instructions without a program: one step named after them.
  void single(int index) {
    const Instruction& i = s_.instructions[index];
    Step step;
    step.op = step.kernel = std::string(name(i.op));
    step.instruction = index;
    step.unit = i.unit;
    step.accumulate = i.accumulate;
    const auto flat = [&](int b) { return stretch(b, 0, s_.buffers[b].bytes / size_bytes(s_.buffers[b].dtype)); };
    switch (i.op) {
      case InstructionOp::kCast:
        step.reads = {shard_range(i.uses[0], i.unit)};
        step.writes = {own_elements(i.uses[1], i.unit)};
        break;
      case InstructionOp::kCopyToHost:
      case InstructionOp::kCopyToDevice: {
        const bool of_shard = i.unit >= 0 && !is_tensor(s_.buffers[i.uses[0]]);
        step.reads = {of_shard ? shard_range(i.uses[0], i.unit) : flat(i.uses[0])};
        if (i.uses.size() == 2)  // else of a save
          step.writes = {of_shard ? own_elements(i.uses[1], i.unit) : flat(i.uses[1])};
        break;
      }
      case InstructionOp::kAllGather:
        step.reads = {own_chunk(i.uses[0], i.unit)};
        step.writes = {unit_flat(i.uses[0], i.unit)};
        break;
      case InstructionOp::kReduceScatter:
        step.reads = {i.hop == Hop::kAcrossNodes ? flat(i.uses[0]) : unit_flat(i.uses[0], i.unit)};
        step.writes = {flat(i.allocates[0])};
        break;
      case InstructionOp::kAccumulate:
        if (i.hop == Hop::kWithinNode) {
          step.reads = {unit_flat(i.uses[0], i.unit), flat(i.uses[1])};
          step.writes = {flat(i.uses[2])};
        } else if (i.hop == Hop::kAcrossNodes) {
          step.reads = {flat(i.uses[0]), flat(i.uses[1])};
          step.writes = {shard_range(i.uses[2], i.unit)};
        } else if (i.uses.size() == 3) {
          step.reads = {own_chunk(i.uses[0], i.unit), flat(i.uses[1])};
          step.writes = {shard_range(i.uses[2], i.unit)};
        } else if (!is_on_device(s_.buffers[i.uses[0]])) {
          step.reads = {shard_range(i.uses[0], i.unit)};
          step.writes = {shard_range(i.uses[1], i.unit)};
        } else {
          step.reads = {unit_flat(i.uses[0], i.unit)};
          step.writes = {unit_flat(i.uses[1], i.unit)};
        }
        break;
      case InstructionOp::kAllReduce:
        step.reads = {i.unit >= 0 ? shard_range(i.uses[0], i.unit) : flat(i.uses[0])};
        step.writes = step.reads;
        break;
      case InstructionOp::kGradNorm:
        step.reads = {flat(i.uses[0])};
        step.writes = {flat(i.uses[1])};
        break;
      case InstructionOp::kFactorSums:
        step.reads = {flat(i.uses[0]), flat(i.uses[1])};
        step.writes = {flat(i.uses[2])};
        break;
      case InstructionOp::kFactorMeans:
        for (size_t n = 0; n < 4; ++n) step.reads.push_back(flat(i.uses[n]));
        for (size_t n = 2; n < 5; ++n) step.writes.push_back(flat(i.uses[n]));
        break;
      case InstructionOp::kMomentum:
        step.reads = {shard_range(i.uses[0], i.unit), flat(i.uses[1]), shard_range(i.uses[2], i.unit)};
        step.writes = {own_elements(i.uses[3], i.unit), shard_range(i.uses[2], i.unit)};
        break;
      case InstructionOp::kOrthogonalize:
        step.reads = {unit_flat(i.uses[0], i.unit)};
        for (const int b : i.uses) step.writes.push_back(flat(b));
        break;
      case InstructionOp::kOptimizerStep:
        for (const int b : i.uses) {
          const bool is_norm = b == i.uses.back();
          step.reads.push_back(i.unit >= 0 && !is_norm ? shard_range(b, i.unit) : flat(b));
        }
        step.writes.assign(step.reads.begin(), step.reads.end() - 1);  // all but the norm
        break;
      case InstructionOp::kRecv: step.writes = {flat(i.uses[0])}; break;
      case InstructionOp::kZero:
        for (const int b : i.uses) step.writes.push_back(flat(b));
        break;
      default:
        for (const int b : i.uses) step.reads.push_back(flat(b));
        break;
    }
    s_.steps.push_back(std::move(step));
  }

  Schedule& s_;
  std::map<const TensorDecl*, std::vector<int64_t>> shapes_;
  std::map<std::string, int> run_;
  std::vector<Homes> forward_tensors_;  // per unit, of the current micro-batch
  std::vector<Home> backward_in_;       // per unit: its dx
  Home output_, reference_output_;      // y of the unit before
  std::set<std::pair<int, int64_t>> gradients_written_;
};

}  // namespace

void expand(Schedule& schedule) {
  CHECK(schedule.steps.empty(), "expanded twice");
  Expander(schedule).run();
}

Schedule compile_expanded(const Plan& plan, Phase phase, int stage) {
  Schedule schedule = compile_schedule(plan, phase, stage);
  expand(schedule);
  return schedule;
}

}  // namespace distsetup
