// The table. Sources: PyTorch torch/distributed (DDP, FSDP1, FSDP2), torchtitan, DeepSpeed runtime/zero and runtime/pipe, Megatron-LM
// megatron/core and megatron/training/arguments.py.
#include "planner/frameworks/traits.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "planner/frameworks/deepspeed.h"
#include "planner/frameworks/fsdp.h"
#include "planner/frameworks/lean.h"
#include "planner/frameworks/megatron.h"

namespace distsetup {
namespace {

constexpr FrameworkTraits kDdpTraits = {
    .framework = Framework::kDdp,
    .id = "ddp",
    .label = "DDP",
    .memory = fsdp_memory,
    .tensor_parallel = false,
    .never_shards = true,
    .autocast = true,  // the Hugging Face Trainer's
};

constexpr FrameworkTraits kFsdp1Traits = {
    .framework = Framework::kFsdp1,
    .id = "fsdp1",
    .label = "FSDP1",
    .memory = fsdp_memory,
    .zero2_shards_parameters = true,
    .flat_parameters = true,
    .copies = BufferCopies::kGradientCast,
};

constexpr FrameworkTraits kFsdp2Traits = {
    .framework = Framework::kFsdp2,
    .id = "fsdp2",
    .label = "FSDP2",
    .memory = fsdp_memory,
    .pipelines = true,
    .interleaved_pipelines = true,
    .expert_parallel = true,
    .zero2_shards_parameters = true,
    .zero2_is_unresharded_zero3 = true,
    .experts_borrow_tensor_ranks = true,  // torchtitan/distributed/parallel_dims.py
    .pipelines_reduce_last = true,        // torch/distributed/pipelining/stage.py, backward_maybe_with_nosync
    .frozen_keep_dtype = true,            // torchtitan/components/lora.py
    .gathers_fp8_parameters = true,       // torchao
    .wraps_each_parameter = true,
    .copies = BufferCopies::kFlatBuffers,
    .record_stream_until = 202407,
};

constexpr FrameworkTraits kDeepspeedTraits = {
    .framework = Framework::kDeepspeed,
    .id = "deepspeed",
    .label = "DeepSpeed",
    .memory = deepspeed_memory,
    .pipelines = true,
    .pipelines_split_gradients = false,  // runtime/pipe/engine.py
    .second_copies = true,
    .recomputes_operations = false,
    .zero_stages_of_offload = true,
    .lifetime_programs = true,
    .flat_optimizer_states = true,
    .memory_reads_schedule = true,
    .copies = BufferCopies::kGradientBucket,
    .own_cpu_adam = true,
    .sums_gradients_on_host = true,
    .python_hooks = true,
};

constexpr FrameworkTraits kMegatronTraits = {
    .framework = Framework::kMegatron,
    .id = "megatron",
    .label = "Megatron",
    .memory = megatron_memory,
    .pipelines = true,
    .interleaved_pipelines = true,
    .expert_parallel = true,
    .recomputes_operations = false,
    .recompute_modules = true,
    .offloads_parameters = false,
    .accumulation_fills_pipeline = true,
    .block_programs = false,
    .lifetime_programs = true,
    .expert_tensor_axis = true,
    .memory_reads_schedule = true,
    .own_container = true,
    .transformer_engine = true,
    .fused_kernels_since = 202203,
    .reduces_beside_weights_since = 202201,  // arXiv 2205.05198
    .joined_matrices = true,
    .sums_into_main_gradients = true,
    .functional_collectives = false,
    .copies = BufferCopies::kMainGradients,
    .own_cpu_adam = true,
    .even_stages = true,
    .stages_split_messages = true,  // arXiv 2104.04473, section 4.1
    .receives_ahead = true,
    .gathers_beside_forward = true,
    .offloaded_layers = 0.5,  // as many as the transfers hide behind, half at most
    .overlap = "megatron",
    .measured_experts = true,
};

// llm.c (train_gpt2.cu) and LLM.Q (src/models/llama_model.cpp, src/training): one list of kernels, no interpreter and no autograd.
constexpr FrameworkTraits kLeanTraits = {
    .framework = Framework::kLean,
    .id = "lean",
    .label = "a hand-written engine",
    .memory = lean_memory,
    .tensor_parallel = false,
    .recomputes_operations = false,
    .recompute_modules = true,
    .own_container = true,       // built against the CUDA libraries of the day
    .transformer_engine = true,  // as its layers: cuDNN's attention, fp8 casts in fused kernels, of weights once a step
    .fused_kernels_since = 202401,
    .joined_matrices = true,
    .functional_collectives = false,
    .python = false,
    .streams_host_states = true,
    .offloads_residual_alone = true,
    .streams_host_parameters = true,
};

constexpr std::array<FrameworkTraits, 6> kFrameworkTraits = {kDdpTraits,       kFsdp1Traits,    kFsdp2Traits,
                                                             kDeepspeedTraits, kMegatronTraits, kLeanTraits};

}  // namespace

const FrameworkTraits& traits_of(Framework framework) {
  const FrameworkTraits& traits = kFrameworkTraits[static_cast<size_t>(framework)];
  CHECK(traits.framework == framework, "the table of trainers is out of order at", traits.label);
  return traits;
}

std::optional<Framework> find_framework(std::string_view id) {
  const auto* found =
      std::find_if(kFrameworkTraits.begin(), kFrameworkTraits.end(), [id](const FrameworkTraits& t) { return t.id == id; });
  if (found == kFrameworkTraits.end()) return std::nullopt;
  return found->framework;
}

}  // namespace distsetup
