// Schedules as text: for people (--print-schedule), for the digest, and the names of everything in it.
#include "plan/schedule_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "base/check.h"
#include "base/digest.h"
#include "base/quantity.h"
#include "plan/expand.h"
#include "plan/live.h"
#include "plan/pipeline_rules.h"

namespace distsetup {

namespace {

std::string_view digest_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32: return "f32";
    case Dtype::kBf16: return "bf16";
    case Dtype::kF16: return "f16";
    case Dtype::kI64: return "i64";
    case Dtype::kF64: return "f64";
    default: return "compute";
  }
}

// Parts of the text that is digested. It has thousands of lines, too many for formats that are read anew for each.
void put_part(std::string& out, std::string_view text) { out += text; }

void put_part(std::string& out, int64_t number) {
  std::array<char, 20> digits;  // of the least one, with its sign
  out.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr);
}

template <class Number>
void put_part(std::string& out, const std::vector<Number>& numbers) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) out += ',';
    put_part(out, numbers[i]);
  }
}

// What differs from a kernel without attributes.
std::string attributes_text(const OpAttributes& attributes) {
  const OpAttributes none;
  std::string out;
  for (const AttributeField& field : attribute_fields())
    std::visit(
        [&](auto member) {
          if (attributes.*member != none.*member) out += fmt::format(" {}={}", field.name, attributes.*member);
        },
        field.member);
  return out;
}

std::string unit_text(const Schedule& s, int unit) {
  if (unit < 0) return "";
  const UnitKind kind = s.layout->units[unit].kind;
  if (kind == UnitKind::kBlock) return fmt::format("block {}", unit - 1);
  if (kind == UnitKind::kShared && s.layout->chunks_per_stage > 1) return fmt::format("shared {}", unit - s.layout->num_programs);
  if (kind == UnitKind::kFrozen || kind == UnitKind::kExperts) {  // of that unit
    const UnitLayout& u = s.layout->units[unit];
    const std::vector<int>& all = !u.is_frozen     ? s.layout->expert_units
                                  : u.is_quantized ? s.layout->quantized_units
                                  : u.is_reference ? s.layout->reference_units
                                  : u.is_expert    ? s.layout->frozen_expert_units
                                                   : s.layout->frozen_units;
    const auto of = static_cast<int>(std::find(all.begin(), all.end(), unit) - all.begin());
    return fmt::format("{} {}",
                       !u.is_frozen     ? "experts"
                       : u.is_quantized ? "nf4"
                       : u.is_reference ? "reference"
                       : u.is_expert    ? "frozen experts"
                                        : "frozen",
                       unit_text(s, of).substr(0, 5) == "block" ? std::to_string(of - 1) : unit_text(s, of));
  }
  return std::string(name(kind));
}

std::string stage_text(const StageTensors& t) {
  if (t == StageTensors{}) return "";
  std::string out = fmt::format(" kept {} x {} y {} dy {} dx {}", t.kept, t.x, t.y, t.dy, t.dx);
  if (t.routes_in >= 0 || t.routes_out >= 0) out += fmt::format(" routes in {} out {}", t.routes_in, t.routes_out);
  return out;
}

// "P3 14.2 MiB" for each.
std::string buffers_text(const Schedule& s, const std::vector<int>& buffers) {
  std::string out;
  for (const int b : buffers)
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", s.buffers[b].name, format_bytes(s.buffers[b].bytes));
  return out;
}

// By the program of an instruction over each group, each message as one rank has it whole.
std::map<Group, int64_t> exchanged_bytes(const Schedule& s, const Instruction& i) {
  std::map<Group, int64_t> bytes;
  if (!is_program(i.op)) return bytes;
  const ProgramVariant& v = variant_of(s, i);
  for (const OpInstance& op : i.op == InstructionOp::kForward ? v.forward : v.backward) {
    if (!is_communication(op.op->kind) || op.op->kind == OpKind::kWait) continue;
    bytes[op.op->group] += bytes_of(*v.tensors[all_rows(op).index].decl, s.symbols, s.compute);
  }
  return bytes;
}

}  // namespace

