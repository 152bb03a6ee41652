// Programs of other stacks as data: what one transformer block of a framework allocates, keeps and frees, op by op, and its GEMMs.
// presets/kernels/torch.yaml says what each kernel does to memory, forward and backward, and what each loss does to the logits;
// presets/programs/<id>.yaml lists a stack's ops in the order they run. Backward is derived: ops in reverse, each by its kernel.
// Both are read strictly, with positions. Format: presets/README.md.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "base/value.h"
#include "planner/frameworks/setup.h"
#include "planner/replay/kernel_file.h"
#include "planner/replay/size_expression.h"

namespace distsetup::replay {

// Facts of a setup that switch ops on and off ("when: [tensor_parallel, not grouped_heads]").
enum class Condition : uint8_t {
  kTensorParallel,
  kGroupedHeads,  // fewer kv heads than heads
  kFusedNorm,
  kFusedRope,
  kFlash,
  kGated,
  kLayerNorm,
  kQkvBias,
  kOutputBias,
  kMlpBias,
  kHeadBias,
  kQkNorm,
  kParallelBlock,
  kTwoNorms,   // at least two norms per block
  kFourNorms,  // before and after attention and MLP
  kTied,
  kLogitsKept,
  kFusedLinearLoss,  // the loss takes hidden states: no logits
  kLearnedPositions,
  kAdapterQuery,
  kAdapterKey,
  kAdapterValue,
  kAdapterOutput,
  kAdapterGate,
  kAdapterUp,
  kAdapterDown,
  kAdapterDropout,
  kAdapterCast,  // adapters in another dtype than the compute dtype
  kQuantized,    // base weights need dequantising
  kAttentionCopied,
  kAutocast,
  kLowPrecisionLogitsKept,
  kResidualInFp32,
  kEmbeddingScaled,
  kAdapters,
  kKvHeadsRepeated,
  kLogitsStayLow,  // the model file never makes its logits fp32 (GPT-2, GPT BigCode, GPT-NeoX)
  kExperts,
  kSharedExperts,
  kSharedExpertGate,
  kRouterScoreBias,
  kExpertParallel,
  kLatent,               // latent attention
  kQueryLatent,          // with a latent for the query too
  kFp8Linears,           // torchao's: of the blocks
  kFp8WeightsSaved,      // and their cast weights are saved for backward
  kFp8AbsSaved,          // op-selective recompute keeps what fp8 scales are made of: the absolute values of inputs and weights
  kFp8RowwiseAbsSaved,   // the same, compiled: only of the MLP's weights, with a scale per row
  kAttentionRecomputed,  // op-selective recompute does not keep attention's output
  kExchangesRecomputed,  // nor what expert ranks exchange
  kLossGathers,          // tensor parallelism, and a compiled loss that takes whole logits
  kOnlineSoftmax,        // a compiled loss keeps the logits as they are
  kFusedQkv,             // one matrix makes q, k and v
  kManySamples,          // more than one per micro-batch: a slice of the sequence is no longer contiguous
  kCompiled,             // torch.compile, of the loss too
  kSplitLoss,            // tensor parallelism, and Python runs the loss over split logits
  kFusedSwiglu,          // a hand-written kernel makes the MLP's product, and its gradients in place (Liger)
  kUlysses,              // context-parallel ranks exchange parts of the sequence for heads around attention
  kLigerCastsLogits,     // its fused linear loss casts a chunk's logits to fp32
  kLigerCastsShare,      // it casts what a chunk adds to the head's gradient
  kHeadInFp32,           // the head's weight is fp32, and nothing casts what it computes
  kLogitsCapped,         // logits become cap · tanh(logit / cap)
  kLogitsShifted,        // the loss copies the logits without their last position; else it shifts the labels
  kCastsKept,            // torch.autocast casts each frozen matrix, and autograd keeps the cast until its backward
  kCount
};
inline constexpr uint64_t bit_of(Condition condition) { return uint64_t{1} << static_cast<int>(condition); }
struct When {
  uint64_t all = 0, none = 0;
  bool holds(uint64_t facts) const { return (facts & all) == all && (facts & none) == 0; }
};

struct ProgramWeight {
  std::string name;
  SizeExpression out, in;  // elements = out * in; `in` 1 for vectors
  std::string target;      // q, k, v, o, gate, up, down: what adapters are named after; empty = none
  bool matrix = false;     // of a GEMM: what is quantised
  bool adapter = false;
  bool expert = false;  // of the stack of experts: its own unit under expert parallelism
  When when;
};

struct ProgramOp {
  // kGathered: in backward, here a head's weights are there; kExperts: here the experts' unit has had its backward.
  enum class Kind : uint8_t { kKernel, kDrop, kMove, kHold, kGathered, kExperts };
  Kind kind = Kind::kKernel;
  const Kernel* kernel = nullptr;
  const Kernel* recomputed = nullptr;  // in a recompute pass; nullptr: the same
  std::vector<int16_t> in, out;        // names of the section
  std::vector<SizeExpression> bytes;   // of `out`, where the call says it
  int16_t weight = -1;                 // index in the section's weights
  int16_t second_weight = -1;
  bool keep = false;  // op-selective recompute keeps the outputs
  When when;
};

struct ProgramSection {
  std::vector<std::string> names;
  std::vector<ProgramWeight> weights;
  std::vector<ProgramOp> ops;
  std::vector<int16_t> first_logits;  // names that hold logits (counted apart)
};

struct BlockProgram {
  std::string id, label;
  bool zero_gradients_after_step = false;
  bool compiled = false;
  std::shared_ptr<const KernelFile> kernels;
  ProgramSection embedding;              // leaves "out"
  ProgramSection block;                  // "x" in, "out" out
  std::array<ProgramSection, 12> heads;  // by LossHead: "x" in; an empty one: this program has no such loss
};

// `tables`: tables of weights by name (presets/weights), which a program may name instead of listing its own; nullptr: no such table.
using WeightTables = std::function<const Value*(std::string_view name)>;
Result<BlockProgram> program_from_value(const Value& value, const std::string& id, std::shared_ptr<const KernelFile> kernels,
                                        const WeightTables& tables = {});

const char* loss_name(LossHead loss);

}  // namespace distsetup::replay
