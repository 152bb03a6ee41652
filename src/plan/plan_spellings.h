// The words that stand for enumerations of the plan, in files and messages.
#pragma once
#include <span>
#include <string_view>

#include "plan/plan.h"

namespace distsetup {

// Enumerations and their spellings, for name(), the writer and the reader.
template <class E>
struct Spelling {
  E value;
  std::string_view text;
};
template <class E>
std::span<const Spelling<E>> spellings();

#define DISTSETUP_SPELLINGS(E, ...)                        \
  template <>                                              \
  inline std::span<const Spelling<E>> spellings<E>() {     \
    static constexpr Spelling<E> kTable[] = {__VA_ARGS__}; \
    return kTable;                                         \
  }
DISTSETUP_SPELLINGS(Verdict, {Verdict::kFits, "fits"}, {Verdict::kTight, "tight"}, {Verdict::kDoesNotFit, "does_not_fit"})
DISTSETUP_SPELLINGS(Sharding, {Sharding::kDdp, "ddp"}, {Sharding::kZero1, "zero1"}, {Sharding::kZero2, "zero2"},
                    {Sharding::kZero3, "zero3"})
DISTSETUP_SPELLINGS(Recompute, {Recompute::kNone, "none"}, {Recompute::kSelective, "selective"},
                    {Recompute::kKeepAttention, "keep_attention"}, {Recompute::kFull, "full"}, {Recompute::kEveryK, "every_k"})
DISTSETUP_SPELLINGS(Dtype, {Dtype::kF32, "fp32"}, {Dtype::kBf16, "bf16"}, {Dtype::kF16, "fp16"}, {Dtype::kF8, "fp8"})
DISTSETUP_SPELLINGS(OffloadPlace, {OffloadPlace::kNone, "none"}, {OffloadPlace::kHost, "host"}, {OffloadPlace::kNvme, "nvme"})
DISTSETUP_SPELLINGS(LearningRateSchedule, {LearningRateSchedule::kCosine, "cosine"}, {LearningRateSchedule::kLinear, "linear"},
                    {LearningRateSchedule::kConstant, "constant"}, {LearningRateSchedule::kWsd, "wsd"},
                    {LearningRateSchedule::kInverseSqrt, "inverse_sqrt"}, {LearningRateSchedule::kStep, "step"})
DISTSETUP_SPELLINGS(CheckpointMetric, {CheckpointMetric::kHeldOutLoss, "held_out_loss"}, {CheckpointMetric::kLoss, "loss"})
DISTSETUP_SPELLINGS(Accelerator, {Accelerator::kCuda, "cuda"}, {Accelerator::kCpu, "cpu"})
DISTSETUP_SPELLINGS(GemmTiles, {GemmTiles::kOneSm, "one_sm"}, {GemmTiles::kTwoSm, "two_sm"},
                    {GemmTiles::kNoTensorCores, "no_tensor_cores"})
DISTSETUP_SPELLINGS(Attention, {Attention::kGrouped, "grouped"}, {Attention::kLatent, "latent"})
DISTSETUP_SPELLINGS(Norm, {Norm::kRms, "rms"}, {Norm::kLayer, "layer"}, {Norm::kLayerNoBias, "layer_no_bias"})
DISTSETUP_SPELLINGS(Severity, {Severity::kError, "error"}, {Severity::kWarning, "warning"}, {Severity::kNote, "note"})
#undef DISTSETUP_SPELLINGS

template <class E>
std::string_view spelling_of(E value) {
  for (const auto& s : spellings<E>())
    if (s.value == value) return s.text;
  return "?";
}

}  // namespace distsetup
