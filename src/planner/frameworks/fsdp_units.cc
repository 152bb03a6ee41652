// What is gathered at once and how it is traced: weights of a program's sections become units, sections become traces.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/check.h"
#include "planner/frameworks/frameworks.h"
#include "planner/frameworks/fsdp_walk.h"
#include "planner/frameworks/libraries.h"

namespace distsetup::replay {

std::vector<bool> Walk::trained(const Section& section) const {
  std::vector<bool> trained(section.weights.size(), true);
  if (s_.finetune == Finetune::kFull) return trained;
  for (size_t i = 0; i < trained.size(); ++i) trained[i] = section.weights[i].adapter;
  return trained;
}

void Walk::make_kind(const Section& section, UnitKind& kind, std::vector<int>& places) const {
  const std::vector<bool> is_trained = trained(section);
  const int64_t shard = unsharded() ? 1 : shards();
  places.assign(section.weights.size(), -1);
  for (size_t i = 0; i < section.weights.size(); ++i) {
    const Weight& weight = section.weights[i];
    if (!weight.when.holds(m_.facts)) continue;
    const int64_t rows = weight.out.evaluate(m_.symbols), columns = weight.in.evaluate(m_.symbols);
    UnitWeight made;
    made.elements = rows * columns;
    made.padded = columns * ((rows + shard - 1) / shard * shard);
    // FSDP2 splits rows (a stack of experts: whole ones), FSDP1 the elements of a flat parameter.
    if (s_.framework == Framework::kFsdp1 && s_.finetune == Finetune::kFull && rows < shard)
      made.padded = (made.elements + shard - 1) / shard * shard;
    made.trained = is_trained[i];
    made.quantized = s_.finetune == Finetune::kQlora && weight.matrix && !weight.target.empty();
    made.stored_bytes = weight.adapter                   ? bytes_of(s_.lora.dtype)
                        : s_.finetune == Finetune::kFull ? state_.parameter
                        : made.quantized                 ? bytes_of(s_.frozen_dtype)
                                                         : std::max(2.0, bytes_of(s_.frozen_dtype));
    if (made.quantized && !unsharded()) {
      const double packed = s_.frozen_dtype == StorageDtype::kInt8 ? 1 : 0.5;
      made.scale_bytes = made.stored_bytes - packed;
      made.stored_bytes = packed;
    }
    made.gathered_bytes =
        s_.finetune == Finetune::kFull || weight.adapter ? m_.symbols[static_cast<size_t>(Symbol::kComputeBytes)] : made.stored_bytes;
    places[i] = static_cast<int>(kind.weights.size());
    kind.weights.push_back(made);
    kind.padded += made.padded;
    kind.gathered_bytes += as_bytes(made.gathered_bytes, made.padded);
    if (made.trained) kind.trained_padded += made.padded;
  }
}

void Walk::prepare() {
  m_.program = s_.own_program ? s_.own_program.get() : find_program(s_.program);
  CHECK(m_.program != nullptr, "unknown program '{}'", s_.program);
  fill_symbols(s_, m_.symbols);
  m_.facts = facts_of(s_);
  const Section& head = m_.program->heads[static_cast<size_t>(s_.loss)];
  CHECK(!head.ops.empty(), "program '{}' has no loss '{}'", m_.program->id, loss_name(s_.loss));

  m_.head_apart = s_.software.wrapping != UnitWrapping::kRoot && !unsharded();
  m_.embedding_apart = s_.software.wrapping == UnitWrapping::kAllApart && !unsharded();
  m_.embedding_places.assign(m_.program->embedding.weights.size(), -1);
  // The last stage of a pipeline holds a copy of a tied matrix.
  if (has_embedding() || (has_head() && s_.model.tied_embeddings))
    make_kind(m_.program->embedding, m_.embedding_kind, m_.embedding_places);
  make_kind(m_.program->block, m_.block_kind, m_.block_places);
  m_.head_places.assign(head.weights.size(), -1);
  if (has_head()) make_kind(head, m_.head_apart ? m_.head_kind : m_.embedding_kind, m_.head_places);

  const int64_t* v = m_.symbols;
  residual_bytes_ =
      v[static_cast<size_t>(Symbol::kResidualBytes)] * s_.model.hidden * s_.tokens() / v[static_cast<size_t>(Symbol::kSequenceShards)];
  TraceOptions keep{TraceMode::kKeepAll, false, residual_bytes_};
  m_.embedding = trace_section(m_.program->embedding, m_.facts, v, trained(m_.program->embedding), keep);
  m_.head = trace_section(head, m_.facts, v, trained(head), keep);
  const std::vector<bool> block_trained = trained(m_.program->block);
  if (s_.recompute == ActivationRecompute::kNone || s_.recompute == ActivationRecompute::kEveryK) {
    m_.block_kept = trace_section(m_.program->block, m_.facts, v, block_trained, keep);
  }
  if (s_.recompute != ActivationRecompute::kNone) {
    TraceOptions again = keep;
    again.mode = s_.recompute == ActivationRecompute::kOpSelective ? TraceMode::kOpSelective : TraceMode::kFull;
    again.reentrant = s_.reentrant_checkpoint;
    retains_ = s_.framework == Framework::kFsdp1 && !unsharded() && s_.finetune != Finetune::kFull && s_.reentrant_checkpoint &&
               s_.recompute == ActivationRecompute::kFull;
    again.retains_input = retains_;
    m_.block_recomputed = trace_section(m_.program->block, m_.facts, v, block_trained, again);
  }
}

void Walk::make_units(Blocks blocks) {
  const int64_t all = (s_.model.num_layers + s_.pp - 1) / s_.pp;
  const bool uniform = s_.recompute != ActivationRecompute::kEveryK;
  if (blocks == Blocks::kThree && uniform && !offloads_activations() && all > 3) {
    layers_ = {0, 1, all - 1};
    left_out_ = all - 3;
  } else {
    layers_.resize(static_cast<size_t>(all));
    for (int64_t i = 0; i < all; ++i) layers_[static_cast<size_t>(i)] = i;
  }
  const auto add = [this](const UnitKind& kind) {
    units_.emplace_back();
    units_.back().kind = &kind;
    return units_.size() - 1;
  };
  units_.reserve(layers_.size() + 2);
  embedding_unit_ = add(m_.embedding_kind);
  first_block_ = units_.size();
  for (size_t i = 0; i < layers_.size(); ++i) add(m_.block_kind);
  if (left_out_ > 0) block_unit(1).count += left_out_;
  head_unit_ = m_.head_apart ? add(m_.head_kind) : embedding_unit_;

  const bool never = !s_.reshard_after_forward || s_.sharding == Sharding::kZero2;
  for (Unit& unit : units_) unit.reshard_after_forward = !never;
  if (!m_.embedding_apart) units_[embedding_unit_].reshard_after_forward = false;  // the root
  if (m_.head_apart) units_[head_unit_].reshard_after_forward = s_.reshard_root && !never;
  if (s_.software.last_block_stays_gathered && !s_.reshard_root) block_unit(layers_.size() - 1).reshard_after_forward = false;

  EngineOptions options;
  options.shards = shards();
  options.compute_bytes = m_.symbols[static_cast<size_t>(Symbol::kComputeBytes)];
  options.gradient_bytes = options.compute_bytes;
  options.parameter_bytes = bytes_of(s_.parameter_dtype);
  options.reduce_bytes = bytes_of(s_.reduce_dtype);
  options.cast = options.parameter_bytes != static_cast<double>(options.compute_bytes);
  options.shard_from_host = s_.offload.parameters != OffloadPlace::kNone;
  options.gradient_leaves = options.shard_from_host || s_.optimizer_implementation == OptimizerImplementation::kInBackward;
  options.gradients_in_buckets = has_buckets() && s_.software.gradient_as_bucket_view;
  options.reduce_scatter_pool = s_.software.reduce_scatter_pool;
  // Forward under a reentrant checkpoint runs without gradients and registers no hook on its outputs; the hook of the second forward
  // finds the order of the first one spent (torch/distributed/fsdp/_exec_order_utils.py).
  options.prefetch_in_backward = !(s_.framework == Framework::kFsdp1 && s_.reentrant_checkpoint);
  // torch/distributed/fsdp/_limiter_utils.py: two all-gathers; without the limiter as many as the CPU runs ahead.
  constexpr int kLimited = 2, kUnlimited = 14;
  options.frees_in_flight = ledger_.counts_only() ? 0 : s_.software.limit_all_gathers ? kLimited : kUnlimited;
  engine_ = unsharded()                         ? make_unsharded_engine(ledger_, options, units_)
            : s_.framework == Framework::kFsdp1 ? make_fsdp1_engine(ledger_, options, units_)
                                                : make_fsdp2_engine(ledger_, options, units_);
  slots_per_block_ = static_cast<size_t>(std::max(m_.block_kept.num_slots, m_.block_recomputed.num_slots));
  block_slots_.resize(slots_per_block_ * layers_.size());
  if (offloads_activations()) offloaded_.resize(block_slots_.size());
  embedding_slots_.resize(static_cast<size_t>(m_.embedding.num_slots));
  head_slots_.resize(static_cast<size_t>(m_.head.num_slots));
}

}  // namespace distsetup::replay
