// How presets spell the values of a Setup, and what sets a flag of Software by its name.
#pragma once
#include <string_view>

#include "planner/frameworks/setup.h"

namespace distsetup {

template <class E>
struct Named {
  std::string_view text;
  E value;
};

inline constexpr Named<LossHead> kLossHeads[] = {{"eager", LossHead::kEager},
                                                 {"float_in_model", LossHead::kFloatInModel},
                                                 {"hf_shift", LossHead::kHfShift},
                                                 {"compiled", LossHead::kCompiled},
                                                 {"fused_kernel", LossHead::kFusedKernel},
                                                 {"liger", LossHead::kLiger},
                                                 {"chunked", LossHead::kChunked},
                                                 {"chunked_head", LossHead::kChunkedHead},
                                                 {"chunked_logits", LossHead::kChunkedLogits},
                                                 {"cut_cross_entropy", LossHead::kCutCrossEntropy},
                                                 {"low_precision", LossHead::kLowPrecision},
                                                 {"vocabulary_parallel", LossHead::kVocabularyParallel}};
inline constexpr Named<OptimizerImplementation> kImplementations[] = {{"foreach", OptimizerImplementation::kForeach},
                                                                      {"fused", OptimizerImplementation::kFused},
                                                                      {"for_loop", OptimizerImplementation::kForLoop},
                                                                      {"in_backward", OptimizerImplementation::kInBackward}};
inline constexpr Named<UnitWrapping> kWrappings[] = {{"root", UnitWrapping::kRoot},
                                                     {"head_apart", UnitWrapping::kHeadApart},
                                                     {"all_apart", UnitWrapping::kAllApart},
                                                     {"whole", UnitWrapping::kWhole}};

inline constexpr Named<bool Software::*> kSoftwareFlags[] = {
    {"expandable_segments", &Software::expandable_segments},
    {"reduce_scatter_pool", &Software::reduce_scatter_pool},
    {"logits_kept", &Software::logits_kept},
    {"last_block_stays_gathered", &Software::last_block_stays_gathered},
    {"limit_all_gathers", &Software::limit_all_gathers},
    {"gradients_freed_after_step", &Software::gradients_freed_after_step},
    {"attention_output_copied", &Software::attention_output_copied},
    {"residual_in_fp32", &Software::residual_in_fp32},
    {"adapters_in_compute_type", &Software::adapters_in_compute_type},
    {"gradient_as_bucket_view", &Software::gradient_as_bucket_view},
    {"kv_heads_repeated", &Software::kv_heads_repeated},
    {"low_precision_logits_kept", &Software::low_precision_logits_kept},
    {"logits_shifted", &Software::logits_shifted},
    {"fp8_weights_saved", &Software::fp8_weights_saved},
    {"fp8_abs_saved", &Software::fp8_abs_saved},
    {"attention_recomputed", &Software::attention_recomputed},
    {"exchanges_recomputed", &Software::exchanges_recomputed},
    {"fused_qkv", &Software::fused_qkv},
    {"compiled_loss_gathers", &Software::compiled_loss_gathers},
    {"online_softmax", &Software::online_softmax},
    {"eager_kernels", &Software::eager_kernels},
    {"keeps_every_matmul", &Software::keeps_every_matmul},
    {"graph_outlives_backward", &Software::graph_outlives_backward},
    {"accumulates_whole", &Software::accumulates_whole},
    {"stays_gathered", &Software::stays_gathered},
    {"lone_experts_apart", &Software::lone_experts_apart},
    {"casts_once", &Software::casts_once},
    {"traced", &Software::traced},
    {"interpreted", &Software::interpreted},
    {"inductor_kernels", &Software::inductor_kernels},
    {"cuda_graphs", &Software::cuda_graphs},
    {"unbucketed", &Software::unbucketed},
    {"flex_attention", &Software::flex_attention},
    {"cast_kernels", &Software::cast_kernels},
    {"own_container", &Software::own_container},
    {"normed_heads_gathered", &Software::normed_heads_gathered},
    {"gathers_each_input", &Software::gathers_each_input},
    {"tf32_products", &Software::tf32_products},
    {"gathers_as_stored", &Software::gathers_as_stored},
    {"complex_rotary", &Software::complex_rotary},
};

}  // namespace distsetup
