// Program: one unit kind (embedding, block, head with loss) as ordered operations over named tensors with symbolic shapes.
// Nobody writes births, deaths or "saved for backward": they are derived here. A recompute policy is a set of saved tensors to drop;
// the operations that bring them back are found by walking forward backwards and merged into backward just before their first reader.
// The trainer executes these lists op by op (op.kernel names the function), the simulator walks them: the same object.
#pragma once
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/dtype.h"
#include "plan/expression.h"
#include "plan/mesh.h"

namespace distsetup {

enum class OpKind {
  kGemm,
  kGroupedGemm,
  kAttention,
  kNorm,
  kElementwise,
  kEmbedding,
  kLoss,
  kCopy,
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kShift,  // what the next member of the group has, each from the one before: starts, and is under way until a kWait
  kWait
};

// Kernels of rows on their way to the ranks that have their experts, and back (expert_parallel.h).
inline constexpr std::string_view kDispatchRows = "dispatch_rows", kCollectRows = "collect_rows";

inline bool is_communication(OpKind kind) { return kind >= OpKind::kAllGather; }

struct TensorDecl {
  std::string name;
  std::vector<std::string> shape;  // expressions
  Dtype dtype = Dtype::kCompute;
  bool logits = false;      // counted under class "logits"
  bool is_passing = false;  // never kept for backward, which makes it again
};

// How a published file orders the rows of matrices that make queries, keys and values. kGrouped, of a fused one: for each kv head its
// q heads, then its k, then its v (Falcon; GPT-NeoX, where every q head has its own k and v); the program's order is always all q, all
// k, all v. kPairs: the two elements of a head that are rotated together are next to each other (Cohere, GLM); the program has the
// first ones of all pairs, then the second ones, then what is not rotated.
enum class RowOrder { kPlain, kGrouped, kPairs };

// A parameter as published. Consecutive parameters with the same slot lie next to each other and are one matrix to the program
// (q, k and v are one GEMM).
struct ParameterDecl {
  std::string name;  // published name below the unit's prefix: "self_attn.q_proj.weight"
  std::string slot;  // "wqkv"; programs say p:wqkv and g:wqkv
  std::vector<std::string> shape;
  bool decay = true;  // weight decay applies (matrices), not to norms and biases
  // std 0.02; scaled: 0.02 / sqrt(2 L); uniform: ± 1 / sqrt(columns)
  enum class Init { kNormal, kOnes, kZeros, kScaledNormal, kUniform } init = Init::kNormal;
  bool trains = true;  // false: stays as it is, also where it lies among those that are trained (it is part of their matrix)
  // A router's correction of each expert: no gradient but tokens above an equal share, and moved against them (router_balance.h).
  bool balances = false;
  int64_t expert = -1;  // whose it is, where each expert has one: those of a slot are a stack of matrices
  RowOrder order = RowOrder::kPlain;
  bool transposed = false;  // published as [in, out] (GPT-2's Conv1D)
  // Of an expert's: published in one tensor of all experts, whose name has no number (GPT-OSS).
  bool stacked = false;
  std::string published_rows;  // of a vector that is published as a matrix of so many rows (biases of experts); empty: it is not
  // Tensor parallelism: the dimension whose size counts heads, feed-forward elements or tokens of the vocabulary; -1: each rank has
  // all of it. Where that dimension holds several matrices one after the other, their sizes: each is split by itself.
  int split = -1;
  std::vector<std::string> parts;
};

struct Overlay {
  int write = 0, read = 0;  // indices into the op: this write may take the bytes of that read, if the read dies here
};

// Numbers that a kernel needs beside its operands. What a kernel has no use for stays as it is here.
struct OpAttributes {
  double epsilon = 0;                     // norms
  double weight_offset = 0;               // norms multiply by this + the weight (Gemma: 1)
  double multiplier = 1;                  // of an embedding's rows, of a product, of the logits
  double scale = 0;                       // of attention's scores; 0: 1 / sqrt(d)
  double soft_cap = 0;                    // scores or logits become cap · tanh(score / cap); 0: they do not
  int64_t window = 0;                     // keys a query sees, itself included; 0: all before it
  int64_t ring_step = 0;                  // of ring attention: how many ranks before this one the keys are from
  double beta = 0, label_smoothing = 0;   // of a preference loss
  int64_t column = 0;                     // of a product of columns: the first that it adds to, or takes the gradient of
  int64_t low_column = 0;                 // and the first of the narrow tensor on its other side
  int64_t normalized = 0;                 // of a router: 1, the weights of a token's experts are divided by their sum
  int64_t groups = 1, groups_chosen = 1;  // of a router: groups of experts, and how many of them a token may choose from
  int64_t tensor_ranks = 1;               // ranks that each have a part: of a matrix in nf4 (nf4.h), of a z-loss's tokens
  int64_t first_row = 0;                  // of a table of positions: the row of position 0; those before it are of none (OPT: 2)
  double limit = 0, alpha = 0;            // of a clipped gate (Geometry::swiglu_limit)
  int64_t chosen = 0;                     // of the load-balancing loss, and of rows that may be dropped: experts that a token has
  double capacity = 0;                    // of what sorts rows of experts: Geometry::expert_capacity
  bool operator==(const OpAttributes&) const = default;
};

struct AttributeField {
  std::string_view name;
  std::variant<double OpAttributes::*, int64_t OpAttributes::*> member;
};
std::span<const AttributeField> attribute_fields();

struct Op {
  std::string name;  // "down_dw", unique in its program
  OpKind kind = OpKind::kElementwise;
  std::string kernel;               // function of the trainer
  std::vector<std::string> reads;   // tensor names, "p:slot"
  std::vector<std::string> writes;  // tensor names, "g:slot"; a name both read and written is updated in place
  std::vector<Overlay> over;
  std::string flops;           // expression; "" = memory-bound
  Group group = Group::kSelf;  // of a communication op
  OpAttributes attributes;
  // Of a loss that is made by chunks of rows (chunked_loss.h): which, of how many. Operands that have the rows of all tokens stand for
  // those of the chunk. In training such ops are part of backward.
  int chunk = 0, chunks = 1;
};
inline bool is_of_chunk(const Op& op) { return op.chunks > 1; }
// The first row of a chunk, of T; the next one's is where it ends. No two chunks differ by more than a row.
inline int64_t chunk_begin(int64_t chunk, int64_t chunks, int64_t T) { return (chunk * T + chunks - 1) / chunks; }
// Does a tensor have a row for each of a rank's tokens?
inline bool has_all_rows(const TensorDecl& tensor) { return !tensor.shape.empty() && tensor.shape.front() == "T"; }

enum class UnitKind { kEmbedding, kBlock, kHead, kShared, kExperts, kFrozen };  // the last three have no program (layout.h)
std::string_view name(UnitKind kind);

struct Program {
  UnitKind kind = UnitKind::kBlock;
  std::string name;                              // "block"; "block.local" where a model's layers are not all alike
  std::string prefix;                            // of parameter names; {layer} stands for the layer's number
  std::vector<ParameterDecl> parameters;         // of this unit; a tied head has none for its matrix
  std::vector<ParameterDecl> shared_parameters;  // with tensor parallelism: those that are not split, which lie in the shared unit
  std::vector<ParameterDecl> expert_parameters;  // with expert or tensor parallelism: experts, which lie in the unit's own expert unit
  std::vector<ParameterDecl> frozen_parameters;  // those that have no gradient: they lie in the unit's frozen one
  std::vector<ParameterDecl> frozen_expert_parameters;  // of experts that lie in a unit of their own, those: in another frozen one
  std::vector<ParameterDecl> quantized_parameters;      // of them those that are held as nf4, each a slot of its own
  std::vector<std::string> borrowed_slots;  // slots of unit 0 that this unit reads and contributes gradient to (tied head: "wte")
  std::vector<std::string> borrowed_frozen_slots;  // the same of the frozen unit of unit 0
  // Of the reference of preference pairs (reference.h): the copies it has of what is trained, and those of unit 0 that it reads.
  std::vector<ParameterDecl> reference_parameters;
  std::vector<std::string> borrowed_reference_slots;
  std::vector<TensorDecl> tensors;
  std::vector<std::string> inputs;  // run buffers every unit may read: ids, targets, cos, sin, and "loss" which is added to
  std::vector<Op> forward, backward;
  // Names by convention: x is the input (y of the unit before), y the output; dy the incoming, dx the outgoing gradient.
};

std::string parameter_prefix(const Program& program, int64_t layer);

// A program with a recompute policy applied: two straight lists over tensor instances.
// A tensor that is recomputed has two instances (the forward one, dead after forward, and "name.r"); a kept output of a re-run
// operation goes to a dead instance "name.dead".
struct Operand {
  enum class Kind { kTensor, kParameter, kGradient, kInput } kind = Kind::kTensor;
  int index = 0;  // tensor instance; slot index (own slots first); input index
};
struct OpInstance {
  const Op* op = nullptr;
  bool recomputed = false;
  std::vector<Operand> reads, writes;
};
// Of a communication op other than a kShift or its kWait: the operand that has the rows of all ranks; of rows that travel to experts
// or back, those of this rank's tokens, for the other has room for the most that can come.
inline const Operand& all_rows(const OpInstance& op) {
  const bool writes_them = op.op->kind == OpKind::kAllGather || op.op->kernel == kCollectRows;
  return writes_them ? op.writes.front() : op.reads.front();
}
struct TensorInstance {
  std::string name;  // "h1", "h1.r"
  const TensorDecl* decl = nullptr;
};
// The unit that has a slot of a program, seen from the program's own.
enum class SlotHome {
  kOwn,
  kEmbedding,
  kShared,
  kExperts,
  kFrozen,
  kFrozenEmbedding,
  kFrozenExperts,
  kQuantized,
  kReference,
  kReferenceEmbedding
};

struct ProgramVariant {
  const Program* program = nullptr;
  std::string name;  // "block", "block/full"
  std::vector<TensorInstance> tensors;
  std::vector<OpInstance> forward, backward;
  std::vector<std::string> slots;  // own slots in order, then those of other units
  std::vector<SlotHome> homes;     // of each
  int num_own_slots = 0;
  std::vector<std::string> saved, kept;  // derived: read by backward and written by forward; minus the dropped ones
  int x = -1, y = -1, dy = -1, dx = -1;  // tensor instances, -1 = none
};
enum class Pass { kTrain, kEvaluate };  // kEvaluate: forward only, nothing is kept
ProgramVariant derive(const Program& program, const std::set<std::string>& dropped, Pass pass);

// Liveness of one variant with numbers filled in. All sizes rounded up to kBufferAlignment. Live bytes include x and dy (alive at
// entry), kept tensors, temporaries, y and dx. Parameters, inputs and gradient slots are not counted.
struct PassProfile {
  int64_t entry_bytes = 0;      // alive before the first op: forward x; backward x + kept + dy
  int64_t exit_bytes = 0;       // alive after the last: forward x (if kept) + kept + y; backward dx
  int64_t peak_bytes = 0;       // over the ops before the first that writes a gradient of the unit's own slots
  int64_t late_peak_bytes = 0;  // over that op and those after it
};
struct VariantProfile {
  PassProfile forward, backward;
};
inline constexpr int64_t kBufferAlignment = 64;
inline int64_t aligned(int64_t bytes) { return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment; }
// `elsewhere`: tensor instances that lie in buffers of another kind, and are not counted.
VariantProfile profile(const ProgramVariant& variant, const Symbols& symbols, Dtype compute, const std::set<int>& elsewhere = {});

// Bytes of one tensor instance.
std::vector<int64_t> shape_of(const TensorDecl& decl, const Symbols& symbols);
int64_t bytes_of(const TensorDecl& decl, const Symbols& symbols, Dtype compute);

}  // namespace distsetup
