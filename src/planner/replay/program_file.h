// Programs of other stacks as data: what one transformer block of a framework allocates, keeps and frees, op by op, and its GEMMs.
// presets/kernels/torch.yaml says what each kernel does to memory, forward and backward, and what each loss does to the logits;
// presets/programs/<id>.yaml lists a stack's ops in the order they run. Backward is derived: ops in reverse, each by its kernel.
// Both are read strictly, with positions. Format: presets/README.md.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "base/value.h"
#include "model/presets.h"
#include "planner/frameworks/setup.h"
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
  kLossGathers,          // tensor parallelism, and a compiled loss that takes whole logits
  kOnlineSoftmax,        // a compiled loss keeps the logits as they are
  kFusedQkv,             // one matrix makes q, k and v
  kManySamples,          // more than one per micro-batch: a slice of the sequence is no longer contiguous
  kCount
};
struct When {
  uint64_t all = 0, none = 0;
  bool holds(uint64_t facts) const { return (facts & all) == all && (facts & none) == 0; }
};

struct KernelStep {
  enum class Kind : uint8_t {
    kNew,
    kFree,
    kGradient,        // local `other` becomes (or is added to) the gradient of read `name`
    kSharedGradient,  // the same, without giving it up
    kWeight,          // the gradient of the weight
    kSecondWeight,    // of the second weight (an adapter's B)
    kRebuild,         // the input a compiled backward computes again, once for all its readers
    kRebuilt,         // this reader is done with it
    kRepeat,          // `size` times up to the matching kEnd
    kEnd
  };
  Kind kind = Kind::kNew;
  int8_t name = -1, other = -1;
  bool when_trained = false;  // only where the weight gets a gradient
  int16_t partner = -1;       // kRepeat: its kEnd; kEnd: its kRepeat
  SizeExpression size;        // empty: of the call
};

struct Kernel {
  std::string name;
  std::string kind;                 // gemm, attention, norm, elementwise, embedding, loss, copy, all_gather, reduce_scatter
  std::vector<std::string> locals;  // "g" (gradient of the first write), reads, writes, then temporaries
  int num_reads = 0, num_writes = 0;
  bool weight = false;
  bool has_second_weight = false;
  std::vector<int8_t> saves, saves_for_weight;  // the latter only where the weight is trained
  std::vector<KernelStep> forward, backward;
  int first_read() const { return 1; }
  int first_write() const { return 1 + num_reads; }
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

struct KernelFile {
  std::map<std::string, Kernel, std::less<>> kernels;
  Value losses;  // read once per program: they name the program's tensors
};

struct BlockProgram {
  std::string id, label;
  bool zero_gradients_after_step = false;
  bool compiled = false;
  std::shared_ptr<const KernelFile> kernels;
  ProgramSection embedding;              // leaves "out"
  ProgramSection block;                  // "x" in, "out" out
  std::array<ProgramSection, 11> heads;  // by LossHead: "x" in; an empty one: this program has no such loss
};

Result<KernelFile> kernels_from_value(const Value& value);
Result<BlockProgram> program_from_value(const Value& value, const std::string& id, std::shared_ptr<const KernelFile> kernels);

// A file of --presets DIR/programs, with the kernels that `presets` knows (DIR/kernels/torch.yaml replaces the built-in ones).
Result<std::shared_ptr<const BlockProgram>> load_program(const Presets& presets, const PresetFile& file);

// What of the model's experts the program has no weights for: "experts", "shared experts", ...; empty: it has all.
std::string lacks_for(const BlockProgram& program, const Geometry& model);

// The built-in program of that id; nullptr: none.
const BlockProgram* find_program(std::string_view id);
std::vector<std::string> program_ids();

const char* loss_name(LossHead loss);
uint64_t facts_of(const Setup& setup);
// Of a layer with or without experts, where a model has both.
uint64_t facts_of_layer(uint64_t facts, bool experts);
void fill_symbols(const Setup& setup, int64_t* values);

}  // namespace distsetup::replay
