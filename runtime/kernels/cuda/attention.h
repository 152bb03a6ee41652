// libtorch's attention kernels under the names that programs use; what each takes and which is chosen when: attention.cc.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "runtime/engine/aten_views.h"
#include "runtime/kernels/cuda/ops.h"
#include "runtime/kernels/cuda/own_ops.h"

namespace distsetup::cuda {

struct LibtorchKernel {
  MakeViews views;
  OpFunction f32, half;  // half: of both 16-bit types
};
const std::map<std::string, LibtorchKernel>& attention_kernels();
// Why this device cannot run an attention kernel with these shapes; "": it can.
std::string attention_refusal(const std::string& kernel, const Call& call);
// Another kernel that does the same faster here, where there is one.
void take_faster(Call& call);

// The fp32 kernel. t: q, k, v, att, lse
void efficient(const Call& c, const at::Tensor* t);
struct AttentionGradients {
  at::Tensor dq, dk, dv;
};
struct Attended {
  at::Tensor att, lse;  // [B, queries, a, d], [B, a, queries]
};
// t: datt, q, k, v, att, lse
AttentionGradients efficient_gradients(const Call& c, const at::Tensor* t);
// Of queries with some of the keys: all of them, or where it is causal those up to each query's place. By the fastest kernel here.
Attended attend_to_piece(const Call& c, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool is_causal);
// t: datt, q, k, v, and att and lse with all keys, not these alone
AttentionGradients piece_gradients(const Call& c, const at::Tensor* t, bool is_causal);
// Keys that a query sees before itself, where that is not all.
std::optional<int64_t> window_left(const Call& c);

// Asks libtorch for algorithms that always add in the same order.
class Deterministic {
 public:
  explicit Deterministic(bool on);
  ~Deterministic();

 private:
  bool on_;
};

}  // namespace distsetup::cuda
