// Operand order is the program's (src/plan/sinks_biases.cc). Log-sum-exps lie as attention leaves them here: [B, heads, S]; of ranks
// that share sequences, those of the first chunks and then those of the second ones; of packed rows [heads, tokens] for each group of
// documents.
#include "runtime/kernels/cuda/sinks_biases.h"

#include "runtime/engine/ops_sinks_biases.h"
#include "runtime/engine/ops_table.h"
#include "runtime/kernels/cuda/attention_documents.h"
#include "runtime/kernels/cuda/experts.h"
#include "runtime/kernels/cuda/own_ops.h"

namespace distsetup::cuda {
namespace {

char* bytes_at(const Argument& a, int64_t row) { return static_cast<char*>(a.data) + row * a.dim(1) * size_bytes(a.dtype); }

// use(first token, layout of the sums of those tokens)
template <class Use>
void each_layout(const Call& c, int64_t A, const Use& use) {
  const OpContext& x = *c.context;
  if (!x.packed) return use(int64_t{0}, SumLayout{x.B, x.S, A, x.cp > 1 ? 2 : 1});
  each_group_of_sums(c, [&](int64_t begin, int64_t end) { use(begin, SumLayout{1, end - begin, A, 1}); });
}

// att, lse, p:sinks -> att, lse
void add_sinks(const Call& c) {
  const int64_t A = c.writes[1].dim(1), D = c.writes[0].dim(1) / A;
  each_layout(c, A, [&](int64_t first, SumLayout layout) {
    head_sinks(element(c), bytes_at(c.writes[0], first), out<float>(c, 1) + first * A, c.reads[2].data, layout, D, compute());
  });
}
// datt, att, lse, p:sinks -> g:sinks
void add_sinks_backward(const Call& c) {
  const int64_t A = c.reads[2].dim(1), D = c.reads[1].dim(1) / A;
  bool accumulate = c.accumulate;
  each_layout(c, A, [&](int64_t first, SumLayout layout) {
    head_sinks_backward(element(c), bytes_at(c.reads[0], first), bytes_at(c.reads[1], first), in<float>(c, 2) + first * A,
                        c.reads[3].data, c.writes[0].data, layout, D, accumulate, compute());
    accumulate = true;
  });
}

// rows, p:bias of all experts, starts -> rows
void add_grouped_bias(const Call& c) {
  const int64_t n = c.writes[0].dim(1), first = first_own_expert(*c.context, c.reads[2]);
  grouped_bias_add(element(c), c.writes[0].data, static_cast<const char*>(c.reads[1].data) + first * n * size_bytes(c.reads[1].dtype),
                   in<int64_t>(c, 2), c.writes[0].dim(0), c.reads[2].dim(0) - 1, n, compute());
}
// drows, starts -> g:bias
void add_grouped_bias_backward(const Call& c) {
  const int64_t n = c.reads[0].dim(1);
  grouped_bias_backward(element(c), c.reads[0].data, in<int64_t>(c, 1), c.writes[0].data, first_own_expert(*c.context, c.reads[1]),
                        c.reads[1].dim(0) - 1, numel(c.writes[0]) / n, n, c.accumulate, compute());
}

// x, weights, choice, p:bias -> y
void add_routed_bias(const Call& c) {
  routed_bias_add(element(c), c.reads[0].data, in<float>(c, 1), in<int64_t>(c, 2), c.reads[3].data, c.writes[0].data,
                  c.writes[0].dim(0), c.writes[0].dim(1), c.reads[1].dim(1), compute());
}
// dy, weights, choice, p:bias, dweights -> dweights, g:bias
void add_routed_bias_backward(const Call& c) {
  const int64_t n = c.reads[0].dim(1);
  routed_bias_backward(element(c), c.reads[0].data, in<float>(c, 1), in<int64_t>(c, 2), c.reads[3].data, out<float>(c, 0),
                       c.writes[1].data, c.reads[0].dim(0), n, c.reads[1].dim(1), numel(c.writes[1]) / n, c.accumulate, compute());
}

// Weights of choices in an order; own_rows: of rows.
RowChoices by_order(const Argument& order) { return {static_cast<const int64_t*>(order.data)}; }
template <RowChoices (*kChoices)(const Argument&)>
void clipped(const Call& c) {
  clipped_swiglu(element(c), c.reads[0].data, in<float>(c, 1), kChoices(c.reads[2]), c.writes[0].data, c.writes[0].dim(0),
                 c.writes[0].dim(1), clipped_gate(c), compute());
}
template <RowChoices (*kChoices)(const Argument&)>
void clipped_backward(const Call& c) {
  clipped_swiglu_backward(element(c), c.reads[0].data, c.reads[1].data, in<float>(c, 2), kChoices(c.reads[3]), c.writes[0].data,
                          out<float>(c, 1), c.reads[0].dim(0), c.reads[0].dim(1), clipped_gate(c), compute());
}

}  // namespace

const std::map<std::string, OpFunction>& sink_and_bias_kernels() {
  static const std::map<std::string, OpFunction> table = {{"head_sinks", add_sinks},
                                                          {"head_sinks_backward", add_sinks_backward},
                                                          {"grouped_bias_add", add_grouped_bias},
                                                          {"grouped_bias_backward", add_grouped_bias_backward},
                                                          {"routed_bias_add", add_routed_bias},
                                                          {"routed_bias_backward", add_routed_bias_backward},
                                                          {"clipped_swiglu_weighted", clipped<by_order>},
                                                          {"clipped_swiglu_weighted_backward", clipped_backward<by_order>},
                                                          {"clipped_swiglu_weighted_rows", clipped<own_rows>},
                                                          {"clipped_swiglu_weighted_rows_backward", clipped_backward<own_rows>}};
  return table;
}

}  // namespace distsetup::cuda
