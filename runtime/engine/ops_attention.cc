#include "runtime/engine/ops_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "plan/workspace.h"
#include "runtime/engine/documents.h"
#include "runtime/engine/ops_table.h"
#include "runtime/engine/threads.h"
#include "runtime/kernels/cpu/attention.h"
#include "runtime/kernels/cpu/bf16.h"

namespace distsetup {
namespace {

cpu::CausalAttention attention_shape(const Call& c, const Positions& queries, const Positions& keys) {
  const OpContext& x = *c.context;
  return {x.B, heads(x), float(score_scale(c)), float(c.attributes->soft_cap), c.attributes->window, queries, keys};
}
// Of whole sequences of `length`.
cpu::CausalAttention attention_shape(const Call& c, int64_t length) {
  CHECK(c.context->cp == 1, "attention of whole sequences, which {} ranks share", c.context->cp);
  const Positions all = own_positions(length);
  return attention_shape(c, all, all);
}
// Of queries of which this rank has its own, where ranks share sequences. The last operand of packed rows is where documents begin.
cpu::CausalAttention shared_shape(const Call& c, const Positions& keys) {
  const OpContext& x = *c.context;
  cpu::CausalAttention shape = attention_shape(c, positions_of(x), keys);
  if (x.packed) shape.documents = in<int64_t>(c, static_cast<int>(c.reads.size()) - 1), shape.length = x.cp * x.S;
  return shape;
}
cpu::CausalAttention shared_shape(const Call& c) { return shared_shape(c, own_positions(c.context->cp * c.context->S)); }
size_t reads_without_documents(const Call& c) { return c.reads.size() - (c.context->packed ? 1 : 0); }
// Rows of q, k and v in `qkv`, or q and k in `qk` and v where all three were made.
template <class E>
cpu::QkvRows<E> rows_of(E* qk, E* qkv, const OpContext& x) {
  const Heads h = heads(x);
  const int64_t q = h.num_q * h.size, k = h.num_kv * h.size;
  if (qk == nullptr) return {qkv, qkv + q, qkv + q + k, h.packed_row(), h.packed_row(), h.packed_row()};
  return {qk, qk + q, qkv + q + k, h.row(), h.row(), h.packed_row()};
}
int64_t bytes_per_query(const Call& c) { return c.context->cp * c.context->S * c.context->a * c.context->d; }
template <class E>
cpu::QkvRows<E> rows_from(cpu::QkvRows<E> rows, int64_t token) {
  rows.q += token * rows.q_stride, rows.k += token * rows.k_stride, rows.v += token * rows.v_stride;
  return rows;
}
// Where the operands of attention lie, forward (qkv | qk, qkv[, cu_seqlens]) and backward (datt, qkv | qk, qkv[, cu_seqlens], att,
// lse -> dqkv | dqk, dqkv).
template <bool kSplit, bool kPacked>
struct OperandPlaces {
  static constexpr int kStarts = kSplit ? 2 : 1, kAttBackward = 1 + kStarts + (kPacked ? 1 : 0);
};
// use(first token, tokens, length of the sequences they are) for all tokens at once, or for each document.
template <bool kPacked, class Use>
void each_part(const Call& c, int starts, Use use) {
  if constexpr (kPacked)
    each_document(in<int64_t>(c, starts), c.context->T, [&](int64_t begin, int64_t end) { use(begin, end - begin, end - begin); });
  else
    use(int64_t{0}, c.context->T, c.context->S);
}
template <class E, bool kSplit, bool kPacked>
void own_attention(const Call& c) {
  const OpContext& x = *c.context;
  const cpu::QkvRows<const E> all = rows_of<const E>(kSplit ? in<E>(c, 0) : nullptr, in<E>(c, kSplit ? 1 : 0), x);
  each_part<kPacked>(c, OperandPlaces<kSplit, kPacked>::kStarts, [&](int64_t first, int64_t tokens, int64_t length) {
    const cpu::QkvRows<const E> rows = rows_from(all, first);
    const cpu::CausalAttention shape = attention_shape(c, length);
    parallel_ranges(tokens, bytes_per_query(c), [&](int64_t begin, int64_t end) {
      cpu::attention<E, E>(rows, {}, out<E>(c, 0) + first * x.a * x.d, out<float>(c, 1) + first * x.a, shape, begin, end);
    });
  });
}
template <class E, bool kSplit, bool kPacked>
void own_attention_backward(const Call& c) {
  const OpContext& x = *c.context;
  constexpr int kAtt = OperandPlaces<kSplit, kPacked>::kAttBackward;
  const cpu::QkvRows<const E> all = rows_of<const E>(kSplit ? in<E>(c, 1) : nullptr, in<E>(c, kSplit ? 2 : 1), x);
  const cpu::QkvRows<E> all_d = rows_of<E>(kSplit ? out<E>(c, 0) : nullptr, out<E>(c, kSplit ? 1 : 0), x);
  each_part<kPacked>(c, 1 + OperandPlaces<kSplit, kPacked>::kStarts, [&](int64_t first, int64_t tokens, int64_t length) {
    const cpu::QkvRows<const E> rows = rows_from(all, first);
    const cpu::QkvRows<E> d = rows_from(all_d, first);
    const E *datt = in<E>(c, 0) + first * x.a * x.d, *att = in<E>(c, kAtt) + first * x.a * x.d;
    const float* lse = in<float>(c, kAtt + 1) + first * x.a;
    const cpu::CausalAttention shape = attention_shape(c, length);
    parallel_ranges(tokens, bytes_per_query(c), [&](int64_t begin, int64_t end) {
      cpu::attention_backward_q<E, E>(datt, rows, att, lse, {d, {}}, shape, begin, end);
      cpu::attention_backward_kv<E, E>(datt, rows, att, lse, {d, {}}, shape, begin, end);
    });
  });
}

// q of `rows` (qkv or qk), keys and values of whole sequences in `kv`.
template <class E>
cpu::QkvRows<E> shared_rows(E* rows, int64_t row_stride, E* kv, const OpContext& x) {
  const int64_t k = x.kv * x.d;
  return {rows, kv, kv + k, row_stride, 2 * k, 2 * k};
}
// qkv | qk, kv[, cu_seqlens] -> att, lse
template <class E>
void shared_attention(const Call& c) {
  const cpu::QkvRows<const E> rows = shared_rows<const E>(in<E>(c, 0), c.reads[0].dim(1), in<E>(c, 1), *c.context);
  parallel_ranges(c.context->T, bytes_per_query(c), [&](int64_t begin, int64_t end) {
    cpu::attention<E, E>(rows, {}, out<E>(c, 0), out<float>(c, 1), shared_shape(c), begin, end);
  });
}
// datt, qkv | qk, kv, att, lse[, cu_seqlens] -> dqkv | dqk (q alone), dkv
template <class E>
void shared_attention_backward(const Call& c) {
  const OpContext& x = *c.context;
  const cpu::QkvRows<const E> rows = shared_rows<const E>(in<E>(c, 1), c.reads[1].dim(1), in<E>(c, 2), x);
  const cpu::QkvRows<E> d = shared_rows<E>(out<E>(c, 0), c.writes[0].dim(1), out<E>(c, 1), x);
  const cpu::CausalAttention shape = shared_shape(c);
  parallel_ranges(x.T, bytes_per_query(c), [&](int64_t begin, int64_t end) {
    cpu::attention_backward_q<E, E>(in<E>(c, 0), rows, in<E>(c, 3), in<float>(c, 4), {d, {}}, shape, begin, end);
  });
  parallel_ranges(c.reads[2].dim(0), bytes_per_query(c), [&](int64_t begin, int64_t end) {
    cpu::attention_backward_kv<E, E>(in<E>(c, 0), rows, in<E>(c, 3), in<float>(c, 4), {d, {}}, shape, begin, end);
  });
}

// --- ring attention (src/plan/ring_attention.h): keys and values in `kv` are those of the rank ring_step places before this one

cpu::CausalAttention ring_shape(const Call& c) {
  const OpContext& x = *c.context;
  const int owner = static_cast<int>((x.cp_index - c.attributes->ring_step + x.cp) % x.cp);
  return shared_shape(c, own_positions(x.cp * x.S, x.cp, owner));
}
// rows that have q, kv [, sum, lse of the sum][, cu_seqlens] -> sum | att, lse
template <class E, class O>
void ring_attention(const Call& c) {
  const cpu::QkvRows<const E> rows = shared_rows<const E>(in<E>(c, 0), c.reads[0].dim(1), in<E>(c, 1), *c.context);
  cpu::AttendedBefore before;
  if (reads_without_documents(c) == 4) before = {in<float>(c, 2), in<float>(c, 3)};
  parallel_ranges(c.context->T, bytes_per_query(c), [&](int64_t begin, int64_t end) {
    cpu::attention<E, O>(rows, before, out<O>(c, 0), out<float>(c, 1), ring_shape(c), begin, end);
  });
}
// datt, rows that have q, kv, att, lse [, dq, dkv][, cu_seqlens] -> dq | d of the rows (q alone), dkv
template <class E, class O>
void ring_attention_backward(const Call& c) {
  const OpContext& x = *c.context;
  const cpu::QkvRows<const E> rows = shared_rows<const E>(in<E>(c, 1), c.reads[1].dim(1), in<E>(c, 2), x);
  cpu::Added<O> d{shared_rows<O>(out<O>(c, 0), c.writes[0].dim(1), out<O>(c, 1), x), {}};
  if (reads_without_documents(c) == 7) d.before = shared_rows<const float>(in<float>(c, 5), c.reads[5].dim(1), in<float>(c, 6), x);
  const cpu::CausalAttention shape = ring_shape(c);
  parallel_ranges(x.T, bytes_per_query(c), [&](int64_t begin, int64_t end) {
    cpu::attention_backward_q<E, O>(in<E>(c, 0), rows, in<E>(c, 3), in<float>(c, 4), d, shape, begin, end);
    cpu::attention_backward_kv<E, O>(in<E>(c, 0), rows, in<E>(c, 3), in<float>(c, 4), d, shape, begin, end);
  });
}
constexpr NativeOp ring_op(std::string_view kernel) {
  return {kernel, ring_attention<float, float>, ring_attention<Bf16, float>, ring_attention<F16, float>};
}
constexpr NativeOp ring_op_last(std::string_view kernel) {
  return {kernel, ring_attention<float, float>, ring_attention<Bf16, Bf16>, ring_attention<F16, F16>};
}
constexpr NativeOp ring_op_backward(std::string_view kernel) {
  return {kernel, ring_attention_backward<float, float>, ring_attention_backward<Bf16, float>, ring_attention_backward<F16, float>};
}
constexpr NativeOp ring_op_backward_last(std::string_view kernel) {
  return {kernel, ring_attention_backward<float, float>, ring_attention_backward<Bf16, Bf16>, ring_attention_backward<F16, F16>};
}
constexpr std::array kRing = {ring_op("ring_attention_first"),
                              ring_op("ring_attention"),
                              ring_op_last("ring_attention_last"),
                              ring_op_backward("ring_attention_backward_first"),
                              ring_op_backward("ring_attention_backward"),
                              ring_op_backward_last("ring_attention_backward_last"),
                              ring_op("ring_attention_first_packed"),
                              ring_op("ring_attention_packed"),
                              ring_op_last("ring_attention_last_packed"),
                              ring_op_backward("ring_attention_backward_first_packed"),
                              ring_op_backward("ring_attention_backward_packed"),
                              ring_op_backward_last("ring_attention_backward_last_packed")};
template <bool kSplit, bool kPacked>
constexpr NativeOp own_op(std::string_view kernel) {
  return {kernel, own_attention<float, kSplit, kPacked>, own_attention<Bf16, kSplit, kPacked>, own_attention<F16, kSplit, kPacked>};
}
template <bool kSplit, bool kPacked>
constexpr NativeOp own_op_backward(std::string_view kernel) {
  return {kernel, own_attention_backward<float, kSplit, kPacked>, own_attention_backward<Bf16, kSplit, kPacked>,
          own_attention_backward<F16, kSplit, kPacked>};
}
constexpr std::array kAttention = {
    own_op<false, false>("attention"),
    own_op<true, false>("attention_split"),
    own_op<false, true>("attention_packed"),
    own_op<true, true>("attention_split_packed"),
    own_op_backward<false, false>("attention_backward"),
    own_op_backward<true, false>("attention_split_backward"),
    own_op_backward<false, true>("attention_packed_backward"),
    own_op_backward<true, true>("attention_split_packed_backward"),
    NativeOp{"attention_shared", shared_attention<float>, shared_attention<Bf16>, shared_attention<F16>},
    NativeOp{"attention_shared_packed", shared_attention<float>, shared_attention<Bf16>, shared_attention<F16>},
    NativeOp{"attention_shared_backward", shared_attention_backward<float>, shared_attention_backward<Bf16>,
             shared_attention_backward<F16>},
    NativeOp{"attention_shared_packed_backward", shared_attention_backward<float>, shared_attention_backward<Bf16>,
             shared_attention_backward<F16>}};

template <class E>
void attend(const Call& c, E* keys, E* values, int64_t num_before) {
  const OpContext& x = *c.context;
  const bool split = c.reads.size() == 2;
  const cpu::QkvRows<const E> own = rows_of<const E>(split ? in<E>(c, 0) : nullptr, split ? in<E>(c, 1) : in<E>(c, 0), x);
  const int64_t width = x.kv * x.d, now = num_before + x.T;
  for (int64_t t = 0; t < x.T; ++t) {
    std::copy_n(own.k + t * own.k_stride, width, keys + (num_before + t) * width);
    std::copy_n(own.v + t * own.v_stride, width, values + (num_before + t) * width);
  }
  const cpu::QkvRows<const E> rows{own.q, keys, values, own.q_stride, width, width};
  const cpu::CausalAttention shape = attention_shape(c, Positions{x.T, x.T, num_before, now}, Positions{now, now, 0, now});
  parallel_ranges(x.T, now * x.a * x.d, [&](int64_t begin, int64_t end) {
    cpu::attention<E, E>(rows, {}, out<E>(c, 0), out<float>(c, 1), shape, begin, end);
  });
}

}  // namespace

void attend_to_cache(const Call& call, KeyValueCache& cache, int64_t num_before) {
  const OpContext& x = *call.context;
  CHECK(x.B == 1 && x.cp == 1 && x.d <= cpu::kMostHeadSize, "{} sequences over {} ranks, heads of {}", x.B, x.cp, x.d);
  CHECK((num_before + x.T) * x.kv * x.d * size_bytes(x.compute) <= int64_t(cache.keys.size()),
        "{} tokens are more than the cache has room for", num_before + x.T);
  const auto with = [&]<class E>(E*) {
    attend(call, reinterpret_cast<E*>(cache.keys.data()), reinterpret_cast<E*>(cache.values.data()), num_before);
  };
  if (x.compute == Dtype::kBf16)
    with(static_cast<Bf16*>(nullptr));
  else if (x.compute == Dtype::kF16)
    with(static_cast<F16*>(nullptr));
  else
    with(static_cast<float*>(nullptr));
}

bool needs_own_attention(const std::string& kernel, const Call& call) {
  if (kernel.starts_with("ring_")) return true;
  return kernel.starts_with("attention") && has_own_attention(kernel, *call.attributes, call.context->S, call.context->compute);
}

std::string bind_own_attention(const std::string& kernel, Call& call) {
  if (call.context->d > cpu::kMostHeadSize)
    return fmt::format("attention {} takes head sizes up to {}, this model's is {}",
                       call.context->compute == Dtype::kF16 ? "in fp16" : "with a window, a soft cap or over several ranks",
                       cpu::kMostHeadSize, call.context->d);
  call.function = find_op(kernel.starts_with("ring_") ? std::span<const NativeOp>(kRing) : kAttention, kernel, call);
  return call.function != nullptr ? "" : "the CPU has no such kernel";
}

}  // namespace distsetup
