// What FSDP2, FSDP1 and unsharded training do around the blocks: gather parameters, free them, reduce gradients, in which stream's
// pool. A unit is what is gathered at once. Events follow PyTorch 2.x: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py and
// _fsdp_collectives.py (FSDP2), torch/distributed/fsdp/_runtime_utils.py and _flat_param.py (FSDP1).
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "planner/frameworks/setup.h"
#include "planner/replay/ledger.h"

namespace distsetup::replay {

struct UnitWeight {
  int64_t elements = 0, padded = 0;  // padded: dim 0 rounded up to the number of shards
  double stored_bytes = 0;           // per element of the shard, between steps
  double gathered_bytes = 0;         // per element, whole
  int copies = 1;                    // tensor-parallel ranks that hold the same elements
  double scale_bytes = 0;            // per element of a quantised weight: scales beside it, which are not sharded
  bool trained = true, quantized = false;
  bool in_block_matrix = false;  // what Muon takes; it leaves embedding, head and vectors to AdamW
  bool in_head_matrix = false;
};

// The weights of a kind of unit; all blocks share one.
struct UnitWeights {
  std::vector<UnitWeight> weights;
  int64_t padded = 0;          // sum
  int64_t trained_padded = 0;  // of trained ones
  int64_t gathered_bytes = 0;
  int shards = 1;
  bool in_place = false;  // no unit of FSDP: parameters are used where they are, gradients stay where they are made
};

struct ShardedUnit {
  const UnitWeights* kind = nullptr;
  int first_weight = 0;  // in the engine's tables
  int64_t count = 1;     // identical units this one stands for (simulate)
  bool gathered = false;
  bool reshard_after_forward = true;
  Handle gather_output, flat, sharded_gradient, cast_shard;
  Handle whole_gradient;  // FSDP1 under no_sync: of the micro-batches before
  int position = -1;      // in forward order
};

struct ShardingOptions {
  int64_t compute_bytes = 2, gradient_bytes = 2;  // of gathered parameters; of gradients before reduction
  double parameter_bytes = 4, reduce_bytes = 4;
  bool cast = true;  // shards are cast before they are gathered
  bool reduce_scatter_pool = false;
  bool shard_from_host = false;       // parameters live in host memory: the shard is copied in first
  bool gradient_leaves = false;       // a reduced gradient is applied in backward, or copied to the host, and freed at once
  bool gradients_in_buckets = false;  // DDP with gradient_as_bucket_view: autograd's own buffer is a temporary
  bool prefetch_in_backward = true;
  bool stays_gathered = false;          // FSDP2: from one micro-batch to the next
  bool reduces_at_end = false;          // FSDP2 in a pipeline: all units after the last backward, none before
  bool one_unit = false;                // of all parameters: backward is over before anything is reduced
  bool cast_once = false;               // a traced graph casts a shard in forward and gathers it again from there in backward
  bool casts_matrices = false;          // autocast over wider parameters: a matrix is cast for its first product, and the cast kept
  bool casts_end_with_forward = false;  // autocast's own copies; without checkpoints autograd holds them until their backward
  int frees_in_flight = 0;              // FSDP1: resharded units whose memory the limiter's events still hold
};

class ShardingEngine {
 public:
  ShardingEngine(Ledger& ledger, const ShardingOptions& options, std::vector<ShardedUnit>& units);
  virtual ~ShardingEngine() = default;

  virtual void before_forward(ShardedUnit& unit);
  virtual void after_forward(ShardedUnit& unit);
  virtual void end_forward();
  virtual void before_backward(ShardedUnit& unit);
  virtual void after_backward(ShardedUnit& unit);
  virtual void end_backward();
  virtual void prefetch(ShardedUnit& unit) { unshard(unit); }
  void weight_gradient(ShardedUnit& unit, int weight);
  virtual void zero_gradients();
  // FSDP1's no_sync, FSDP2 without gradient sync: until it is over, gradients add up whole on every rank.
  void set_reduces(bool reduces) { reduces_ = reduces; }

 protected:
  virtual void unshard(ShardedUnit& unit);
  virtual void wait(ShardedUnit& unit, bool forward);
  virtual void reshard(ShardedUnit& unit);
  bool has_gradients(const ShardedUnit& unit) const;
  Handle& parameter(const ShardedUnit& unit, size_t weight) { return parameters_[static_cast<size_t>(unit.first_weight) + weight]; }
  Handle& gradient(const ShardedUnit& unit, size_t weight) { return gradients_[static_cast<size_t>(unit.first_weight) + weight]; }
  int64_t gradient_elements(const ShardedUnit& unit) const;
  void free_gradients(ShardedUnit& unit);
  void accumulate(ShardedUnit& unit);
  void reduce(ShardedUnit& unit);
  void reduce_as_one(double flat_bytes);
  void keep(ShardedUnit& unit, Handle reduced, int64_t shard);

  Ledger& ledger_;
  ShardingOptions options_;
  std::vector<ShardedUnit>& units_;
  std::vector<Handle> parameters_, gradients_, sums_;  // by unit and weight; sums_: of micro-batches, in the wire's type
  std::vector<ShardedUnit*> order_;                    // as forward ran
  Handle previous_gather_, reduce_input_;
  bool backward_ = false, reduces_ = true;
};

// The setup's trainer's; `compute_bytes` of a gathered parameter.
std::unique_ptr<ShardingEngine> make_engine(const Setup& setup, bool unsharded, int64_t compute_bytes, Ledger& ledger,
                                            std::vector<ShardedUnit>& units);

}  // namespace distsetup::replay
