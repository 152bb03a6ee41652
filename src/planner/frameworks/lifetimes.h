// Programs written as lifetimes (presets/programs/megatron_te.yaml says the grammar): which tensors of a layer are alive during which
// op. Two numbers come out of each part: what backward needs later (saved), and the most that is alive at one op of its forward and of
// its backward. That is all a pipeline stage needs; the order in which parts allocate is left to the file. Leaves out: bytes that two
// parts could share, and tensors below a byte per token (row statistics of norms).
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/frameworks/setup.h"
#include "planner/replay/size_expression.h"

namespace distsetup {

// Sizes by the names that megatron_te.yaml lists, evaluated for one setup.
struct LayerSymbols {
  static constexpr int kCount = 36;
  int64_t values[kCount] = {};
};

// --recompute-modules as a set; everything but a layer's input for full recomputation.
using ModuleSet = uint32_t;
inline constexpr ModuleSet kWholeLayer = 1u << 31;
// 0 for a name no program drops.
ModuleSet recompute_module(std::string_view name);

struct LifetimeTensor {
  std::string name;
  replay::SizeExpression bytes;
  int born = 0, dies = 0;  // positions in the part's ops, forward then backward
  ModuleSet dropped_by = 0;
  bool logits = false;
};

struct LifetimeWeight {
  replay::SizeExpression rows, columns;
  bool dummy_gradient = false;  // Transformer Engine keeps an empty buffer of this shape
  bool per_expert = false;
};

struct LifetimePart {
  std::string name;
  int num_forward = 0, num_ops = 0;
  std::vector<LifetimeTensor> tensors;
  std::vector<LifetimeWeight> weights;
};

struct LifetimeProgram {
  std::string name;
  int64_t vocabulary_multiple = 1;  // per tensor-parallel rank (Megatron's --make-vocab-size-divisible-by)
  bool stages_by_cost = false;      // a stage takes layers until it has its share of the parameters that multiply, the head's included
  std::vector<LifetimePart> parts;
  const LifetimePart* find(std::string_view part) const;
};
// nullptr when the program has another form or does not exist.
const LifetimeProgram* lifetime_program(std::string_view name);
// The one that setup.program names, else megatron_te.
const LifetimeProgram& lifetime_program(const Setup& setup);
// Rows of the embedding and the head, over all ranks that share them: the model's own, or more where the program pads them.
int64_t padded_vocabulary(const Setup& setup);
// What the model has and the program does not describe, in words; "" = nothing.
std::string_view missing_part(const LifetimeProgram& program, const Geometry& model);
LayerSymbols layer_symbols(const Setup& setup, const LifetimeProgram& program);

struct PartBytes {
  int64_t saved = 0;          // without recomputation
  int64_t kept = 0;           // after `dropped` modules are gone
  int64_t forward_peak = 0;   // most alive at an op, what was saved before it included
  int64_t backward_peak = 0;  // the same going back, with everything saved at its start
  int64_t logits_at_peak = 0;
};
PartBytes evaluate(const LifetimePart& part, const LayerSymbols& symbols, ModuleSet dropped);

// Weights of a part on one rank: elements (of all its local experts), and the distinct shapes that keep a dummy gradient.
struct WeightShape {
  int64_t rows = 0, columns = 0;
  bool operator==(const WeightShape&) const = default;
};
struct PartWeights {
  int64_t elements = 0, expert_elements = 0;
};
int64_t num_local_experts(const LayerSymbols& symbols);
PartWeights weights_of(const LifetimePart& part, const LayerSymbols& symbols);
void collect_dummy_shapes(const LifetimePart& part, const LayerSymbols& symbols, std::vector<WeightShape>& shapes);

}  // namespace distsetup
