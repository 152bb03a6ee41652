// What is gathered at once and how it is traced: weights of a program's sections become units, sections become traces.
#include "planner/frameworks/fsdp_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/count.h"
#include "planner/frameworks/experts.h"
#include "planner/frameworks/libraries.h"
#include "planner/frameworks/state_bytes.h"
#include "planner/replay/built_in_programs.h"
#include "planner/replay/program_facts.h"

namespace distsetup::replay {

FsdpModel::FsdpModel(const Setup& setup, Blocks which, PipelinePart rank_part) : s(setup), part(rank_part), state(state_bytes(setup)) {
  prepare();
  make_units(which);
}

void FsdpModel::set_sequence(int64_t micro_batch, int64_t sequence_length) {
  num_tokens = micro_batch * sequence_length / s.cp;
  symbols[static_cast<size_t>(Symbol::kTokens)] = num_tokens;
  symbols[static_cast<size_t>(Symbol::kSequence)] = sequence_length / s.cp;
  trace();
}

std::vector<bool> FsdpModel::trained(const ProgramSection& section) const {
  std::vector<bool> trained(section.weights.size(), true);
  if (s.finetune == Finetune::kFull) return trained;
  for (size_t i = 0; i < trained.size(); ++i) trained[i] = section.weights[i].adapter;
  return trained;
}

UnitWeight FsdpModel::make_weight(const ProgramWeight& weight, bool is_trained, int shard, bool any_dimension) const {
  const int64_t rows = weight.out.evaluate(symbols), columns = weight.in.evaluate(symbols);
  UnitWeight made;
  made.elements = rows * columns;
  made.padded = columns * ((rows + shard - 1) / shard * shard);
  // FSDP2 splits rows (a stack of experts: whole ones), FSDP1 the elements of a flat parameter.
  if (any_dimension || (s.traits().flat_parameters && s.finetune == Finetune::kFull && rows < shard))
    made.padded = (made.elements + shard - 1) / shard * shard;
  made.trained = is_trained;
  const bool stack = weight.expert && quantises_experts(s);
  made.quantized = s.finetune == Finetune::kQlora && weight.matrix && (!weight.target.empty() || stack);
  // An adapter is stored as wide as what is trained; lora.dtype is what it computes in.
  made.stored_bytes = weight.adapter                  ? std::max(bytes_of(s.lora.dtype), bytes_of(s.parameter_dtype))
                      : s.finetune == Finetune::kFull ? state.parameter
                      : made.quantized                ? bytes_of(s.frozen_dtype)
                      : s.software.unquantised_in_fp32 && s.finetune == Finetune::kQlora ? 4
                                                                                         : std::max(2.0, bytes_of(s.frozen_dtype));
  if (made.quantized && !unsharded()) {
    const double packed = s.frozen_dtype == Dtype::kInt8 ? 1 : 0.5;
    made.scale_bytes = made.stored_bytes - packed;
    made.stored_bytes = packed;
  }
  const auto computed =
      s.software.gathers_as_stored ? made.stored_bytes : static_cast<double>(symbols[static_cast<size_t>(Symbol::kComputeBytes)]);
  made.gathered_bytes = s.finetune == Finetune::kFull || weight.adapter ? computed : std::min(made.stored_bytes, computed);
  if (s.fp8_all_gather && weight.matrix && !weight.target.empty()) made.gathered_bytes = 1;
  return made;
}

// Ranks of tensor parallelism that hold the same part of a weight: all of them, where its size does not tell how many there are.
int FsdpModel::copies_of(const ProgramWeight& weight) const {
  if (s.tp == 1 || (weight.expert && s.ep > 1)) return 1;
  SymbolValues whole;
  std::copy(std::begin(symbols), std::end(symbols), std::begin(whole));
  whole[static_cast<size_t>(Symbol::kTensorParallel)] = whole[static_cast<size_t>(Symbol::kExpertTensorParallel)] = 1;
  const auto all = static_cast<double>(weight.out.evaluate(whole) * weight.in.evaluate(whole));
  const auto own = static_cast<double>(weight.out.evaluate(symbols) * weight.in.evaluate(symbols));
  return all > 0 ? std::max(1, static_cast<int>(std::lround(s.tp * own / all))) : 1;
}

// `experts`: where the stack of experts goes, if it is a unit of its own. Where its ranks are more than the experts, torchtitan splits
// the second dimension of the stacks.
void FsdpModel::make_kind(const ProgramSection& section, uint64_t facts, UnitWeights& kind, std::vector<int>& places,
                          UnitWeights* experts) const {
  const std::vector<bool> is_trained = trained(section);
  kind.shards = unsharded() ? 1 : shards();
  if (experts != nullptr) {
    experts->shards = expert_shards();
    experts->in_place = s.software.lone_experts_apart && experts->shards == 1;
  }
  places.assign(section.weights.size(), -1);
  for (size_t i = 0; i < section.weights.size(); ++i) {
    const ProgramWeight& weight = section.weights[i];
    if (!weight.when.holds(facts)) continue;
    const bool apart = experts != nullptr && weight.expert;
    UnitWeights& to = apart ? *experts : kind;
    const bool any_dimension = (apart && int64_t{to.shards} * s.ep > s.model.num_experts) || (weight.expert && s.model.experts_joined);
    UnitWeight made = make_weight(weight, is_trained[i], to.shards, any_dimension);
    made.copies = apart ? 1 : copies_of(weight);  // experts of their own are split over these ranks too
    made.in_block_matrix = weight.matrix && &section == &program->block;
    made.in_head_matrix = weight.matrix && &section != &program->block && &section != &program->embedding;
    const int place = static_cast<int>(to.weights.size());
    places[i] = apart ? kExpertPlace - place : place;
    to.weights.push_back(made);
    to.padded += made.padded;
    to.gathered_bytes += as_bytes(made.gathered_bytes, made.padded);
    if (made.trained) to.trained_padded += made.padded;
  }
}

void FsdpModel::make_block(BlockKind& kind) {
  make_kind(program->block, kind.facts, kind.unit, kind.places, experts_apart() && &kind == &blocks[1] ? &kind.experts : nullptr);
}

void FsdpModel::trace_block(BlockKind& kind, const TraceOptions& keep) {
  const ProgramSection& block = program->block;
  const std::vector<bool> is_trained = trained(block);
  if (s.recompute == ActivationRecompute::kNone || s.recompute == ActivationRecompute::kEveryK)
    kind.kept = trace_section(block, kind.facts, symbols, is_trained, keep);
  if (s.recompute == ActivationRecompute::kNone) return;
  TraceOptions again = keep;
  again.mode = s.recompute == ActivationRecompute::kOpSelective ? TraceMode::kOpSelective : TraceMode::kFull;
  again.reentrant = s.reentrant_checkpoint;
  again.keeps_matmuls = s.software.keeps_every_matmul;
  again.retains_input = retains;
  if (has_blocks_in_16_bits()) {
    kind.kept = trace_section(block, kind.facts, symbols, is_trained, again);
    again.drops_matmuls = true;
  }
  kind.recomputed = trace_section(block, kind.facts, symbols, is_trained, again);
}

void FsdpModel::prepare() {
  const bool eager = s.software.eager_kernels && s.program == "torchtitan_compiled";
  program = s.own_program ? s.own_program.get() : find_program(eager ? "torchtitan_eager" : s.program);
  loss = s.software.traced && s.software.eager_kernels && s.loss == LossHead::kCompiled ? LossHead::kEager : s.loss;
  CHECK(program != nullptr, "unknown program '{}'", s.program);
  fill_symbols(s, symbols);
  facts = facts_of(s);
  const ProgramSection& head = program->heads[static_cast<size_t>(loss)];
  CHECK(!head.ops.empty(), "program '{}' has no loss '{}'", program->id, loss_name(loss));

  const bool root_has_all = s.software.wrapping == UnitWrapping::kRoot || s.software.wrapping == UnitWrapping::kWhole;
  head_apart = !root_has_all && !unsharded();
  embedding_apart = s.software.wrapping == UnitWrapping::kAllApart && !unsharded();
  embedding_places.assign(program->embedding.weights.size(), -1);
  // The last stage of a pipeline holds a copy of a tied matrix.
  if (has_embedding() || (has_head() && s.model.tied_embeddings))
    make_kind(program->embedding, facts, embedding_kind, embedding_places);
  head_places.assign(head.weights.size(), -1);
  if (has_head()) make_kind(head, facts, head_apart ? head_kind : embedding_kind, head_places);
  embedding_kind.shards = head_kind.shards = unsharded() ? 1 : shards();

  for (int64_t layer = 0; layer < s.model.num_layers; ++layer) blocks[is_expert_layer(s.model, layer) ? 1 : 0].present = true;
  for (size_t i = 0; i < 2; ++i) {
    blocks[i].facts = facts_of_layer(facts, i == 1);
    if (blocks[i].present) make_block(blocks[i]);
  }
  num_tokens = s.tokens();
  trace();
}

// The sections' events, for the symbols as they are.
void FsdpModel::trace() {
  const ProgramSection& head = program->heads[static_cast<size_t>(loss)];
  const int64_t* v = symbols;
  residual_bytes =
      v[static_cast<size_t>(Symbol::kResidualBytes)] * s.model.hidden * num_tokens / v[static_cast<size_t>(Symbol::kSequenceShards)];
  TraceOptions keep{TraceMode::kKeepAll, false, residual_bytes};
  embedding_trace = trace_section(program->embedding, facts, v, trained(program->embedding), keep);
  head_trace = trace_section(head, facts, v, trained(head), keep);
  retains = s.traits().flat_parameters && !unsharded() && s.finetune != Finetune::kFull && s.reentrant_checkpoint &&
            s.recompute == ActivationRecompute::kFull;
  for (BlockKind& kind : blocks) {
    if (kind.present) trace_block(kind, keep);
  }
}

// torchtitan/distributed/pipeline_parallel.py, generate_llm_fqn_per_model_part: embedding and head count as a layer each, the first
// stages take what is left over; a rank has every p-th stage.
int64_t FsdpModel::layers_of(PipelinePart rank_part) const {
  const int64_t stages = int64_t{s.pp} * std::max(s.virtual_stages, 1), units = s.model.num_layers + 2;
  const int64_t rank = rank_part == PipelinePart::kFirst ? 0 : rank_part == PipelinePart::kSecond ? 1 : s.pp - 1;
  int64_t layers = rank_part == PipelinePart::kSecond ? 0 : -1;
  for (int64_t stage = rank; stage < stages; stage += s.pp) layers += units / stages + (stage < units % stages ? 1 : 0);
  return std::clamp<int64_t>(layers, 1, s.model.num_layers);
}

// Which layers are walked, and for how many more each of them stands: of a run of like ones the first, one, and the last.
void FsdpModel::choose_layers(Blocks which) {
  const int64_t all = part == PipelinePart::kWhole ? s.model.num_layers : layers_of(part);
  const int64_t start = part == PipelinePart::kLast     ? s.model.num_layers - all
                        : part == PipelinePart::kSecond ? std::min(layers_of(PipelinePart::kFirst), s.model.num_layers - all)
                                                        : 0;
  const int64_t stop = std::min(s.model.num_layers, start + all);
  const bool shorten = which == Blocks::kThree && s.software.wrapping != UnitWrapping::kWhole &&
                       s.recompute != ActivationRecompute::kEveryK && !has_blocks_in_16_bits() && !offloads_activations();
  for (int64_t begin = start; begin < stop;) {
    int64_t end = begin + 1;
    while (end < stop && is_expert_layer(s.model, end) == is_expert_layer(s.model, begin)) ++end;
    for (int64_t i = begin; i < end; ++i) {
      const bool middle = shorten && end - begin > 3 && i > begin && i + 1 < end;
      if (middle && i > begin + 1) continue;
      layers.push_back(i);
      left_out.push_back(middle ? end - begin - 3 : 0);
    }
    begin = end;
  }
}

void FsdpModel::make_units(Blocks which) {
  choose_layers(which);
  const auto add = [this](const UnitWeights& kind) {
    units.emplace_back();
    units.back().kind = &kind;
    return units.size() - 1;
  };
  units.reserve(2 * layers.size() + 2);
  embedding_unit = add(embedding_kind);
  first_block = units.size();
  for (size_t i = 0; i < layers.size(); ++i) {
    add(block_kind(i).unit);
    block_unit(i).count += left_out[i];
  }
  expert_units.assign(layers.size(), -1);
  for (size_t i = 0; experts_apart() && i < layers.size(); ++i) {
    if (!is_expert_layer(s.model, layers[i])) continue;
    expert_units[i] = static_cast<int>(add(block_kind(i).experts));
    experts_unit(i)->count += left_out[i];
    gathers_ahead = true;
  }
  head_unit = head_apart ? add(head_kind) : embedding_unit;

  const bool never = !s.reshard_after_forward || s.sharding == Sharding::kZero2 || s.software.wrapping == UnitWrapping::kWhole;
  for (ShardedUnit& unit : units) unit.reshard_after_forward = !never;
  if (!embedding_apart) units[embedding_unit].reshard_after_forward = false;  // the root
  if (head_apart) units[head_unit].reshard_after_forward = s.reshard_root && !never;
  if (s.software.last_block_stays_gathered && !s.reshard_root) block_unit(layers.size() - 1).reshard_after_forward = false;
}

}  // namespace distsetup::replay
