// Which model answers for which framework, and the bound that none of them goes below.
// State bytes: Adam keeps two moments, a master copy where parameters are 16-bit (ZeRO, arXiv 1910.02054 section 3.1); 8-bit and 4-bit
// AdamW keep two quantised moments with one fp32 scale per block of 256 and 128 (bitsandbytes, torchao). Adafactor keeps a row and a
// column of second moments per matrix, and all of them where its parameters are flat vectors (transformers/optimization.py,
// Adafactor._get_options): shards of FSDP1 and DeepSpeed's partitions.
#include <algorithm>

#include "base/check.h"
#include "model/count.h"
#include "planner/frameworks/frameworks.h"

namespace distsetup {

double bytes_of(StorageDtype dtype) {
  switch (dtype) {
    case StorageDtype::kF32: return 4;
    case StorageDtype::kBf16:
    case StorageDtype::kF16: return 2;
    case StorageDtype::kF8:
    case StorageDtype::kInt8: return 1;
    case StorageDtype::kInt4: return 0.5 + 2.0 / 128;                         // GPTQ: one fp16 scale per group of 128
    case StorageDtype::kNf4: return 0.5 + 4.0 / 64;                           // bitsandbytes: one fp32 scale per 64
    case StorageDtype::kNf4Double: return 0.5 + 1.0 / 64 + 4.0 / (64 * 256);  // 8-bit scales, one fp32 per 256 of them
  }
  CHECK(false, "storage dtype", static_cast<int>(dtype));
  return 0;
}

namespace {

double moments_bytes(const Setup& s, OptimizerKind kind) {
  const double moment = bytes_of(s.state_dtype);
  const bool flat = s.traits().flat_optimizer_states || (s.traits().flat_parameters && s.sharding != Sharding::kDdp);
  switch (kind) {
    case OptimizerKind::kAdamW: return 2 * moment;
    case OptimizerKind::kAdamW8bit: return 2 * (1 + 4.0 / 256);
    case OptimizerKind::kAdamW4bit: return 2 * (0.5 + 4.0 / 128);
    case OptimizerKind::kLion:
    case OptimizerKind::kSgdMomentum:
    case OptimizerKind::kMuon: return moment;  // Muon: of matrices in blocks
    case OptimizerKind::kAdafactor: return flat ? 4 : 0;
    case OptimizerKind::kSgd: return 0;
  }
  return 0;
}

StateBytes states_with(const Setup& s, double moments) {
  return {bytes_of(s.parameter_dtype), bytes_of(s.gradient_dtype), (s.master_copy ? 4 : 0) + moments};
}

}  // namespace

StateBytes state_bytes(const Setup& s) {
  return states_with(s, s.paged_optimizer ? 0 : moments_bytes(s, s.optimizer));  // pages are in host memory when the device is full
}

StateBytes stored_state_bytes(const Setup& s) { return states_with(s, moments_bytes(s, s.optimizer)); }

StateBytes adam_state_bytes(const Setup& s) {
  return states_with(s, moments_bytes(s, s.optimizer == OptimizerKind::kMuon ? OptimizerKind::kAdamW : s.optimizer));
}

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
