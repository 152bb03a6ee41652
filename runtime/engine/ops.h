// A step as the executor runs it: a function and its operands' addresses. bind_op() looks the schedule's kernel name up in one table;
// libtorch's share of it (GEMMs, attention) prepares its tensor views here, once.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plan/schedule.h"

namespace distsetup {

// Legend: T tokens of a micro-batch, S sequence length, B sequences, a heads, kv key and value heads, d head size.
struct OpContext {
  int64_t T = 0, S = 0, B = 0, a = 0, kv = 0, d = 0;
  float norm_epsilon = 0;
  Dtype compute = Dtype::kF32;
};

struct Argument {
  void* data = nullptr;
  std::vector<int64_t> shape;
  Dtype dtype = Dtype::kF32;
  int64_t dim(int i) const { return shape[size_t(i)]; }
};

struct AtenViews;  // ops_aten.cc
struct Call;
using OpFunction = void (*)(const Call& call);

struct Call {
  OpFunction function = nullptr;
  std::vector<Argument> reads, writes;
  bool accumulate = false;
  const OpContext* context = nullptr;
  std::shared_ptr<const AtenViews> views;
};

// Fills function and views. CHECKs that the kernel is known.
void bind_op(const std::string& kernel, Call& call);
// False when the kernel is not of that file.
bool bind_native_op(const std::string& kernel, Call& call);
bool bind_aten_op(const std::string& kernel, Call& call);

}  // namespace distsetup