std::string format_instruction(const Schedule& s, int index) {
  const Instruction& i = s.instructions[index];
  std::string line = fmt::format("{:4} {:7} {:13} {:10}", index, name(i.stream), name(i.op), unit_text(s, i.unit));
  line += i.micro_batch >= 0 ? fmt::format(" mb{}", i.micro_batch) : "    ";
  std::string rest;
  if (is_reference(i)) rest += " of the reference";
  if (!i.program_variant.empty() && i.program_variant.find('/') != std::string::npos) rest += fmt::format(" as {}", i.program_variant);
  if (is_transfer(i.op))
    rest +=
        fmt::format(" {} stage {} {}", i.op == InstructionOp::kSend ? "to" : "from", peer_stage(s, i.stream), format_bytes(i.bytes));
  else if (i.group != Group::kSelf)
    rest += fmt::format(" over {} {}", name(i.group), format_bytes(i.bytes));
  if (i.hop != Hop::kOnly) rest += fmt::format(" {}", name(i.hop));
  for (const auto& [group, bytes] : exchanged_bytes(s, i)) rest += fmt::format(" over {} {}", name(group), format_bytes(bytes));
  if (i.accumulate) rest += " add";
  if (!i.waits.empty()) rest += fmt::format(" wait e{}", fmt::join(i.waits, ",e"));
  if (i.signals >= 0) rest += fmt::format(" -> e{}", i.signals);
  const bool load = i.op == InstructionOp::kZero;
  if (!i.allocates.empty() && !load) rest += " +[" + buffers_text(s, i.allocates) + "]";
  if (!i.frees.empty()) rest += " -[" + buffers_text(s, i.frees) + "]";
  line += rest;
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string format_schedule(const Schedule& s) {
  const std::vector<InstructionLive> live = walk_live(s);
  std::string out;
  for (const Segment& segment : s.segments) {
    if (segment.repeat != 1) out += fmt::format("     repeat {} times:\n", segment.repeat);
    for (int i = segment.first_instruction; i < segment.first_instruction + segment.num_instructions; ++i)
      out += fmt::format("{:>10}  {}\n", format_bytes(live[i].peak_bytes), format_instruction(s, i));
  }
  return out;
}

std::string canonical_text(const Schedule& s) {
  std::string text;
  const auto add = [&](const auto&... parts) { (put_part(text, parts), ...); };
  add("phase ", name(s.phase), " arena ", s.arena_bytes, " events ", s.num_events, "\n");
  if (s.host_arena_bytes > 0) add("host arena ", s.host_arena_bytes, "\n");
  for (const Segment& g : s.segments) add("segment ", g.first_instruction, " ", g.num_instructions, " x", g.repeat, "\n");
  for (const Instruction& i : s.instructions) {
    add("i ", name(i.op), " u", i.unit, " ", i.program_variant, " ", i.model, " c", i.chunk, " m", i.micro_batch, " b", i.bucket);
    add(" ", name(i.group), " ", i.bytes, " ", digest_name(i.dtype), " ", name(i.stream), " w", i.waits, " s", i.signals, " a",
        i.allocates, " u", i.uses, " f", i.frees);
    if (i.hop != Hop::kOnly) add(" hop ", name(i.hop), " of ", i.node_ranks);
    add(i.accumulate ? " true " : " false ", i.first_step, "+", i.num_steps, stage_text(i.stage), "\n");
  }
  for (const Buffer& b : s.buffers) {
    add("b ", b.name, " ", name(b.buffer_class), " ", b.bytes, " ", digest_name(b.dtype), " ", static_cast<int>(b.place), " ",
        static_cast<int>(b.lifetime));
    add(" u", b.unit, " m", b.micro_batch, " ", b.first_step, "..", b.last_step, " o", b.overlay_of, " @", b.offset_bytes, "\n");
  }
  const auto view = [&](const View& v) {
    add(" ", v.buffer, "@", v.offset_bytes, "[", v.shape, "]", digest_name(v.dtype));
    if (v.own_of == Group::kSelf) return;
    add("own");
    if (v.own_of != Group::kDpShard) add(" of ", name(v.own_of));
  };
  for (const Step& t : s.steps) {
    add("s ", t.op, " ", t.kernel, " i", t.instruction, " ", t.recomputed ? "R" : "", t.accumulate ? "+" : "", " r");
    for (const View& v : t.reads) view(v);
    add(" w");
    for (const View& v : t.writes) view(v);
    if (t.program_op != nullptr) add(attributes_text(t.program_op->attributes));
    if (t.program_op != nullptr && (has_axis(t.program_op->group, Group::kCp) || t.program_op->group == Group::kEp))
      add(" over ", name(t.program_op->group));
    add("\n");
  }
  return text;
}

std::string schedule_digest(const Plan& plan) {
  Sha256 digest;
  const Plan few = with_few_micro_batches(plan);
  for (const Phase phase : {Phase::kLoad, Phase::kStep, Phase::kEvaluate, Phase::kSave})
    for (int stage = 0; stage < plan.mesh.pp; ++stage) digest.update(canonical_text(compile_expanded(few, phase, stage)));
  if (plan.mesh.pp > 1) digest.update(fmt::format("micro-batches {}\n", plan.gradient_accumulation));
  return digest.hex();
}

}  // namespace distsetup
