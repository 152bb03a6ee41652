// The events of fsdp_engine.h. FSDP2 is the base; FSDP1 and unsharded training (fsdp_unsharded.cc) differ where they say so.
#include "planner/frameworks/fsdp_engine.h"

#include <utility>

#include "planner/frameworks/fsdp_unsharded.h"

namespace distsetup::replay {
namespace {

int64_t scaled(double bytes_per_element, int64_t elements) {
  return static_cast<int64_t>(bytes_per_element * static_cast<double>(elements));
}

}  // namespace

ShardingEngine::ShardingEngine(Ledger& ledger, const ShardingOptions& options, std::vector<ShardedUnit>& units)
    : ledger_(ledger), options_(options), units_(units) {
  int weights = 0;
  for (ShardedUnit& unit : units) {
    unit.first_weight = weights;
    weights += static_cast<int>(unit.kind->weights.size());
  }
  parameters_.resize(static_cast<size_t>(weights));
  gradients_.resize(static_cast<size_t>(weights));
  sums_.resize(static_cast<size_t>(weights));
  order_.reserve(units.size());
}

// Copy-in stream: the shard in the compute dtype, then the output of the all-gather.
void ShardingEngine::unshard(ShardedUnit& unit) {
  if (unit.gathered || unit.gather_output || unit.kind->in_place) return;
  Handle shard = std::exchange(unit.cast_shard, {});
  if (!shard && (options_.cast || options_.shard_from_host))
    shard = ledger_.allocate(unit.kind->gathered_bytes / unit.kind->shards, MemoryClass::kCommunication, AllocatorStream::kGather);
  unit.gather_output = ledger_.allocate(unit.kind->gathered_bytes, MemoryClass::kGathered, AllocatorStream::kGather);
  if (options_.cast_once && !backward_) {
    unit.cast_shard = shard;
  } else {
    ledger_.free(shard);
  }
}

// Copy-out into one buffer per parameter. Forward keeps the gather's output until the next unit has been waited for.
void ShardingEngine::wait(ShardedUnit& unit, bool forward) {
  if (!unit.gather_output) return;
  if (forward) ledger_.free(previous_gather_);
  for (size_t i = 0; i < unit.kind->weights.size(); ++i) {
    parameter(unit, i) =
        ledger_.allocate(scaled(unit.kind->weights[i].gathered_bytes, unit.kind->weights[i].padded), MemoryClass::kGathered);
  }
  unit.gathered = true;
  if (forward) {
    previous_gather_ = unit.gather_output;
    unit.gather_output = {};
  } else {
    ledger_.free(unit.gather_output);
  }
}

void ShardingEngine::reshard(ShardedUnit& unit) {
  if (!unit.gathered) return;
  for (size_t i = 0; i < unit.kind->weights.size(); ++i) ledger_.free(parameter(unit, i));
  unit.gathered = false;
}

void ShardingEngine::before_forward(ShardedUnit& unit) {
  unshard(unit);
  wait(unit, true);
}

void ShardingEngine::after_forward(ShardedUnit& unit) {
  unit.position = static_cast<int>(order_.size());
  order_.push_back(&unit);
  if (unit.reshard_after_forward) reshard(unit);
}

void ShardingEngine::end_forward() {
  ledger_.free(previous_gather_);
  backward_ = true;
}

void ShardingEngine::before_backward(ShardedUnit& unit) {
  unshard(unit);
  wait(unit, false);
  if (options_.prefetch_in_backward && unit.position > 0) prefetch(*order_[static_cast<size_t>(unit.position) - 1]);
}

// A second contribution in one pass (tied weights) is made beside the first, then added to it.
void ShardingEngine::weight_gradient(ShardedUnit& unit, int weight) {
  const auto index = static_cast<size_t>(weight);
  Handle& held = gradient(unit, index);
  const int64_t bytes = options_.gradient_bytes * unit.kind->weights[index].elements;
  if (!held) {
    held = ledger_.allocate(bytes, MemoryClass::kGradient);
    return;
  }
  Handle second = ledger_.allocate(bytes, MemoryClass::kGradient);
  ledger_.free(second);
}

bool ShardingEngine::has_gradients(const ShardedUnit& unit) const {
  for (size_t i = 0; i < unit.kind->weights.size(); ++i) {
    const size_t index = static_cast<size_t>(unit.first_weight) + i;
    if (gradients_[index] || sums_[index]) return true;
  }
  return false;
}

int64_t ShardingEngine::gradient_elements(const ShardedUnit& unit) const {
  int64_t elements = 0;
  for (size_t i = 0; i < unit.kind->weights.size(); ++i) {
    const size_t index = static_cast<size_t>(unit.first_weight) + i;
    if (gradients_[index] || sums_[index]) elements += unit.kind->weights[i].padded;
  }
  return elements;
}

void ShardingEngine::free_gradients(ShardedUnit& unit) {
  for (size_t i = 0; i < unit.kind->weights.size(); ++i) {
    ledger_.free(gradient(unit, i));
    ledger_.free(sums_[static_cast<size_t>(unit.first_weight) + i]);
  }
}

// Gradients of a micro-batch that is not reduced are added to a sum in the wire's type
// (torch/distributed/fsdp/_fully_shard/_fsdp_param.py, to_accumulated_grad_if_needed); of that type they add up where they are.
void ShardingEngine::accumulate(ShardedUnit& unit) {
  if (options_.reduce_bytes == static_cast<double>(options_.gradient_bytes)) return;
  for (size_t i = 0; i < unit.kind->weights.size(); ++i) {
    Handle& made = gradient(unit, i);
    if (!made) continue;
    Handle& sum = sums_[static_cast<size_t>(unit.first_weight) + i];
    if (!sum) sum = ledger_.allocate(scaled(options_.reduce_bytes, unit.kind->weights[i].elements), MemoryClass::kGradient);
    ledger_.free(made);
  }
}

// The reduced shard stays as the gradient, or is added to the one of the micro-batch before.
void ShardingEngine::keep(ShardedUnit& unit, Handle reduced, int64_t shard) {
  if (options_.reduce_bytes != options_.parameter_bytes) {
    Handle cast = ledger_.allocate(scaled(options_.parameter_bytes, shard), MemoryClass::kGradient, AllocatorStream::kReduce);
    ledger_.free(reduced);
    reduced = cast;
  }
  if (unit.sharded_gradient || options_.gradient_leaves) {
    ledger_.free(reduced);
  } else {
    unit.sharded_gradient = reduced;
  }
}

void ShardingEngine::after_backward(ShardedUnit& unit) {
  if (unit.kind->in_place || options_.one_unit) return;
  const bool reduces = reduces_ && !options_.reduces_at_end;
  if (reduces || !options_.stays_gathered) reshard(unit);
  if (!has_gradients(unit)) return;
  if (reduces) {
    reduce(unit);
  } else {
    accumulate(unit);
  }
}

void ShardingEngine::reduce(ShardedUnit& unit) {
  ledger_.free(reduce_input_);
  const int64_t elements = gradient_elements(unit);
  Handle input = ledger_.allocate(scaled(options_.reduce_bytes, elements), MemoryClass::kCommunication,
                                  options_.reduce_scatter_pool ? AllocatorStream::kReduce : AllocatorStream::kCompute);
  free_gradients(unit);
  const int64_t shard = elements / unit.kind->shards;
  keep(unit, ledger_.allocate(scaled(options_.reduce_bytes, shard), MemoryClass::kGradient, AllocatorStream::kReduce), shard);
  if (options_.reduce_scatter_pool) {
    ledger_.free(input);
  } else {
    reduce_input_ = input;
  }
}

// All gradients beside one vector of them, which is then reduced.
void ShardingEngine::reduce_as_one(double flat_bytes) {
  std::vector<std::pair<ShardedUnit*, Handle>> flat;
  for (ShardedUnit& unit : units_) {
    if (has_gradients(unit))
      flat.emplace_back(&unit, ledger_.allocate(scaled(flat_bytes, gradient_elements(unit)), MemoryClass::kGradient));
  }
  for (auto& [unit, vector] : flat) {
    const int64_t shard = gradient_elements(*unit) / unit->kind->shards;
    free_gradients(*unit);
    reshard(*unit);
    keep(*unit, ledger_.allocate(scaled(options_.reduce_bytes, shard), MemoryClass::kGradient, AllocatorStream::kReduce), shard);
  }
  for (auto& [unit, vector] : flat) ledger_.free(vector);
}

void ShardingEngine::end_backward() {
  if (options_.one_unit && reduces_) reduce_as_one(options_.reduce_bytes);
  for (ShardedUnit& unit : units_) {
    if (unit.kind->in_place) continue;
    const ClassBytes before = ledger_.live();
    if (reduces_ || !options_.stays_gathered) reshard(unit);
    if (has_gradients(unit)) {
      if (reduces_) {
        reduce(unit);
      } else {
        accumulate(unit);
      }
    }
    if (unit.count > 1 && options_.stays_gathered) ledger_.repeat_change_since(before, unit.count - 1);
    ledger_.free(unit.cast_shard);
    ledger_.free(unit.gather_output);
  }
  ledger_.free(reduce_input_);
  backward_ = false;
  order_.clear();
}

void ShardingEngine::zero_gradients() {
  for (ShardedUnit& unit : units_) {
    ledger_.free(unit.sharded_gradient);
    if (unit.kind->in_place) free_gradients(unit);
  }
}

namespace {

// One flat parameter per unit. Freed through record_stream: memory comes back when the limiter's event has passed.
class Fsdp1Engine : public ShardingEngine {
 public:
  using ShardingEngine::ShardingEngine;

