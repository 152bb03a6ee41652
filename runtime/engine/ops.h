// A step as the executor runs it: a function and its operands' addresses. Kernels::bind() looks a schedule's kernel name up in a
// table; libtorch's share of it (GEMMs, attention) prepares its tensor views there, once.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plan/schedule.h"
#include "runtime/kernels/positions.h"
#include "runtime/kernels/updates.h"
#include "runtime/kernels/vocabulary.h"

namespace distsetup {

// Legend: T tokens of a micro-batch on this rank, S of each sequence, B sequences, a heads, kv key and value heads, d head size.
struct OpContext {
  int64_t T = 0, S = 0, B = 0, a = 0, kv = 0, d = 0;
  int64_t rot = 0;  // elements of a head that are rotated
  Dtype compute = Dtype::kF32;
  bool deterministic = false;  // TrainPlan::deterministic
  // Tensor parallelism: ranks that share a model's matrices, this rank's place among them, and the size of the whole vocabulary, of
  // which each has an equal part, the last ones less or nothing. Of one rank alone the vocabulary need not be known.
  int tp = 1, tp_index = 0;
  int64_t vocabulary = 0;
  // Context parallelism: ranks that share each sequence, which has cp · S tokens, and this rank's place among them.
  int cp = 1, cp_index = 0;
  // Expert parallelism: ranks that share the experts of each layer, and this rank's place among them.
  int ep = 1, ep_index = 0;
  bool packed = false;  // sequences hold several documents (src/plan/packed_rows.h)
  // Of these, on the host: where each begins among the tokens of whole sequences that were fed last, and where the last one ends.
  const std::vector<int64_t>* documents = nullptr;
};
// As a rank sees whole sequences with its share of the heads ("attention_whole").
inline OpContext with_whole_sequences(OpContext x) {
  x.T *= x.cp, x.S *= x.cp, x.a /= x.cp, x.kv /= x.cp;
  x.cp = 1, x.cp_index = 0;
  return x;
}
inline Positions positions_of(const OpContext& x) { return own_positions(x.cp * x.S, x.cp, x.cp_index); }
// The ids whose rows a table of num_rows rows has on this rank.
inline VocabularyRange own_vocabulary(const OpContext& x, int64_t num_rows) {
  const int64_t begin = x.tp_index * num_rows;
  return {begin, x.tp == 1 ? num_rows : std::clamp(x.vocabulary, begin, begin + num_rows)};
}

struct Argument {
  void* data = nullptr;
  std::vector<int64_t> shape;
  Dtype dtype = Dtype::kF32;
  int64_t dim(int i) const { return shape[size_t(i)]; }
};
inline int64_t numel(const Argument& a) {
  int64_t n = 1;
  for (const int64_t s : a.shape) n *= s;
  return n;
}
inline int64_t num_bytes(const Argument& a) { return num_bytes(a.shape, a.dtype); }

struct Call;
using OpFunction = void (*)(const Call& call);

struct Call {
  OpFunction function = nullptr;
  std::vector<Argument> reads, writes;
  bool accumulate = false;
  const OpContext* context = nullptr;
  const OpAttributes* attributes = nullptr;  // of a program's op
  std::shared_ptr<void> prepared;            // what the device made of the operands when the step was bound
};

// What attention's scores are multiplied by.
inline double score_scale(const Call& c) {
  return c.attributes->scale > 0 ? c.attributes->scale : 1 / std::sqrt(double(c.context->d));
}

// What a device computes with. All calls are on the compute stream unless a stream is given, on memory of the device.
class Kernels {
 public:
  virtual ~Kernels() = default;
  // Fills function and views. Returns why it cannot ("head size 10 is not a multiple of 8"); empty: bound.
  virtual std::string bind(const std::string& kernel, Call& call) const = 0;
  virtual void cast(Stream stream, const float* from, void* to, Dtype to_dtype, int64_t n) const = 0;
  // As cpu::sum_chunks: target = [target +] the members' contributions, ascending, summed in fp32.
  virtual void sum_chunks(float* target, const void* own, const void* received, Dtype dtype, int64_t size, int64_t index,
                          int64_t chunk_stride, int64_t n, bool accumulate) const = 0;
  // As cpu::sum_partials: target = the members' contributions, ascending, + addend (may be null), summed in fp32, rounded once.
  // All of `dtype`, n elements; received: size - 1 chunks of n as Communicator::exchange delivers them. target may be own or addend.
  virtual void sum_partials(const void* own, const void* received, const void* addend, void* target, Dtype dtype, int64_t size,
                            int64_t index, int64_t n) const = 0;
  // Nothing where both are the same memory; else they may not overlap.
  virtual void copy(Stream stream, void* to, const void* from, int64_t bytes) const = 0;
  struct ElementRange {
    int64_t begin = 0, end = 0;
  };
  // *sum = Σ x² over the ranges, in their order.
  virtual void sum_of_squares(const float* x, const std::vector<ElementRange>& ranges, double* sum) const = 0;
  // Optimizers that libtorch has no fused kernel of, or one that moves more bytes.
  virtual void adamw(const AdamWUpdate& update) const = 0;
  virtual void lion(const LionUpdate& update) const = 0;
  virtual void adamw_8bit(const AdamW8bitUpdate& update) const = 0;
  virtual void adafactor(AdafactorPass pass, const AdafactorUpdate& update) const = 0;
  virtual void muon_momentum(const MuonMomentum& update) const = 0;
  virtual void decayed_step(const DecayedStep& update) const = 0;
  // Of n values in bf16: divided by their norm, or by 1e-7 where that is more. scratch: kNormParts floats.
  virtual void normalize(void* values, int64_t n, float* scratch) const = 0;
  // out = beta · addend + alpha · a · b in bf16; out is neither a nor b, and may be addend. beta 0: addend is not read.
  virtual void multiply_add(const MatrixView& out, const MatrixView& addend, const MatrixView& a, const MatrixView& b, double beta,
                            double alpha) const = 0;
};

}  // namespace distsetup
