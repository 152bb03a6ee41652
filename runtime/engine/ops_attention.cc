#include "runtime/engine/ops_attention.h"

#include <fmt/format.h>

#include <array>

#include "base/check.h"
#include "plan/workspace.h"
#include "runtime/engine/ops_table.h"
#include "runtime/engine/threads.h"
#include "runtime/kernels/cpu/attention.h"
#include "runtime/kernels/cpu/bf16.h"

namespace distsetup {
namespace {

// Of queries of which this rank has its own, where ranks share sequences.
cpu::CausalAttention attention_shape(const Call& c, const Positions& queries) {
  const OpContext& x = *c.context;
  const int64_t keys = c.context->cp * x.S;
  return {x.B, keys, heads(x), float(score_scale(c)), float(c.attributes->soft_cap), c.attributes->window, queries};
}
cpu::CausalAttention attention_shape(const Call& c) {
  CHECK(c.context->cp == 1, "attention of whole sequences, which {} ranks share", c.context->cp);
  return attention_shape(c, own_positions(c.context->S));
}
// Rows of q, k and v in `qkv`, or q and k in `qk` and v where all three were made.
template <class E>
cpu::QkvRows<E> rows_of(E* qk, E* qkv, const OpContext& x) {
  const Heads h = heads(x);
  const int64_t q = h.num_q * h.size, k = h.num_kv * h.size;
  if (qk == nullptr) return {qkv, qkv + q, qkv + q + k, h.packed_row(), h.packed_row(), h.packed_row()};
  return {qk, qk + q, qkv + q + k, h.row(), h.row(), h.packed_row()};
}
int64_t bytes_per_query(const Call& c) { return c.context->cp * c.context->S * c.context->a * c.context->d; }
// qkv | qk, qkv -> att, lse
template <class E>
void own_attention(const Call& c) {
  const bool split = c.reads.size() == 2;
  const cpu::QkvRows<const E> rows = rows_of<const E>(split ? in<E>(c, 0) : nullptr, split ? in<E>(c, 1) : in<E>(c, 0), *c.context);
  parallel_ranges(c.context->T, bytes_per_query(c), [&](int64_t begin, int64_t end) {
    cpu::attention<E>(rows, out<E>(c, 0), out<float>(c, 1), attention_shape(c), begin, end);
  });
}
// datt, qkv | qk, qkv, att, lse -> dqkv | dqk, dqkv
template <class E>
void own_attention_backward(const Call& c) {
  const bool split = c.reads.size() == 5;
  const int att = split ? 3 : 2;
  const cpu::QkvRows<const E> rows = rows_of<const E>(split ? in<E>(c, 1) : nullptr, split ? in<E>(c, 2) : in<E>(c, 1), *c.context);
  const cpu::QkvRows<E> d = rows_of<E>(split ? out<E>(c, 0) : nullptr, split ? out<E>(c, 1) : out<E>(c, 0), *c.context);
  const cpu::CausalAttention shape = attention_shape(c);
  parallel_ranges(c.context->T, bytes_per_query(c), [&](int64_t begin, int64_t end) {
    cpu::attention_backward_q<E>(in<E>(c, 0), rows, in<E>(c, att), in<float>(c, att + 1), d, shape, begin, end);
    cpu::attention_backward_kv<E>(in<E>(c, 0), rows, in<E>(c, att), in<float>(c, att + 1), d, shape, begin, end);
  });
}

// q of `rows` (qkv or qk), keys and values of whole sequences in `kv`.
template <class E>
cpu::QkvRows<E> shared_rows(E* rows, int64_t row_stride, E* kv, const OpContext& x) {
  const int64_t k = x.kv * x.d;
  return {rows, kv, kv + k, row_stride, 2 * k, 2 * k};
}
// qkv | qk, kv -> att, lse
template <class E>
void shared_attention(const Call& c) {
  const cpu::QkvRows<const E> rows = shared_rows<const E>(in<E>(c, 0), c.reads[0].dim(1), in<E>(c, 1), *c.context);
  parallel_ranges(c.context->T, bytes_per_query(c), [&](int64_t begin, int64_t end) {
    cpu::attention<E>(rows, out<E>(c, 0), out<float>(c, 1), attention_shape(c, positions_of(*c.context)), begin, end);
  });
}
// datt, qkv | qk, kv, att, lse -> dqkv | dqk (q alone), dkv
template <class E>
void shared_attention_backward(const Call& c) {
  const OpContext& x = *c.context;
  const cpu::QkvRows<const E> rows = shared_rows<const E>(in<E>(c, 1), c.reads[1].dim(1), in<E>(c, 2), x);
  const cpu::QkvRows<E> d = shared_rows<E>(out<E>(c, 0), c.writes[0].dim(1), out<E>(c, 1), x);
  const cpu::CausalAttention shape = attention_shape(c, positions_of(x));
  parallel_ranges(x.T, bytes_per_query(c), [&](int64_t begin, int64_t end) {
    cpu::attention_backward_q<E>(in<E>(c, 0), rows, in<E>(c, 3), in<float>(c, 4), d, shape, begin, end);
  });
  parallel_ranges(c.reads[2].dim(0), bytes_per_query(c), [&](int64_t begin, int64_t end) {
    cpu::attention_backward_kv<E>(in<E>(c, 0), rows, in<E>(c, 3), in<float>(c, 4), d, shape, begin, end);
  });
}

constexpr std::array kAttention = {
    NativeOp{"attention", own_attention<float>, own_attention<Bf16>},
    NativeOp{"attention_split", own_attention<float>, own_attention<Bf16>},
    NativeOp{"attention_backward", own_attention_backward<float>, own_attention_backward<Bf16>},
    NativeOp{"attention_split_backward", own_attention_backward<float>, own_attention_backward<Bf16>},
    NativeOp{"attention_shared", shared_attention<float>, shared_attention<Bf16>},
    NativeOp{"attention_shared_backward", shared_attention_backward<float>, shared_attention_backward<Bf16>}};

}  // namespace

bool needs_own_attention(const std::string& kernel, const Call& call) {
  return kernel.starts_with("attention") && has_own_attention(kernel, *call.attributes, call.context->S);
}

std::string bind_own_attention(const std::string& kernel, Call& call) {
  if (call.context->d > cpu::kMostHeadSize)
    return fmt::format("attention with a window, a soft cap or over several ranks takes head sizes up to {}, this model's is {}",
                       cpu::kMostHeadSize, call.context->d);
  call.function = find_op(kAttention, kernel, call);
  return call.function != nullptr ? "" : "the CPU has no such kernel";
}

}  // namespace distsetup