  void before_forward(ShardedUnit& unit) override {
    unshard(unit);
    wait(unit, true);
  }
  void end_forward() override {}

  void after_backward(ShardedUnit& unit) override {
    if (options_.one_unit) return;
    if (has_gradients(unit)) {
      after_last_gradient(unit, flat_gradient(unit));
    } else {
      reshard(unit);
    }
  }

  void end_backward() override {
    std::vector<Handle> flat(units_.size());
    for (size_t i = 0; i < units_.size() && options_.one_unit; ++i) {
      if (has_gradients(units_[i])) flat[i] = flat_gradient(units_[i]);  // one vector beside all gradients
    }
    for (size_t i = 0; i < units_.size(); ++i) {
      ShardedUnit& unit = units_[i];
      if (has_gradients(unit)) {
        after_last_gradient(unit, options_.one_unit ? flat[i] : flat_gradient(unit));
      } else {
        reshard(unit);
      }
      ledger_.free(unit.flat);
      unit.gathered = false;
    }
    for (Handle& handle : retired_) ledger_.free_retired(handle);
    retired_.clear();
    order_.clear();
  }

 protected:
  void unshard(ShardedUnit& unit) override {
    if (unit.gathered || unit.flat) return;
    Handle shard;
    if (options_.cast || options_.shard_from_host)
      shard = ledger_.allocate(unit.kind->gathered_bytes / unit.kind->shards, MemoryClass::kCommunication, AllocatorStream::kCast);
    unit.flat = ledger_.allocate(unit.kind->gathered_bytes, MemoryClass::kGathered, AllocatorStream::kGather);
    ledger_.free(shard);
  }
  void wait(ShardedUnit& unit, bool /*forward*/) override { unit.gathered = static_cast<bool>(unit.flat); }
  void reshard(ShardedUnit& unit) override {
    if (!unit.gathered) return;
    ledger_.retire(unit.flat);
    retired_.push_back(unit.flat);
    unit.flat = {};
    unit.gathered = false;
    while (retired_.size() > static_cast<size_t>(options_.frees_in_flight)) {
      ledger_.free_retired(retired_.front());
      retired_.erase(retired_.begin());
    }
  }

