#include "planner/frameworks/memory.h"

#include <algorithm>

#include "base/check.h"
#include "model/count.h"
#include "planner/frameworks/state_bytes.h"

namespace distsetup {

int64_t bound_bytes(const Setup& s) {
  const bool fsdp = s.traits().zero2_shards_parameters;
  // FSDP2's experts are on as many ranks as the rest, by expert parallelism or by shards.
  const double all = static_cast<double>(count_parameters(s.model).total) / (s.tp * s.pp * (fsdp ? 1 : s.ep));
  const double shards = static_cast<double>(s.dp_shard) * s.cp;
  if (s.finetune != Finetune::kFull || s.offload.optimizer != OffloadPlace::kNone || s.offload.parameters != OffloadPlace::kNone ||
      s.optimizer_implementation == OptimizerImplementation::kInBackward) {
    const bool split = s.sharding == Sharding::kZero3 || (fsdp && s.sharding != Sharding::kDdp);
    const double held = s.finetune == Finetune::kFull ? bytes_of(s.parameter_dtype) : std::min(2.0, bytes_of(s.frozen_dtype));
    return s.offload.parameters != OffloadPlace::kNone ? 0 : static_cast<int64_t>(all * held / (split ? shards : 1));
  }
  const StateBytes b = state_bytes(s);
  switch (s.sharding) {
    case Sharding::kDdp: return static_cast<int64_t>(all * (b.parameter + b.optimizer));
    case Sharding::kZero1:
    case Sharding::kZero2: return static_cast<int64_t>(all * (b.parameter / (fsdp ? shards : 1) + b.optimizer / shards));
    case Sharding::kZero3: return static_cast<int64_t>(all * (b.parameter + b.optimizer) / shards);
  }
  return 0;
}

MemoryEstimate simulate_memory(const Setup& setup) { return setup.traits().memory(setup, Depth::kSimulate); }
MemoryEstimate replay_memory(const Setup& setup) { return setup.traits().memory(setup, Depth::kReplay); }

}  // namespace distsetup
