#include "plan/schedule.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "plan/nf4.h"

namespace distsetup {

std::string_view name(Phase v) {
  static constexpr std::string_view kNames[] = {"load", "step", "evaluate", "save"};
  return kNames[static_cast<int>(v)];
}
std::string_view name(InstructionOp v) {
  static constexpr std::string_view kNames[] = {
      "AllGather", "ReduceScatter", "AllReduce", "Broadcast",  "Wait",        "Forward",    "Loss",          "Recompute",
      "Backward",  "Accumulate",    "GradNorm",  "FactorSums", "FactorMeans", "Momentum",   "Orthogonalize", "OptimizerStep",
      "Cast",      "Zero",          "Free",      "Send",       "Recv",        "CopyToHost", "CopyToDevice"};
  return kNames[static_cast<int>(v)];
}
std::string_view name(Stream v) {
  static constexpr std::string_view kNames[] = {"compute",     "gather",    "reduce",  "to_next",   "from_previous",
                                                "to_previous", "from_next", "to_host", "to_device", "host"};
  return kNames[static_cast<int>(v)];
}
std::string_view name(BufferClass v) {
  static constexpr std::string_view kNames[] = {"parameter shard", "gathered parameter", "gradient",  "optimizer state", "activation",
                                                "logits",          "communication",      "workspace", "checkpoint copy"};
  return kNames[static_cast<int>(v)];
}

std::string_view name(Hop v) {
  static constexpr std::string_view kNames[] = {"", "within nodes", "across nodes"};
  return kNames[static_cast<int>(v)];
}

int variant_index(const Schedule& s, const Instruction& i) {
  return (is_reference(i) ? s.reference_variant : s.unit_variant)[static_cast<size_t>(i.unit)];
}

const ProgramVariant& variant_of(const Schedule& s, const Instruction& i) {
  return *s.variants[static_cast<size_t>(variant_index(s, i))];
}

int slot_unit(const Schedule& s, const ProgramVariant& v, int unit, int slot) {
  switch (v.homes[static_cast<size_t>(slot)]) {
    case SlotHome::kOwn: return unit;
    case SlotHome::kEmbedding: return 0;
    case SlotHome::kShared: return s.layout->shared_unit(unit);
    case SlotHome::kExperts: return s.layout->expert_unit(unit);
    case SlotHome::kFrozen: return s.layout->frozen_unit(unit);
    case SlotHome::kFrozenEmbedding: return s.layout->frozen_unit(0);
    case SlotHome::kFrozenExperts: return s.layout->frozen_expert_unit(unit);
    case SlotHome::kQuantized: return s.layout->quantized_unit(unit);
    case SlotHome::kReference: return s.layout->reference_unit(unit);
    case SlotHome::kReferenceEmbedding: return s.layout->reference_unit(0);
  }
  return -1;
}

const Slot& slot_of(const Schedule& s, const ProgramVariant& v, int unit, int slot) {
  const int home = slot_unit(s, v, unit, slot);
  const std::string& own = v.slots[static_cast<size_t>(slot)];
  const std::string name = s.layout->is_shared(home) ? shared_slot(unit, own) : own;
  const std::vector<Slot>& slots = s.layout->units[static_cast<size_t>(home)].slots;
  const auto found = std::find_if(slots.begin(), slots.end(), [&](const Slot& one) { return one.name == name; });
  CHECK(found != slots.end(), "unit {} has no slot '{}'", home, name);
  return *found;
}

bool holds_unit(const Schedule& s, int buffer, int unit) {
  const Buffer& b = s.buffers[static_cast<size_t>(buffer)];
  if (b.unit >= 0) return b.unit == unit;
  const UnitLayout& of = s.layout->units[static_cast<size_t>(unit)];
  if (b.lifetime != BufferLifetime::kRun || s.layout->is_shared(unit)) return false;
  if (of.shard_ranks > 1 && b.buffer_class != BufferClass::kGatheredParameter) return false;  // a rank's shard of it
  if (b.name == kQuantizedBuffer || of.is_quantized) return b.name == kQuantizedBuffer && of.is_quantized;
  return (b.name == kFrozenBuffer) == of.is_frozen;
}

int replica_of(const Schedule& s, int unit) {
  if (s.layout->units[static_cast<size_t>(unit)].numel == 0) return -1;
  for (int b = 0; b < static_cast<int>(s.buffers.size()); ++b) {
    const Buffer& buffer = s.buffers[static_cast<size_t>(b)];
    const bool is_replica = buffer.lifetime == BufferLifetime::kRun && buffer.buffer_class == BufferClass::kGatheredParameter;
    if (is_replica && holds_unit(s, b, unit)) return b;
  }
  return -1;
}

namespace {

TouchedUnits touched_by(const Schedule& s, const ProgramVariant& v, InstructionOp op, int unit) {
  TouchedUnits touched;
  for (const OpInstance& instance : op == InstructionOp::kForward ? v.forward : v.backward) {
    for (const Operand& r : instance.reads)
      if (r.kind == Operand::Kind::kParameter) touched.parameters.insert(slot_unit(s, v, unit, r.index));
    for (const Operand& w : instance.writes)
      if (w.kind == Operand::Kind::kGradient) touched.gradients.insert(slot_unit(s, v, unit, w.index));
  }
  return touched;
}

}  // namespace

TouchedUnits touched_units(const Schedule& s, const Instruction& i) {
  if (variant_index(s, i) < 0) return {};  // another stage has the unit
  return touched_by(s, variant_of(s, i), i.op, i.unit);
}

std::vector<TouchedUnits> touched_by_units(const Schedule& s, InstructionOp op, std::string_view model) {
  const std::vector<int>& variants = model == kReference ? s.reference_variant : s.unit_variant;
  if (variants.empty()) return std::vector<TouchedUnits>(static_cast<size_t>(s.layout->num_programs));
  std::vector<TouchedUnits> touched;
  touched.reserve(static_cast<size_t>(s.layout->num_programs));
  std::vector<int> first(s.variants.size(), -1);  // units of one variant differ in themselves alone
  for (int u = 0; u < s.layout->num_programs; ++u) {
    const int variant = variants[static_cast<size_t>(u)];
    if (variant < 0) {
      touched.emplace_back();
      continue;
    }
    int& known = first[static_cast<size_t>(variant)];
    if (known < 0) {
      touched.push_back(touched_by(s, *s.variants[static_cast<size_t>(variant)], op, known = u));
      continue;
    }
    const auto in_its_place = [&](int unit) {
      if (unit == known) return u;
      for (const std::vector<int>* beside : {&s.layout->shared_units, &s.layout->expert_units, &s.layout->frozen_units,
                                             &s.layout->frozen_expert_units, &s.layout->quantized_units, &s.layout->reference_units})
        if ((*beside)[static_cast<size_t>(known)] == unit) return (*beside)[static_cast<size_t>(u)];
      return unit;
    };
    TouchedUnits& of_unit = touched.emplace_back();
    const TouchedUnits& alike = touched[static_cast<size_t>(known)];
    for (const int unit : alike.parameters) of_unit.parameters.insert(in_its_place(unit));
    for (const int unit : alike.gradients) of_unit.gradients.insert(in_its_place(unit));
  }
  return touched;
}

bool has_backward(const Schedule& s, int unit) {
  const int variant = s.unit_variant[static_cast<size_t>(unit)];
  return variant >= 0 && !s.variants[static_cast<size_t>(variant)]->program->backward.empty();
}

bool reads_tokens(const Schedule& s, const Instruction& i) {
  // The reference is the first to read a micro-batch, where it runs.
  if (s.layout->mesh.pp == 1) return i.op == InstructionOp::kForward && i.unit == 0 && is_reference(i) == runs_reference(s);
  // Several micro-batches are under way: whoever reads where documents lie gets those of its own.
  if (s.is_packed) return i.op == InstructionOp::kForward || i.op == InstructionOp::kBackward;
  if (i.op == InstructionOp::kForward) return i.unit == 0 || i.unit + 1 == s.layout->num_programs;
  return i.op == InstructionOp::kBackward && i.unit == 0;
}

bool is_program(InstructionOp op) {
  using enum InstructionOp;
  return op == kForward || op == kLoss || op == kRecompute || op == kBackward;
}

bool belongs_to_update(const Schedule& s, const Instruction& i) {
  using enum InstructionOp;
  if (i.op == kFactorSums || i.op == kFactorMeans || i.op == kMomentum || i.op == kOrthogonalize) return true;
  if (i.op != kAllGather && i.op != kReduceScatter && i.op != kAllReduce && i.op != kAccumulate) return false;
  return s.buffers[static_cast<size_t>(i.uses[0])].buffer_class == BufferClass::kOptimizerState;
}

bool is_transfer(InstructionOp op) { return op == InstructionOp::kSend || op == InstructionOp::kRecv; }
bool moves_activation(const Schedule& schedule, const Instruction& copy) {
  return schedule.buffers[static_cast<size_t>(copy.uses[0])].buffer_class == BufferClass::kActivation;
}

bool moves_update(const Schedule& schedule, const Instruction& copy) {
  return schedule.buffers[static_cast<size_t>(copy.uses[0])].buffer_class == BufferClass::kOptimizerState;
}

bool carries_activations(Stream stream) { return stream == Stream::kToNext || stream == Stream::kFromPrevious; }

int peer_stage(int stage, int stages, Stream stream) {
  const bool is_next = stream == Stream::kToNext || stream == Stream::kFromNext;
  return (stage + (is_next ? 1 : stages - 1)) % stages;
}

int peer_stage(const Schedule& s, Stream stream) { return peer_stage(s.layout->stage, s.layout->mesh.pp, stream); }

Group exchange_group(const ProgramVariant& variant) {
  Group group = Group::kSelf;
  bool over_ep = false;
  for (const Op& op : variant.program->forward) {
    if (!is_communication(op.kind)) continue;
    over_ep = over_ep || op.group == Group::kEp;
    if (op.group != Group::kEp) group = group | op.group;
  }
  if (!over_ep) return group;
  // Who shares experts, sequences or matrices is among these.
  return group == Group::kSelf ? Group::kEp : group | Group::kDpShard | Group::kCp;
}

View rows_of_chunk(const Op& op, View all) {
  if (!is_of_chunk(op)) return all;
  const int64_t T = all.shape.front(), row_bytes = num_bytes(all) / T;
  const int64_t begin = chunk_begin(op.chunk, op.chunks, T), end = chunk_begin(op.chunk + 1, op.chunks, T);
  all.offset_bytes += begin * row_bytes;
  all.shape.front() = end - begin;
  return all;
}

int64_t num_bytes(const std::vector<int64_t>& shape, Dtype dtype) {
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  return dtype == Dtype::kNf4Double ? nf4_record(numel).num_bytes : numel * size_bytes(dtype);
}

int64_t num_bytes(const View& view) { return num_bytes(view.shape, view.dtype); }

int root_buffer(const std::vector<Buffer>& buffers, int buffer) {
  while (buffers[buffer].overlay_of >= 0) buffer = buffers[buffer].overlay_of;
  return buffer;
}

int64_t run_bytes(const Schedule& schedule) {
  int64_t sum = 0;
  for (const Buffer& b : schedule.buffers)
    if (b.lifetime == BufferLifetime::kRun && is_on_device(b)) sum += b.bytes;
  return sum;
}

int64_t run_bytes(const Schedule& schedule, BufferClass which) {
  int64_t sum = 0;
  for (const Buffer& b : schedule.buffers)
    if (b.lifetime == BufferLifetime::kRun && is_on_device(b) && b.buffer_class == which) sum += b.bytes;
  return sum;
}

int64_t host_bytes(const Schedule& schedule) {
  int64_t sum = schedule.host_arena_bytes;
  for (const Buffer& b : schedule.buffers)
    if (b.lifetime == BufferLifetime::kRun && !is_on_device(b) && b.place != Place::kDisk) sum += b.bytes;
  return sum;
}

int64_t disk_bytes(const Schedule& schedule) {
  int64_t sum = 0;
  for (const Buffer& b : schedule.buffers)
    if (b.place == Place::kDisk) sum += b.bytes;
  return sum;
}

}  // namespace distsetup
