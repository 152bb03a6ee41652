// Nothing is gathered or reduced: what stays is autograd's, and autocast's.
#include "planner/frameworks/fsdp_unsharded.h"

namespace distsetup::replay {
namespace {

// Whole parameters everywhere; gradients stay where autograd made them. Autocast's casts stand in for what FSDP would gather
// (aten/src/ATen/autocast_mode.cpp, cached_cast; torch/utils/checkpoint.py enters autocast again).
class UnshardedEngine : public ShardingEngine {
 public:
  using ShardingEngine::ShardingEngine;
  void after_forward(ShardedUnit&) override {}
  void end_forward() override {
    if (!options_.casts_end_with_forward) return;
    for (ShardedUnit& unit : units_) {
      const ClassBytes before = ledger_.live();
      drop(unit, false);
      if (unit.count > 1) ledger_.repeat_change_since(before, unit.count - 1);
    }
  }
  void before_backward(ShardedUnit& unit) override {
    if (!head_is_through_) {
      for (ShardedUnit& any : units_) drop(any, true);
    }
    head_is_through_ = true;
    unshard(unit);
  }
  void after_backward(ShardedUnit& unit) override {
    drop(unit, false);
    if (options_.gradient_leaves || options_.gradients_in_buckets) free_gradients(unit);
  }
  void end_backward() override {
    for (ShardedUnit& unit : units_) {
      drop(unit, true);
      after_backward(unit);
    }
    head_is_through_ = false;
  }
  void prefetch(ShardedUnit&) override {}
  void zero_gradients() override {
    for (ShardedUnit& unit : units_) free_gradients(unit);
  }

 protected:
  void unshard(ShardedUnit& unit) override {
    for (size_t i = 0; options_.casts_matrices && i < unit.kind->weights.size(); ++i) {
      const UnitWeight& weight = unit.kind->weights[i];
      Handle& cast = parameter(unit, i);
      if (!cast && (weight.in_block_matrix || (weight.in_head_matrix && !head_is_through_)))
        cast = ledger_.allocate(options_.compute_bytes * weight.elements, MemoryClass::kGathered);
    }
  }
  void wait(ShardedUnit&, bool) override {}
  void reshard(ShardedUnit&) override {}

 private:
  void drop(ShardedUnit& unit, bool of_head) {
    for (size_t i = 0; options_.casts_matrices && i < unit.kind->weights.size(); ++i) {
      if (unit.kind->weights[i].in_head_matrix == of_head) ledger_.free(parameter(unit, i));
    }
  }

  bool head_is_through_ = false;
};

}  // namespace

std::unique_ptr<ShardingEngine> make_unsharded_engine(Ledger& ledger, const ShardingOptions& options,
                                                      std::vector<ShardedUnit>& units) {
  return std::make_unique<UnshardedEngine>(ledger, options, units);
}

}  // namespace distsetup::replay
