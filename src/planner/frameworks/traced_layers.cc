// Plays a trace without an allocator: live bytes after each event, beside the input, which the block before has made.
#include "planner/frameworks/traced_layers.h"

#include <algorithm>

#include "model/count.h"
#include "planner/replay/allocator.h"
#include "planner/replay/built_in_programs.h"
#include "planner/replay/program_facts.h"

namespace distsetup {
namespace {

using replay::Event;
using replay::Trace;

struct Player {
  std::vector<int64_t> sizes;
  std::vector<bool> holds_logits;  // by slot: a free does not say what it frees
  int64_t live = 0, logits = 0, peak = 0, logits_at_peak = 0;

  void set(int16_t slot, int64_t bytes) {
    sizes[static_cast<size_t>(slot)] = bytes;
    live += bytes;
    note();
  }
  void note() {
    if (live <= peak) return;
    peak = live;
    logits_at_peak = logits;
  }
  void play(const std::vector<Event>& events) {
    for (const Event& event : events) {
      int64_t& size = sizes[static_cast<size_t>(event.slot)];
      if (event.kind == Event::Kind::kAllocate) {
        size = replay::rounded_size(event.bytes);
        live += size;
        holds_logits[static_cast<size_t>(event.slot)] = event.memory_class == replay::MemoryClass::kLogits;
        if (holds_logits[static_cast<size_t>(event.slot)]) logits += size;
        note();
      } else if (event.kind == Event::Kind::kFree) {
        live -= size;
        if (holds_logits[static_cast<size_t>(event.slot)]) logits -= size;
        size = 0;
      }
    }
  }
};

PartBytes bytes_of_trace(const Trace& trace, int64_t input_bytes, bool is_block) {
  PartBytes out;
  Player player;
  player.sizes.resize(static_cast<size_t>(std::max<int16_t>(trace.num_slots, 2)));
  player.holds_logits.resize(player.sizes.size());
  player.set(Trace::kInput, input_bytes);
  player.play(trace.forward);
  out.forward_peak = player.peak;
  out.logits_at_peak = player.logits_at_peak;
  if (is_block) {
    if (trace.input_freed_forward) {
      player.live -= player.sizes[Trace::kInput];
      player.sizes[Trace::kInput] = 0;
    }
    player.live -= player.sizes[static_cast<size_t>(trace.output)];  // the next block's input
  }
  out.saved = out.kept = player.live;
  player.peak = 0;
  if (is_block) player.set(Trace::kGradient, input_bytes);
  player.note();
  player.play(trace.backward);
  out.backward_peak = player.peak;
  if (out.backward_peak > out.forward_peak) out.logits_at_peak = player.logits_at_peak;
  return out;
}

}  // namespace

std::unique_ptr<const TracedLayers> traced_layers(const Setup& s) {
  const replay::BlockProgram* program = s.own_program ? s.own_program.get() : replay::find_program(s.program);
  if (program == nullptr) return nullptr;
  const replay::ProgramSection& stated = program->heads[static_cast<size_t>(s.loss)];
  const replay::ProgramSection& head = stated.ops.empty() ? program->heads[static_cast<size_t>(LossHead::kEager)] : stated;
  auto out = std::make_unique<TracedLayers>();
  replay::SymbolValues symbols{};
  replay::fill_symbols(s, symbols);
  const uint64_t facts = replay::facts_of(s);
  const auto at = [&](replay::Symbol symbol) { return symbols[static_cast<size_t>(symbol)]; };
  out->input_bytes = at(replay::Symbol::kResidualBytes) * s.model.hidden * s.tokens() / at(replay::Symbol::kSequenceShards);

  const bool full = s.finetune == Finetune::kFull;
  const auto trained = [&](const replay::ProgramSection& section) {
    std::vector<bool> flags;
    for (const replay::ProgramWeight& weight : section.weights) flags.push_back(full || weight.adapter);
    return flags;
  };
  const auto elements = [&](const replay::ProgramSection& section, uint64_t when, std::vector<int64_t>& into) {
    for (const replay::ProgramWeight& weight : section.weights) {
      if (weight.when.holds(when) && !weight.adapter) into.push_back(weight.out.evaluate(symbols) * weight.in.evaluate(symbols));
    }
  };
  elements(program->embedding, facts, out->embedding_weights);
  elements(head, facts, out->head_weights);

  const replay::TraceOptions keep{replay::TraceMode::kKeepAll, false, out->input_bytes, false};
  const replay::ProgramSection& section = program->block;
  for (const bool experts : {false, true}) {
    const auto has = [&](int64_t layer) { return is_expert_layer(s.model, layer) == experts; };
    bool present = false;
    for (int64_t layer = 0; layer < s.model.num_layers && !present; ++layer) present = has(layer);
    if (!present) continue;
    TracedBlock& block = out->blocks[experts ? 1 : 0];
    const uint64_t here = replay::facts_of_layer(facts, experts);
    elements(section, here, block.weights);
    for (const replay::ProgramWeight& weight : section.weights) {
      const bool made = weight.when.holds(here) && (full || weight.adapter);
      block.gradients.push_back(made ? weight.out.evaluate(symbols) * weight.in.evaluate(symbols) : 0);
      if (weight.adapter) block.adapter_elements += block.gradients.back();
      if (weight.when.holds(here) && weight.matrix && !weight.target.empty())
        block.linear_elements += weight.out.evaluate(symbols) * weight.in.evaluate(symbols);
    }
    block.kept = replay::trace_section(section, here, symbols, trained(section), keep);
    block.kept_bytes = bytes_of_trace(block.kept, out->input_bytes, true);
    if (s.recompute == ActivationRecompute::kNone) continue;
    replay::TraceOptions again = keep;
    again.mode = s.recompute == ActivationRecompute::kOpSelective ? replay::TraceMode::kOpSelective : replay::TraceMode::kFull;
    again.reentrant = s.reentrant_checkpoint;
    block.again = replay::trace_section(section, here, symbols, trained(section), again);
    block.again_bytes = bytes_of_trace(block.again, out->input_bytes, true);
  }
  out->head = replay::trace_section(head, facts, symbols, trained(head), keep);
  out->head_bytes = bytes_of_trace(out->head, out->input_bytes, false);
  for (const int16_t slot : out->head.held) {
    for (const Event& event : out->head.forward) {
      if (event.kind == Event::Kind::kAllocate && event.slot == slot) out->held_bytes += replay::rounded_size(event.bytes);
    }
  }
  return out;
}

}  // namespace distsetup
