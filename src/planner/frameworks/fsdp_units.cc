// What is gathered at once and how it is traced: weights of a program's sections become units, sections become traces.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/count.h"
#include "planner/frameworks/fsdp_walk.h"
#include "planner/frameworks/libraries.h"
#include "planner/replay/built_in_programs.h"
#include "planner/replay/program_facts.h"

namespace distsetup::replay {

std::vector<bool> FsdpWalk::trained(const ProgramSection& section) const {
  std::vector<bool> trained(section.weights.size(), true);
  if (s_.finetune == Finetune::kFull) return trained;
  for (size_t i = 0; i < trained.size(); ++i) trained[i] = section.weights[i].adapter;
  return trained;
}

UnitWeight FsdpWalk::make_weight(const ProgramWeight& weight, bool is_trained, int shard, bool any_dimension) const {
  const int64_t rows = weight.out.evaluate(m_.symbols), columns = weight.in.evaluate(m_.symbols);
  UnitWeight made;
  made.elements = rows * columns;
  made.padded = columns * ((rows + shard - 1) / shard * shard);
  // FSDP2 splits rows (a stack of experts: whole ones), FSDP1 the elements of a flat parameter.
  if (any_dimension || (s_.traits().flat_parameters && s_.finetune == Finetune::kFull && rows < shard))
    made.padded = (made.elements + shard - 1) / shard * shard;
  made.trained = is_trained;
  made.quantized = s_.finetune == Finetune::kQlora && weight.matrix && !weight.target.empty();
  // An adapter is stored as wide as what is trained; lora.dtype is what it computes in.
  made.stored_bytes = weight.adapter                   ? std::max(bytes_of(s_.lora.dtype), bytes_of(s_.parameter_dtype))
                      : s_.finetune == Finetune::kFull ? state_.parameter
                      : made.quantized                 ? bytes_of(s_.frozen_dtype)
                                                       : std::max(2.0, bytes_of(s_.frozen_dtype));
  if (made.quantized && !unsharded()) {
    const double packed = s_.frozen_dtype == Dtype::kInt8 ? 1 : 0.5;
    made.scale_bytes = made.stored_bytes - packed;
    made.stored_bytes = packed;
  }
  const auto computed = static_cast<double>(m_.symbols[static_cast<size_t>(Symbol::kComputeBytes)]);
  made.gathered_bytes = s_.finetune == Finetune::kFull || weight.adapter ? computed : std::min(made.stored_bytes, computed);
  if (s_.fp8_all_gather && weight.matrix && !weight.target.empty()) made.gathered_bytes = 1;
  return made;
}

// `experts`: where the stack of experts goes, if it is a unit of its own. Where its ranks are more than the experts, torchtitan splits
// the second dimension of the stacks.
void FsdpWalk::make_kind(const ProgramSection& section, uint64_t facts, UnitWeights& kind, std::vector<int>& places,
                         UnitWeights* experts) const {
  const std::vector<bool> is_trained = trained(section);
  kind.shards = unsharded() ? 1 : shards();
  if (experts != nullptr) experts->shards = expert_shards();
  places.assign(section.weights.size(), -1);
  for (size_t i = 0; i < section.weights.size(); ++i) {
    const ProgramWeight& weight = section.weights[i];
    if (!weight.when.holds(facts)) continue;
    const bool apart = experts != nullptr && weight.expert;
    UnitWeights& to = apart ? *experts : kind;
    const bool any_dimension = apart && int64_t{to.shards} * s_.ep > s_.model.num_experts;
    UnitWeight made = make_weight(weight, is_trained[i], to.shards, any_dimension);
    made.in_block_matrix = weight.matrix && &section == &m_.program->block;
    const int place = static_cast<int>(to.weights.size());
    places[i] = apart ? kExpertPlace - place : place;
    to.weights.push_back(made);
    to.padded += made.padded;
    to.gathered_bytes += as_bytes(made.gathered_bytes, made.padded);
    if (made.trained) to.trained_padded += made.padded;
  }
}

void FsdpWalk::make_block(BlockKind& kind) {
  make_kind(m_.program->block, kind.facts, kind.unit, kind.places,
            experts_apart() && &kind == &m_.blocks[1] ? &kind.experts : nullptr);
}

void FsdpWalk::trace_block(BlockKind& kind, const TraceOptions& keep) {
  const ProgramSection& block = m_.program->block;
  const std::vector<bool> is_trained = trained(block);
  if (s_.recompute == ActivationRecompute::kNone || s_.recompute == ActivationRecompute::kEveryK)
    kind.kept = trace_section(block, kind.facts, m_.symbols, is_trained, keep);
  if (s_.recompute == ActivationRecompute::kNone) return;
  TraceOptions again = keep;
  again.mode = s_.recompute == ActivationRecompute::kOpSelective ? TraceMode::kOpSelective : TraceMode::kFull;
  again.reentrant = s_.reentrant_checkpoint;
  again.keeps_matmuls = s_.software.keeps_every_matmul;
  again.retains_input = retains_;
  kind.recomputed = trace_section(block, kind.facts, m_.symbols, is_trained, again);
}

void FsdpWalk::prepare() {
  const bool eager = s_.software.eager_kernels && s_.program == "torchtitan_compiled";
  m_.program = s_.own_program ? s_.own_program.get() : find_program(eager ? "torchtitan_eager" : s_.program);
  loss_ = s_.software.traced && s_.software.eager_kernels && s_.loss == LossHead::kCompiled ? LossHead::kEager : s_.loss;
  CHECK(m_.program != nullptr, "unknown program '{}'", s_.program);
  fill_symbols(s_, m_.symbols);
  m_.facts = facts_of(s_);
  const ProgramSection& head = m_.program->heads[static_cast<size_t>(loss_)];
  CHECK(!head.ops.empty(), "program '{}' has no loss '{}'", m_.program->id, loss_name(loss_));

  m_.head_apart = s_.software.wrapping != UnitWrapping::kRoot && !unsharded();
  m_.embedding_apart = s_.software.wrapping == UnitWrapping::kAllApart && !unsharded();
  m_.embedding_places.assign(m_.program->embedding.weights.size(), -1);
  // The last stage of a pipeline holds a copy of a tied matrix.
  if (has_embedding() || (has_head() && s_.model.tied_embeddings))
    make_kind(m_.program->embedding, m_.facts, m_.embedding_kind, m_.embedding_places);
  m_.head_places.assign(head.weights.size(), -1);
  if (has_head()) make_kind(head, m_.facts, m_.head_apart ? m_.head_kind : m_.embedding_kind, m_.head_places);
  m_.embedding_kind.shards = m_.head_kind.shards = unsharded() ? 1 : shards();

  for (int64_t layer = 0; layer < s_.model.num_layers; ++layer) m_.blocks[is_expert_layer(s_.model, layer) ? 1 : 0].present = true;
  for (size_t i = 0; i < 2; ++i) {
    m_.blocks[i].facts = facts_of_layer(m_.facts, i == 1);
    if (m_.blocks[i].present) make_block(m_.blocks[i]);
  }
  num_tokens_ = s_.tokens();
  trace();
}

// The sections' events, for the symbols as they are.
void FsdpWalk::trace() {
  const ProgramSection& head = m_.program->heads[static_cast<size_t>(loss_)];
  const int64_t* v = m_.symbols;
  residual_bytes_ =
      v[static_cast<size_t>(Symbol::kResidualBytes)] * s_.model.hidden * num_tokens_ / v[static_cast<size_t>(Symbol::kSequenceShards)];
  TraceOptions keep{TraceMode::kKeepAll, false, residual_bytes_};
  m_.embedding = trace_section(m_.program->embedding, m_.facts, v, trained(m_.program->embedding), keep);
  m_.head = trace_section(head, m_.facts, v, trained(head), keep);
  retains_ = s_.traits().flat_parameters && !unsharded() && s_.finetune != Finetune::kFull && s_.reentrant_checkpoint &&
             s_.recompute == ActivationRecompute::kFull;
  for (BlockKind& kind : m_.blocks) {
    if (kind.present) trace_block(kind, keep);
  }
}

// Which layers are walked, and for how many more each of them stands: of a run of like ones the first, one, and the last.
void FsdpWalk::choose_layers(Blocks blocks) {
  const int64_t all = (s_.model.num_layers + s_.pp - 1) / s_.pp;
  const int64_t start = stage_ == PipelinePart::kLast ? s_.model.num_layers - all : stage_ == PipelinePart::kSecond ? all : 0;
  const int64_t stop = std::min(s_.model.num_layers, start + all);
  const bool shorten = blocks == Blocks::kThree && s_.recompute != ActivationRecompute::kEveryK && !offloads_activations();
  for (int64_t begin = start; begin < stop;) {
    int64_t end = begin + 1;
    while (end < stop && is_expert_layer(s_.model, end) == is_expert_layer(s_.model, begin)) ++end;
    for (int64_t i = begin; i < end; ++i) {
      const bool middle = shorten && end - begin > 3 && i > begin && i + 1 < end;
      if (middle && i > begin + 1) continue;
      layers_.push_back(i);
      left_out_.push_back(middle ? end - begin - 3 : 0);
    }
    begin = end;
  }
}

void FsdpWalk::make_units(Blocks blocks) {
  choose_layers(blocks);
  const auto add = [this](const UnitWeights& kind) {
    units_.emplace_back();
    units_.back().kind = &kind;
    return units_.size() - 1;
  };
  units_.reserve(2 * layers_.size() + 2);
  embedding_unit_ = add(m_.embedding_kind);
  first_block_ = units_.size();
  for (size_t i = 0; i < layers_.size(); ++i) {
    add(block_kind(i).unit);
    block_unit(i).count += left_out_[i];
  }
  expert_units_.assign(layers_.size(), -1);
  for (size_t i = 0; experts_apart() && i < layers_.size(); ++i) {
    if (!is_expert_layer(s_.model, layers_[i])) continue;
    expert_units_[i] = static_cast<int>(add(block_kind(i).experts));
    experts_unit(i)->count += left_out_[i];
    gathers_ahead_ = true;
  }
  head_unit_ = m_.head_apart ? add(m_.head_kind) : embedding_unit_;

  const bool never = !s_.reshard_after_forward || s_.sharding == Sharding::kZero2;
  for (ShardedUnit& unit : units_) unit.reshard_after_forward = !never;
  if (!m_.embedding_apart) units_[embedding_unit_].reshard_after_forward = false;  // the root
  if (m_.head_apart) units_[head_unit_].reshard_after_forward = s_.reshard_root && !never;
  if (s_.software.last_block_stays_gathered && !s_.reshard_root) block_unit(layers_.size() - 1).reshard_after_forward = false;

  ShardingOptions options;
  options.compute_bytes = m_.symbols[static_cast<size_t>(Symbol::kComputeBytes)];
  options.gradient_bytes = options.compute_bytes;
  options.parameter_bytes = bytes_of(s_.parameter_dtype);
  options.reduce_bytes = bytes_of(s_.reduce_dtype);
  options.cast = options.parameter_bytes != static_cast<double>(options.compute_bytes);
  options.shard_from_host = s_.offload.parameters != OffloadPlace::kNone;
  options.gradient_leaves = options.shard_from_host || s_.optimizer_implementation == OptimizerImplementation::kInBackward;
  options.gradients_in_buckets = has_buckets() && s_.software.gradient_as_bucket_view;
  options.cast_once = s_.software.casts_once;
  options.reduce_scatter_pool = s_.software.reduce_scatter_pool;
  // Forward under a reentrant checkpoint runs without gradients and registers no hook on its outputs; the hook of the second forward
  // finds the order of the first one spent (torch/distributed/fsdp/_exec_order_utils.py).
  options.prefetch_in_backward = !(s_.traits().flat_parameters && s_.reentrant_checkpoint);
  // torch/distributed/fsdp/_limiter_utils.py: two all-gathers; without the limiter as many as the CPU runs ahead.
  constexpr int kLimited = 2, kUnlimited = 14;
  options.frees_in_flight = ledger_.counts_only() ? 0 : s_.software.limit_all_gathers ? kLimited : kUnlimited;
  engine_ = unsharded()                   ? make_unsharded_engine(ledger_, options, units_)
            : s_.traits().flat_parameters ? make_fsdp1_engine(ledger_, options, units_)
                                          : make_fsdp2_engine(ledger_, options, units_);
  slots_per_block_ = static_cast<size_t>(std::max({m_.blocks[0].kept.num_slots, m_.blocks[0].recomputed.num_slots,
                                                   m_.blocks[1].kept.num_slots, m_.blocks[1].recomputed.num_slots}));
  block_slots_.resize(slots_per_block_ * layers_.size());
  if (offloads_activations()) offloaded_.resize(block_slots_.size());
  embedding_slots_.resize(static_cast<size_t>(m_.embedding.num_slots));
  head_slots_.resize(static_cast<size_t>(m_.head.num_slots));
}

}  // namespace distsetup::replay
