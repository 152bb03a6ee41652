#include "runtime/engine/ops_sinks_biases.h"

#include <algorithm>
#include <array>

#include "runtime/engine/ops_table.h"
#include "runtime/engine/threads.h"
#include "runtime/kernels/cpu/bf16.h"
#include "runtime/kernels/cpu/experts.h"
#include "runtime/kernels/cpu/sinks_biases.h"

namespace distsetup {
namespace {

// att, lse, p:sinks -> att, lse
template <class E>
void head_sinks(const Call& c) {
  const int64_t A = c.writes[1].dim(1), D = c.writes[0].dim(1) / A;
  parallel_ranges(c.writes[0].dim(0), 2 * A * D * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    cpu::head_sinks<E>(out<E>(c, 0), out<float>(c, 1), in<E>(c, 2), begin, end, A, D);
  });
}
// datt, att, lse, p:sinks -> g:sinks
template <class E>
void head_sinks_backward(const Call& c) {
  const int64_t T = c.reads[2].dim(0), A = c.reads[2].dim(1), D = c.reads[1].dim(1) / A;
  parallel_ranges(A, 2 * T * D * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    cpu::head_sinks_backward<E>(in<E>(c, 0), in<E>(c, 1), in<float>(c, 2), in<E>(c, 3), out<E>(c, 0), begin, end, T, A, D,
                                c.accumulate);
  });
}

// rows, p:bias of all experts, starts -> rows
template <class E>
void grouped_bias_add(const Call& c) {
  const int64_t n = c.writes[0].dim(1), experts = c.reads[2].dim(0) - 1, first = first_own_expert(*c.context, c.reads[2]);
  const int64_t* const starts = in<int64_t>(c, 2);
  for (int64_t e = 0; e < experts; ++e) {
    const E* const bias = in<E>(c, 1) + (first + e) * n;
    parallel_ranges(starts[e + 1] - starts[e], 2 * n * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
      for (int64_t row = starts[e] + begin; row < starts[e] + end; ++row) cpu::add_bias_row<E>(out<E>(c, 0) + row * n, bias, n);
    });
  }
}
// drows, starts -> g:bias: of other ranks' experts [g +] 0
template <class E>
void grouped_bias_backward(const Call& c) {
  const int64_t n = c.reads[0].dim(1), all = numel(c.writes[0]) / n, experts = c.reads[1].dim(0) - 1;
  const int64_t first = first_own_expert(*c.context, c.reads[1]);
  const int64_t* const starts = in<int64_t>(c, 1);
  parallel_ranges(n, c.reads[0].dim(0) * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    for (int64_t e = 0; e < all; ++e) {
      const bool is_own = e >= first && e < first + experts;
      const int64_t row = is_own ? starts[e - first] : 0, last = is_own ? starts[e - first + 1] : 0;
      cpu::sum_rows<E>(in<E>(c, 0), row, last, out<E>(c, 0) + e * n, n, begin, end, c.accumulate);
    }
  });
}

// x, weights, choice, p:bias -> y
template <class E>
void routed_bias_add(const Call& c) {
  const int64_t n = c.writes[0].dim(1), k = c.reads[1].dim(1);
  parallel_ranges(c.writes[0].dim(0), (k + 2) * n * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      cpu::routed_bias_row<E>(in<E>(c, 0) + t * n, in<float>(c, 1) + t * k, in<int64_t>(c, 2) + t * k, in<E>(c, 3),
                              out<E>(c, 0) + t * n, n, k);
  });
}
// dy, weights, choice, p:bias, dweights -> dweights, g:bias
template <class E>
void routed_bias_backward(const Call& c) {
  const int64_t T = c.reads[0].dim(0), n = c.reads[0].dim(1), k = c.reads[1].dim(1);
  parallel_ranges(T, (k + 1) * n * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * k; i < end * k; ++i)
      out<float>(c, 0)[i] += cpu::dot<E>(in<E>(c, 0) + i / k * n, in<E>(c, 3) + in<int64_t>(c, 2)[i] * n, n);
  });
  parallel_ranges(n, T * k * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    cpu::routed_bias_gradient<E>(in<E>(c, 0), in<float>(c, 1), in<int64_t>(c, 2), out<E>(c, 1), T, n, k, numel(c.writes[1]) / n, begin,
                                 end, c.accumulate);
  });
}

// gu, weights, order -> m; gu, weights of rows, starts -> m. Behind the last expert's rows there are none.
enum class WeightOf { kChoice, kRow };
template <WeightOf kOf>
int64_t place_of_weight(const Call& c, int index, int64_t row) {
  return kOf == WeightOf::kRow ? row : in<int64_t>(c, index)[row];
}
template <WeightOf kOf>
int64_t num_rows(const Call& c, int index) {
  const Argument& a = c.reads[size_t(index)];
  return kOf == WeightOf::kRow ? in<int64_t>(c, index)[a.dim(0) - 1] : a.dim(0);
}
template <WeightOf kOf, class E>
void clipped_swiglu(const Call& c) {
  const int64_t F = c.writes[0].dim(1);
  parallel_ranges(num_rows<kOf>(c, 2), 4 * F * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      cpu::clipped_swiglu_row<E>(in<E>(c, 0) + i * 2 * F, in<float>(c, 1)[place_of_weight<kOf>(c, 2, i)], out<E>(c, 0) + i * F, F,
                                 clipped_gate(c));
  });
}
// dm, gu, weights, order | starts -> dgu, dweights
template <WeightOf kOf, class E>
void clipped_swiglu_backward(const Call& c) {
  const int64_t F = c.reads[0].dim(1);
  parallel_ranges(num_rows<kOf>(c, 3), 8 * F * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = place_of_weight<kOf>(c, 3, i);
      out<float>(c, 1)[at] = cpu::clipped_swiglu_row_backward<E>(in<E>(c, 0) + i * F, in<E>(c, 1) + i * 2 * F, in<float>(c, 2)[at],
                                                                 out<E>(c, 0) + i * 2 * F, F, clipped_gate(c));
    }
  });
}

#define DISTSETUP_ENTRY(kernel) \
  NativeOp { #kernel, kernel < float>, kernel < Bf16>, kernel < F16> }
#define DISTSETUP_CLIPPED(name, function, of) \
  NativeOp { name, function<WeightOf::of, float>, function<WeightOf::of, Bf16>, function<WeightOf::of, F16> }
constexpr std::array kTable = {DISTSETUP_ENTRY(head_sinks),
                               DISTSETUP_ENTRY(head_sinks_backward),
                               DISTSETUP_ENTRY(grouped_bias_add),
                               DISTSETUP_ENTRY(grouped_bias_backward),
                               DISTSETUP_ENTRY(routed_bias_add),
                               DISTSETUP_ENTRY(routed_bias_backward),
                               DISTSETUP_CLIPPED("clipped_swiglu_weighted", clipped_swiglu, kChoice),
                               DISTSETUP_CLIPPED("clipped_swiglu_weighted_backward", clipped_swiglu_backward, kChoice),
                               DISTSETUP_CLIPPED("clipped_swiglu_weighted_rows", clipped_swiglu, kRow),
                               DISTSETUP_CLIPPED("clipped_swiglu_weighted_rows_backward", clipped_swiglu_backward, kRow)};
#undef DISTSETUP_CLIPPED
#undef DISTSETUP_ENTRY

}  // namespace

bool bind_sink_or_bias_op(const std::string& kernel, Call& call) {
  call.function = find_op(kTable, kernel, call);
  return call.function != nullptr;
}

}  // namespace distsetup
