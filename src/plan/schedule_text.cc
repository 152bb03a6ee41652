// Schedules as text: for people (--print-schedule), for the digest, and the names of everything in it.
#include "plan/schedule_text.h"

#include <fmt/compile.h>

#include <algorithm>
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

// Formats are compiled: a list has thousands of lines.
std::string canonical_text(const Schedule& s) {
  fmt::memory_buffer text;
  const fmt::appender out(text);
  fmt::format_to(out, "phase {} arena {} events {}\n", name(s.phase), s.arena_bytes, s.num_events);
  if (s.host_arena_bytes > 0) fmt::format_to(out, "host arena {}\n", s.host_arena_bytes);
  for (const Segment& g : s.segments) fmt::format_to(out, "segment {} {} x{}\n", g.first_instruction, g.num_instructions, g.repeat);
  for (const Instruction& i : s.instructions)
    fmt::format_to(out, FMT_COMPILE("i {} u{} {} {} c{} m{} b{} {} {} {} {} w{} s{} a{} u{} f{} {} {}+{}{}\n"), name(i.op), i.unit,
                   i.program_variant, i.model, i.chunk, i.micro_batch, i.bucket, name(i.group), i.bytes, digest_name(i.dtype),
                   name(i.stream), fmt::join(i.waits, ","), i.signals, fmt::join(i.allocates, ","), fmt::join(i.uses, ","),
                   fmt::join(i.frees, ","), i.accumulate, i.first_step, i.num_steps, stage_text(i.stage));
  for (const Buffer& b : s.buffers)
    fmt::format_to(out, FMT_COMPILE("b {} {} {} {} {} {} u{} m{} {}..{} o{} @{}\n"), b.name, name(b.buffer_class), b.bytes,
                   digest_name(b.dtype), static_cast<int>(b.place), static_cast<int>(b.lifetime), b.unit, b.micro_batch, b.first_step,
                   b.last_step, b.overlay_of, b.offset_bytes);
  const auto view = [&](const View& v) {
    fmt::format_to(out, FMT_COMPILE(" {}@{}[{}]{}"), v.buffer, v.offset_bytes, fmt::join(v.shape, ","), digest_name(v.dtype));
    if (v.own_of == Group::kSelf) return;
    text.append(v.own_of == Group::kDpShard ? "own" : fmt::format("own of {}", name(v.own_of)));
  };
  for (const Step& t : s.steps) {
    fmt::format_to(out, FMT_COMPILE("s {} {} i{} {}{} r"), t.op, t.kernel, t.instruction, t.recomputed ? "R" : "",
                   t.accumulate ? "+" : "");
    for (const View& v : t.reads) view(v);
    text.append(std::string_view(" w"));
    for (const View& v : t.writes) view(v);
    if (t.program_op != nullptr) text.append(attributes_text(t.program_op->attributes));
    if (t.program_op != nullptr && (has_axis(t.program_op->group, Group::kCp) || t.program_op->group == Group::kEp))
      text.append(fmt::format(" over {}", name(t.program_op->group)));
    text.push_back('\n');
  }
  return fmt::to_string(text);
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
