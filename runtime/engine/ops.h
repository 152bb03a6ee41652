// A step as the executor runs it: a function and its operands' addresses. Kernels::bind() looks a schedule's kernel name up in a
// table; libtorch's share of it (GEMMs, attention) prepares its tensor views there, once.
#pragma once
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plan/schedule.h"

namespace distsetup {

// Legend: T tokens of a micro-batch, S sequence length, B sequences, a heads, kv key and value heads, d head size.
struct OpContext {
  int64_t T = 0, S = 0, B = 0, a = 0, kv = 0, d = 0;
  Dtype compute = Dtype::kF32;
};

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
inline int64_t num_bytes(const Argument& a) { return numel(a) * size_bytes(a.dtype); }

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
  struct ElementRange {
    int64_t begin = 0, end = 0;
  };
  // *sum = Σ x² over the ranges, in their order.
  virtual void sum_of_squares(const float* x, const std::vector<ElementRange>& ranges, double* sum) const = 0;
};

}  // namespace distsetup
