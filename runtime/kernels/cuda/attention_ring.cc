// A rank has two chunks of every sequence, c and 2 · cp - 1 - c. Of the keys of rank o its queries see
//   o = c   those up to themselves: within the rank's rows that is plain causal attention;
//   o < c   all of o's first chunk, nothing of its second one;
//   o > c   of the second chunk all, of the first one nothing.
// So each step is one call of a kernel without a mask in between, on half of the scores that there are. What comes out is joined in
// fp32 by log-sum-exps, which lie as those of attention_shared do: of the first chunks, then of the second ones. Backward, each step
// takes the att and lse of all keys: its gradients are then its part of the whole (arXiv 2310.01889, appendix B).
#include "runtime/kernels/cuda/attention_ring.h"

#include <ATen/core/Tensor.h>

#include "runtime/engine/ops_table.h"

namespace distsetup::cuda {
namespace {

using at::Tensor;

struct RingPiece {
  int64_t first_query = 0, queries = 0, keys = 0;  // of each sequence's rows on a rank; keys are its first ones
  bool is_causal = false;
  SequenceRows rows_of_queries(int64_t S) const { return {S, first_query, queries}; }
  SequenceRows rows_of_keys(int64_t S) const { return {S, 0, keys}; }
};
RingPiece piece_of(const Call& c) {
  const int64_t S = c.context->S, step = c.attributes->ring_step;
  if (step == 0) return {0, S, S, true};
  return step <= c.context->cp_index ? RingPiece{0, S, S / 2, false} : RingPiece{S / 2, S / 2, S, false};
}

Tensor query_heads(const Argument& rows, const Call& c) {
  const OpContext& x = *c.context;
  const RingPiece p = piece_of(c);
  return tensor(rows).view({x.B, x.S, rows.dim(1) / x.d, x.d}).narrow(1, p.first_query, p.queries).narrow(2, 0, x.a);
}
Tensor key_heads(const Argument& rows, const Call& c, bool values) {
  const OpContext& x = *c.context;
  return tensor(rows).view({x.B, x.S, 2 * x.kv, x.d}).narrow(1, 0, piece_of(c).keys).narrow(2, values ? x.kv : 0, x.kv);
}
SumLayout layout_of(const OpContext& x) { return {x.B, x.S, x.a, 2}; }
Element element_of_result(const Argument& a, const Call& c) { return a.dtype == Dtype::kF32 ? Element::kF32 : element(c); }

// rows that have q, kv [, sum, lse of the sum] -> sum | att, lse
std::vector<Tensor> operands(const Call& c) {
  return {query_heads(c.reads[0], c), key_heads(c.reads[1], c, false), key_heads(c.reads[1], c, true)};
}
void attend(const Call& c) {
  const OpContext& x = *c.context;
  const std::vector<Tensor>& t = views_of(c);
  const RingPiece p = piece_of(c);
  const bool is_first = c.reads.size() == 2;
  const Attended part = attend_to_piece(c, t[0], t[1], t[2], p.is_causal);
  const Tensor att = part.att.contiguous(), lse = part.lse.contiguous();
  merge_attended(element(c), is_first ? nullptr : in<float>(c, 2), is_first ? nullptr : in<float>(c, 3), att.const_data_ptr(),
                 lse.const_data_ptr<float>(), p.rows_of_queries(x.S), element_of_result(c.writes[0], c), c.writes[0].data,
                 out<float>(c, 1), layout_of(x), x.d, compute());
}

// The log-sum-exps of a piece's queries, [B, a, queries].
Tensor sums_of_piece(const Argument& lse, const Call& c) {
  const OpContext& x = *c.context;
  const Tensor chunks = tensor(lse).view({2, x.B, x.a, x.S / 2});
  if (piece_of(c).queries < x.S) return chunks.select(0, 1);
  return chunks.permute({1, 2, 0, 3}).reshape({x.B, x.a, x.S});
}
// datt, rows that have q, kv, att, lse [, dq, dkv] -> dq | d of the rows (q alone), dkv
std::vector<Tensor> backward_operands(const Call& c) {
  return {query_heads(c.reads[0], c), query_heads(c.reads[1], c), key_heads(c.reads[2], c, false), key_heads(c.reads[2], c, true),
          query_heads(c.reads[3], c)};
}
void attend_backward(const Call& c) {
  const OpContext& x = *c.context;
  const RingPiece p = piece_of(c);
  std::vector<Tensor> t = views_of(c);
  t.push_back(sums_of_piece(c.reads[4], c));
  const AttentionGradients d = piece_gradients(c, t.data(), p.is_causal);
  const bool is_first = c.reads.size() == 5;
  const int64_t q = x.a * x.d, kv = x.kv * x.d;
  const float* const dq = is_first ? nullptr : in<float>(c, 5);
  const float* const dkv = is_first ? nullptr : in<float>(c, 6);
  add_part(element(c), dq, q, d.dq.contiguous().const_data_ptr(), p.rows_of_queries(x.S), element_of_result(c.writes[0], c),
           c.writes[0].data, c.writes[0].dim(1), x.T, q, compute());
  const Element of_keys = element_of_result(c.writes[1], c);
  char* const to = static_cast<char*>(c.writes[1].data);
  add_part(element(c), dkv, 2 * kv, d.dk.contiguous().const_data_ptr(), p.rows_of_keys(x.S), of_keys, to, 2 * kv, x.T, kv, compute());
  add_part(element(c), is_first ? nullptr : dkv + kv, 2 * kv, d.dv.contiguous().const_data_ptr(), p.rows_of_keys(x.S), of_keys,
           to + kv * size_bytes(c.writes[1].dtype), 2 * kv, x.T, kv, compute());
}

}  // namespace

const std::map<std::string, LibtorchKernel>& ring_kernels() {
  static const LibtorchKernel forward = {operands, attend, attend}, backward = {backward_operands, attend_backward, attend_backward};
  static const std::map<std::string, LibtorchKernel> table = {
      {"ring_attention_first", forward},           {"ring_attention", forward},           {"ring_attention_last", forward},
      {"ring_attention_backward_first", backward}, {"ring_attention_backward", backward}, {"ring_attention_backward_last", backward}};
  return table;
}

}  // namespace distsetup::cuda
