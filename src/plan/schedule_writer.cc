#include "plan/schedule_writer.h"

#include <algorithm>
#include <set>

#include "plan/layout_cache.h"
#include "plan/pipeline.h"

namespace distsetup {

ScheduleWriter::ScheduleWriter(const Plan& plan, Phase phase, int stage, LayoutDetail detail) : plan_(plan) {
  s_.phase = phase;
  const ProgramSplit split = split_of(plan);
  s_.programs = native_programs(plan.model, split, tuning_of(plan.train));
  s_.layout = cached_layout(s_.programs, plan, stage, detail);
  s_.symbols = native_symbols(plan.model, plan.micro_batch, plan.train.sequence_length, split);
  s_.compute = plan.precision.compute;
  s_.deterministic = plan.train.deterministic;
  s_.is_packed = split.packed;
  derive_variants(plan, num_units(), s_);
  if (plan.mesh.pp > 1) keep_stage();
  constexpr size_t kUsualOfUnit = 24;  // instructions, of a first, a middle and a last micro-batch and the update
  s_.instructions.reserve(kUsualOfUnit * s_.layout->units.size());
}

namespace {

// Rows that a block gathers from other ranks are not kept for backward, which gathers them again; nor are keys and values on their way
// there. How many rows go to which expert is kept. Where heads are exchanged, what comes from a tensor that is dropped is dropped with
// it, and all that attention leaves is or nothing.
std::set<std::string> with_gathered(std::set<std::string> dropped, const Program& program) {
  const auto is_dropped = [&](const std::vector<std::string>& names) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& n) { return dropped.contains(n); });
  };
  for (const Op& op : program.forward) {
    const bool moves = op.kind == OpKind::kCopy || op.kind == OpKind::kAllToAll;
    const bool drops = (op.kind == OpKind::kAllGather && op.group != Group::kEp) || op.kernel.starts_with("kv_") ||
                       (moves && is_dropped(op.reads)) || (op.kernel.starts_with("attention_whole") && is_dropped(op.writes));
    if (drops) dropped.insert(op.writes[0]);
  }
  return dropped;
}

}  // namespace

void derive_variants(const Plan& plan, int num_units, Schedule& s) {
  const auto add_pass = [&](const Program& program, const std::set<std::string>& dropped, std::string_view suffix, Pass pass) {
    s.variants.push_back(cached_variant(s.programs, program, dropped, pass, suffix));
    return static_cast<int>(s.variants.size()) - 1;
  };
  const auto add = [&](const Program& program, const std::set<std::string>& dropped, std::string_view suffix) {
    return add_pass(program, dropped, suffix, s.phase == Phase::kEvaluate ? Pass::kEvaluate : Pass::kTrain);
  };
  const std::set<std::string> dropped(plan.recompute.dropped.begin(), plan.recompute.dropped.end());
  const int embedding = add(s.programs->embedding, {}, "");
  const bool mixed = plan.recompute.policy == Recompute::kEveryK;
  const std::string suffix = dropped.empty() ? "" : mixed ? "/full" : "/" + std::string(distsetup::name(plan.recompute.policy));
  std::vector<int> block, plain;  // per kind of layer
  for (const Program& kind : s.programs->blocks) block.push_back(add(kind, with_gathered(dropped, kind), suffix));
  for (size_t kind = 0; kind < block.size(); ++kind) {
    const Program& program = s.programs->blocks[kind];
    plain.push_back(mixed ? add(program, with_gathered({}, program), "") : block[kind]);
  }
  const int last = add(s.programs->head, {}, "");
  for (int u = 0; u < num_units; ++u) {
    if (u == 0)
      s.unit_variant.push_back(embedding);
    else if (u + 1 == num_units)
      s.unit_variant.push_back(last);
    else {
      const auto kind = static_cast<size_t>(s.programs->kind_of_layer[static_cast<size_t>(u - 1)]);
      s.unit_variant.push_back(!mixed || (u - 1) % plan.recompute.every_k == 0 ? block[kind] : plain[kind]);
    }
  }
  if (const NativePrograms* reference = s.programs->reference.get(); reference != nullptr) {
    const auto add_reference = [&](const Program& program) { return add_pass(program, {}, "", Pass::kEvaluate); };
    s.reference_variant.push_back(add_reference(reference->embedding));
    std::vector<int> kinds;
    for (const Program& kind : reference->blocks) kinds.push_back(add_reference(kind));
    for (const int kind : reference->kind_of_layer) s.reference_variant.push_back(kinds[static_cast<size_t>(kind)]);
    s.reference_variant.push_back(add_reference(reference->head));
  }
}

// Units of other stages run nothing.
void ScheduleWriter::keep_stage() {
  const std::vector<UnitSpan> chunks =
      stage_chunks(plan_.model.num_layers, plan_.mesh.pp, plan_.strategy.virtual_stages, s_.layout->stage);
  for (std::vector<int>* all : {&s_.unit_variant, &s_.reference_variant}) {
    std::vector<int> here(all->size(), -1);
    for (const UnitSpan& chunk : chunks)
      for (int u = chunk.first; u <= chunk.last && !all->empty(); ++u) here[u] = (*all)[u];
    *all = std::move(here);
  }
}

int ScheduleWriter::add_buffer(std::string name, BufferClass buffer_class, int64_t bytes, Dtype dtype, BufferLifetime lifetime,
                               int u) {
  Buffer b;
  b.name = std::move(name);
  b.buffer_class = buffer_class;
  b.bytes = bytes;
  b.dtype = dtype;
  b.lifetime = lifetime;
  b.unit = u;
  b.micro_batch = lifetime == BufferLifetime::kRun ? -1 : micro_batch_;
  s_.buffers.push_back(std::move(b));
  return static_cast<int>(s_.buffers.size()) - 1;
}

int ScheduleWriter::run_buffer(std::string name, BufferClass buffer_class, int64_t numel, Dtype dtype) {
  return add_buffer(std::move(name), buffer_class, numel * size_bytes(dtype), dtype, BufferLifetime::kRun);
}

Instruction& ScheduleWriter::emit(InstructionOp op, int u) {
  Instruction& i = s_.instructions.emplace_back();
  i.op = op;
  i.unit = u;
  i.micro_batch = micro_batch_;
  i.dtype = s_.compute;
  i.phase = phase_;
  return i;
}

Instruction& ScheduleWriter::emit_copy(int u, int from, int to, int64_t bytes, Dtype dtype) {
  const bool goes_down = is_on_device(s_.buffers[static_cast<size_t>(from)]);
  Instruction& i = emit(goes_down ? InstructionOp::kCopyToHost : InstructionOp::kCopyToDevice, u);
  i.stream = goes_down ? Stream::kToHost : Stream::kToDevice;
  i.uses = {from, to};
  i.bytes = bytes;
  i.dtype = dtype;
  i.signals = new_event();
  return i;
}

void ScheduleWriter::copy_to_host(const std::vector<int>& buffers) {
  for (const int b : buffers) {
    if (!is_on_device(s_.buffers[b])) continue;
    Instruction& i = emit(InstructionOp::kCopyToHost, -1);
    i.uses = {b};
    i.bytes = s_.buffers[b].bytes;
    i.dtype = s_.buffers[b].dtype;
  }
}

void ScheduleWriter::close_segment(int64_t repeat) {
  const int begin = s_.segments.empty() ? 0 : s_.segments.back().first_instruction + s_.segments.back().num_instructions;
  s_.segments.push_back({begin, static_cast<int>(s_.instructions.size()) - begin, repeat});
}

}  // namespace distsetup
