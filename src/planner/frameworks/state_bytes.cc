// Adam keeps two moments, a master copy where parameters are 16-bit (ZeRO, arXiv 1910.02054 section 3.1); 8-bit and 4-bit AdamW keep
// two quantised moments with one fp32 scale per block of 256 and 128 (bitsandbytes, torchao). Adafactor keeps a row and a column of
// second moments per matrix, and all of them where its parameters are flat vectors (transformers/optimization.py,
// Adafactor._get_options): shards of FSDP1 and DeepSpeed's partitions.
#include "planner/frameworks/state_bytes.h"

#include "base/check.h"

namespace distsetup {

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
  return {bytes_of(s.parameter_dtype), bytes_of(s.gradient_dtype), (s.master_copy ? s.master_bytes : 0) + moments};
}

}  // namespace

StateBytes state_bytes(const Setup& s) {
  return states_with(s, s.paged_optimizer ? 0 : moments_bytes(s, s.optimizer));  // pages are in host memory when the device is full
}

StateBytes stored_state_bytes(const Setup& s) { return states_with(s, moments_bytes(s, s.optimizer)); }

StateBytes adam_state_bytes(const Setup& s) {
  return states_with(s, moments_bytes(s, s.optimizer == OptimizerKind::kMuon ? OptimizerKind::kAdamW : s.optimizer));
}

int64_t reference_logits_bytes(const Setup& setup, int64_t num_tokens) {
  const bool whole = setup.loss == LossHead::kEager || setup.loss == LossHead::kHfShift || setup.loss == LossHead::kFloatInModel;
  const bool of_transformers = setup.program.starts_with("hf_");  // which the trainers of DPO drive
  return setup.frozen_reference && whole && of_transformers ? 4 * setup.model.vocabulary * num_tokens : 0;
}

}  // namespace distsetup
