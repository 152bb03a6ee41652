#include "runtime/engine/ops_latent.h"

#include <algorithm>
#include <array>

#include "runtime/engine/ops_table.h"
#include "runtime/engine/threads.h"
#include "runtime/kernels/cpu/bf16.h"
#include "runtime/kernels/cpu/latent.h"

namespace distsetup {
namespace {

// q, kv, ckv -> qkv
template <class E>
void join_heads(const Call& c) {
  const LatentHeads s = latent_heads(*c.context, c.reads[1], c.reads[2]);
  parallel_ranges(c.writes[0].dim(0), 2 * s.packed_row() * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      cpu::join_latent_heads<E>(in<E>(c, 0) + t * s.q_row(), in<E>(c, 1) + t * s.kv_row(), in<E>(c, 2) + t * s.latent_row(),
                                out<E>(c, 0) + t * s.packed_row(), s);
  });
}
// dqkv -> dq, dkv, dckv
template <class E>
void split_heads(const Call& c) {
  const LatentHeads s = latent_heads(*c.context, c.writes[1], c.writes[2]);
  parallel_ranges(c.reads[0].dim(0), 2 * s.packed_row() * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      cpu::split_latent_heads<E>(in<E>(c, 0) + t * s.packed_row(), out<E>(c, 0) + t * s.q_row(), out<E>(c, 1) + t * s.kv_row(),
                                 out<E>(c, 2) + t * s.latent_row(), s);
  });
}
// Heads of `from` elements -> heads of `to`: the first ones of each, zeros where there are no more.
template <class E>
void resize_heads(const Call& c) {
  const int64_t num = c.context->a, from = c.reads[0].dim(1) / num, to = c.writes[0].dim(1) / num, kept = std::min(from, to);
  parallel_ranges(c.reads[0].dim(0), num * (from + to) * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    for (int64_t head = begin * num; head < end * num; ++head) {
      E* const row = out<E>(c, 0) + head * to;
      std::copy_n(in<E>(c, 0) + head * from, kept, row);
      std::fill(row + kept, row + to, E{});
    }
  });
}

#define DISTSETUP_ENTRY(name, kernel) \
  NativeOp { name, kernel<float>, kernel<Bf16>, kernel<F16> }
constexpr std::array kTable = {DISTSETUP_ENTRY("latent_heads", join_heads), DISTSETUP_ENTRY("latent_heads_backward", split_heads),
                               DISTSETUP_ENTRY("latent_values", resize_heads),
                               DISTSETUP_ENTRY("latent_values_backward", resize_heads)};
#undef DISTSETUP_ENTRY

}  // namespace

LatentHeads latent_heads(const OpContext& x, const Argument& kv, const Argument& ckv) {
  const int64_t rot = x.rot, plain = x.d - rot;
  return {x.a, plain, rot, kv.dim(1) / x.a - plain, ckv.dim(1) - rot};
}

bool bind_latent_op(const std::string& kernel, Call& call) {
  call.function = find_op(kTable, kernel, call);
  return call.function != nullptr;
}

}  // namespace distsetup