 private:
  Handle flat_gradient(const ShardedUnit& unit) {  // adapters are units of their own, flat together here
    return ledger_.allocate(options_.gradient_bytes * unit.kind->trained_padded, MemoryClass::kGradient);
  }
  void after_last_gradient(ShardedUnit& unit, Handle flat) {
    const int64_t elements = unit.kind->trained_padded;
    free_gradients(unit);
    reshard(unit);
    if (unit.whole_gradient) {  // added to what the micro-batches before left
      ledger_.free(flat);
      flat = std::exchange(unit.whole_gradient, {});
    }
    if (!reduces_) {
      unit.whole_gradient = flat;
      return;
    }
    if (options_.reduce_bytes != static_cast<double>(options_.gradient_bytes)) {
      Handle cast = ledger_.allocate(scaled(options_.reduce_bytes, elements), MemoryClass::kCommunication, AllocatorStream::kReduce);
      ledger_.free(flat);
      flat = cast;
    }
    const int64_t shard = elements / unit.kind->shards;
    Handle reduced = ledger_.allocate(scaled(options_.reduce_bytes, shard), MemoryClass::kGradient, AllocatorStream::kReduce);
    ledger_.free(flat);
    keep(unit, reduced, shard);
  }

  std::vector<Handle> retired_;
};

}  // namespace

std::unique_ptr<ShardingEngine> make_engine(const Setup& s, bool unsharded, int64_t compute_bytes, Ledger& ledger,
                                            std::vector<ShardedUnit>& units) {
  ShardingOptions options;
  options.compute_bytes = compute_bytes;
  options.gradient_bytes = s.software.gathers_as_stored ? static_cast<int64_t>(bytes_of(s.parameter_dtype)) : options.compute_bytes;
  // Autograd makes a gradient in its parameter's type. FSDP's policy has gathered it in the compute type; a module by itself is
  // computed under autocast, which leaves its parameters as they are.
  if (s.traits().never_shards && s.finetune == Finetune::kFull) {
    options.gradient_bytes = static_cast<int64_t>(bytes_of(s.parameter_dtype));
    options.casts_matrices = !s.compiled && options.gradient_bytes > compute_bytes;
    options.casts_end_with_forward = s.recompute == ActivationRecompute::kFull;
  }
  options.parameter_bytes = bytes_of(s.parameter_dtype);
  options.reduce_bytes = bytes_of(s.reduce_dtype);
  options.cast = !s.software.gathers_as_stored && options.parameter_bytes != static_cast<double>(options.compute_bytes);
  options.one_unit = s.software.wrapping == UnitWrapping::kWhole;
  options.shard_from_host = s.offload.parameters != OffloadPlace::kNone;
  options.gradient_leaves = options.shard_from_host || s.optimizer_implementation == OptimizerImplementation::kInBackward;
  options.gradients_in_buckets = s.traits().never_shards && s.dp_replicate > 1 && s.software.gradient_as_bucket_view;
  options.cast_once = s.software.casts_once;
  // A pipeline's stages keep what they gathered, and reduce when the last micro-batch is through
  // (torch/distributed/pipelining/stage.py, backward_maybe_with_nosync).
  options.stays_gathered = s.stays_gathered();
  options.reduces_at_end = s.pp > 1 && s.traits().pipelines_reduce_last;
  options.reduce_scatter_pool = s.software.reduce_scatter_pool;
  // Forward under a reentrant checkpoint runs without gradients and registers no hook on its outputs; the hook of the second forward
  // finds the order of the first one spent (torch/distributed/fsdp/_exec_order_utils.py).
  options.prefetch_in_backward =
      !(s.traits().flat_parameters && (s.reentrant_checkpoint || s.backward_prefetch != BackwardPrefetch::kPre));
  // torch/distributed/fsdp/_limiter_utils.py: two all-gathers; without the limiter as many as the CPU runs ahead.
  constexpr int kLimited = 2, kUnlimited = 14;
  options.frees_in_flight = ledger.counts_only() ? 0 : s.software.limit_all_gathers ? kLimited : kUnlimited;
  if (unsharded) return make_unsharded_engine(ledger, options, units);
  if (s.traits().flat_parameters) return std::make_unique<Fsdp1Engine>(ledger, options, units);
  return std::make_unique<ShardingEngine>(ledger, options, units);
}

}  // namespace distsetup::replay
