#include "runtime/engine/ops_experts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "plan/expert_rules.h"
#include "runtime/engine/ops_table.h"
#include "runtime/engine/threads.h"
#include "runtime/kernels/cpu/experts.h"
#include "runtime/kernels/cpu/kernels.h"

namespace distsetup {
namespace {

float factor(const Call& c) { return float(c.attributes->multiplier); }

// `of` has a column for each of a token's experts.
Router router(const Call& c, RouterScore score, const Argument& logits, const Argument& of) {
  const OpAttributes& a = *c.attributes;
  return {score, logits.dim(1), of.dim(1), a.groups, a.groups_chosen, a.normalized != 0, factor(c)};
}
template <class E>
const E* optional_in(const Call& c, size_t i) {
  return i < c.reads.size() ? in<E>(c, int(i)) : nullptr;
}

// logits[, bias] -> weights, choice
template <RouterScore kScore, class E>
void route(const Call& c) {
  const Router r = router(c, kScore, c.reads[0], c.writes[0]);
  parallel_ranges(c.reads[0].dim(0), 16 * r.num_experts * r.k, [&](int64_t begin, int64_t end) {
    cpu::route<E>(in<E>(c, 0) + begin * r.num_experts, optional_in<E>(c, 1), out<float>(c, 0) + begin * r.k,
                  out<int64_t>(c, 1) + begin * r.k, end - begin, r);
  });
}
// dweights, logits, choice[, before] -> dlogits[, g:bias]
template <RouterScore kScore, class E>
void route_backward(const Call& c) {
  const Router r = router(c, kScore, c.reads[1], c.reads[0]);
  const E* const before = optional_in<E>(c, 3);
  parallel_ranges(c.reads[0].dim(0), 32 * r.num_experts, [&](int64_t begin, int64_t end) {
    const int64_t row = begin * r.num_experts;
    cpu::route_backward<E>(in<float>(c, 0) + begin * r.k, in<E>(c, 1) + row, in<int64_t>(c, 2) + begin * r.k,
                           before == nullptr ? nullptr : before + row, out<E>(c, 0) + row, end - begin, r);
  });
  if (c.writes.size() > 1) cpu::count_above_share<E>(in<int64_t>(c, 2), out<E>(c, 1), numel(c.reads[2]), r.num_experts, c.accumulate);
}
// choice -> order, place, starts
template <class>
void sort_experts(const Call& c) {
  const int64_t N = numel(c.reads[0]), num_experts = c.writes[2].dim(0) - 1;
  cpu::sort_experts(in<int64_t>(c, 0), out<int64_t>(c, 0), out<int64_t>(c, 1), out<int64_t>(c, 2), N, num_experts,
                    capacity_rows(c.attributes->capacity, N, num_experts), c.writes[0].dim(0));
}
// x, order -> rows
template <class E>
void permute(const Call& c) {
  const int64_t H = c.reads[0].dim(1), k = choices_of_token(*c.attributes, c.writes[0].dim(0), c.reads[0].dim(0));
  parallel_ranges(c.writes[0].dim(0), 2 * H * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    cpu::permute<E>(in<E>(c, 0), in<int64_t>(c, 1), out<E>(c, 0), begin, end, H, k);
  });
}
// rows, place[, addend] -> y
template <class E>
void unpermute(const Call& c) {
  const int64_t H = c.reads[0].dim(1), T = c.writes[0].dim(0), k = numel(c.reads[1]) / T;
  parallel_ranges(T, (k + 2) * H * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    cpu::unpermute<E>(in<E>(c, 0), in<int64_t>(c, 1), optional_in<E>(c, 2), out<E>(c, 0), begin, end, H, k);
  });
}

template <Activation kF, class E>
void gate_row(const E* gu, E* m, int64_t F) {
  if constexpr (kF == Activation::kSilu)
    cpu::swiglu<E>(gu, m, 1, F);
  else
    cpu::gated_activation<kF, E>(gu, m, 1, F);
}
template <Activation kF, class E>
void gate_row_backward(const E* dm, const E* gu, E* dgu, int64_t F) {
  if constexpr (kF == Activation::kSilu)
    cpu::swiglu_backward<E>(dm, gu, dgu, 1, F);
  else
    cpu::gated_activation_backward<kF, E>(dm, gu, dgu, 1, F);
}
// gu, weights, order -> m: row i has the weight of choice order[i]
template <Activation kF, class E>
void gated_weighted(const Call& c) {
  const int64_t F = c.writes[0].dim(1);
  parallel_ranges(c.writes[0].dim(0), 4 * F * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t choice = in<int64_t>(c, 2)[i];
      if (choice < 0) continue;
      E* const m = out<E>(c, 0) + i * F;
      gate_row<kF, E>(in<E>(c, 0) + i * 2 * F, m, F);
      cpu::scale_row<E>(m, in<float>(c, 1)[choice], m, F);
    }
  });
}
// Of one row; returns the gradient of its weight. dgu may be gu.
template <Activation kF, class E>
float gate_row_gradient(const E* dm, const E* gu, float weight, E* dgu, int64_t F) {
  thread_local std::vector<E> row;
  row.resize(size_t(F));
  gate_row<kF, E>(gu, row.data(), F);
  const float of_weight = cpu::dot<E>(dm, row.data(), F);
  cpu::scale_row<E>(dm, weight, row.data(), F);
  gate_row_backward<kF, E>(row.data(), gu, dgu, F);
  return of_weight;
}
// dm, gu, weights, order -> dgu, dweights
template <Activation kF, class E>
void gated_weighted_backward(const Call& c) {
  const int64_t F = c.reads[0].dim(1);
  if (c.attributes->capacity > 0) std::fill_n(out<float>(c, 1), numel(c.writes[1]), 0.0f);  // choices without a row
  parallel_ranges(c.reads[0].dim(0), 8 * F * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t choice = in<int64_t>(c, 3)[i];
      if (choice < 0) continue;
      out<float>(c, 1)[choice] =
          gate_row_gradient<kF, E>(in<E>(c, 0) + i * F, in<E>(c, 1) + i * 2 * F, in<float>(c, 2)[choice], out<E>(c, 0) + i * 2 * F, F);
    }
  });
}

// starts of all ranks -> starts of this rank's experts, among the rows that come to them
template <class>
void own_starts(const Call& c) {
  const int64_t num_experts = c.reads[0].dim(1) - 1, each = c.writes[0].dim(0) - 1;
  const int64_t *const all = in<int64_t>(c, 0), first = c.context->ep_index * each;
  int64_t* const own = out<int64_t>(c, 0);
  own[0] = 0;
  for (int64_t e = 0; e < each; ++e) {
    own[e + 1] = own[e];
    for (int64_t rank = 0; rank < c.reads[0].dim(0); ++rank) {
      const int64_t* const starts = all + rank * (num_experts + 1) + first + e;
      own[e + 1] += starts[1] - starts[0];
    }
  }
}
// weights, order -> weights of rows; and back
template <class>
void sort_weights(const Call& c) {
  const int64_t* const order = in<int64_t>(c, 1);
  for (int64_t i = 0; i < c.writes[0].dim(0); ++i)
    if (order[i] >= 0) out<float>(c, 0)[i] = in<float>(c, 0)[order[i]];
}
template <class>
void unsort_weights(const Call& c) {
  const int64_t* const order = in<int64_t>(c, 1);
  if (c.attributes->capacity > 0) std::fill_n(out<float>(c, 0), numel(c.writes[0]), 0.0f);  // choices without a row
  for (int64_t i = 0; i < c.reads[0].dim(0); ++i)
    if (order[i] >= 0) out<float>(c, 0)[order[i]] = in<float>(c, 0)[i];
}
// gu, weights of rows, starts -> m. Behind the last expert's rows there are none.
template <Activation kF, class E>
void gated_rows(const Call& c) {
  const int64_t F = c.writes[0].dim(1), rows = in<int64_t>(c, 2)[c.reads[2].dim(0) - 1];
  parallel_ranges(rows, 4 * F * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      E* const m = out<E>(c, 0) + i * F;
      gate_row<kF, E>(in<E>(c, 0) + i * 2 * F, m, F);
      cpu::scale_row<E>(m, in<float>(c, 1)[i], m, F);
    }
  });
}
// dm, gu, weights of rows, starts -> dgu, dweights of rows
template <Activation kF, class E>
void gated_rows_backward(const Call& c) {
  const int64_t F = c.reads[0].dim(1), rows = in<int64_t>(c, 3)[c.reads[3].dim(0) - 1];
  parallel_ranges(rows, 8 * F * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      out<float>(c, 1)[i] =
          gate_row_gradient<kF, E>(in<E>(c, 0) + i * F, in<E>(c, 1) + i * 2 * F, in<float>(c, 2)[i], out<E>(c, 0) + i * 2 * F, F);
  });
}

template <class E>
float sigmoid(E x) {
  return 1.0f / (1.0f + std::exp(-to_float(x)));
}
// m, s -> rows of m times sigmoid(s)
template <class E>
void sigmoid_rows(const Call& c) {
  const int64_t F = c.writes[0].dim(1);
  parallel_ranges(c.writes[0].dim(0), 2 * F * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) cpu::scale_row<E>(in<E>(c, 0) + t * F, sigmoid(in<E>(c, 1)[t]), out<E>(c, 0) + t * F, F);
  });
}
// d, m, s -> dm, ds
template <class E>
void sigmoid_rows_backward(const Call& c) {
  const int64_t F = c.reads[0].dim(1);
  parallel_ranges(c.reads[0].dim(0), 4 * F * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float s = sigmoid(in<E>(c, 2)[t]), slope = cpu::dot<E>(in<E>(c, 0) + t * F, in<E>(c, 1) + t * F, F) * s * (1 - s);
      cpu::scale_row<E>(in<E>(c, 0) + t * F, s, out<E>(c, 0) + t * F, F);
      from_float(slope, out<E>(c, 1) + t);
    }
  });
}

// router_sums -> router_sums
template <class>
void clear_routes(const Call& c) {
  std::fill_n(out<double>(c, 0), numel(c.writes[0]), 0.0);
}
// router_sums -> router_sums
template <class>
void copy_routes(const Call& c) {
  std::copy_n(in<double>(c, 0), numel(c.writes[0]), out<double>(c, 0));
}
// logits, choice, router_sums -> router_sums
template <class E>
void count_routes(const Call& c) {
  cpu::count_routes<E>(in<E>(c, 0), in<int64_t>(c, 1), out<double>(c, 0), c.reads[0].dim(0), c.reads[0].dim(1), c.reads[1].dim(1));
}
// logits, router_sums, router_scale[, before] -> dlogits
template <class E>
void count_routes_backward(const Call& c) {
  const int64_t E_ = c.reads[0].dim(1);
  const E* const before = optional_in<E>(c, 3);
  const double scale = double(c.attributes->multiplier) * *in<double>(c, 2);
  parallel_ranges(c.reads[0].dim(0), 32 * E_, [&](int64_t begin, int64_t end) {
    cpu::balance_backward<E>(in<E>(c, 0) + begin * E_, in<double>(c, 1), before == nullptr ? nullptr : before + begin * E_,
                             out<E>(c, 0) + begin * E_, end - begin, E_, c.attributes->chosen, scale);
  });
}
// router_sums of all ranks of tp or cp -> router_sums
template <class>
void sum_routes(const Call& c) {
  const int64_t n = numel(c.writes[0]);
  for (int64_t i = 0; i < n; ++i) {
    double sum = 0;
    for (int64_t rank = 0; rank < c.reads[0].dim(0); ++rank) sum += in<double>(c, 0)[rank * n + i];
    out<double>(c, 0)[i] = sum;
  }
}
// router_sums, router_scale, loss -> loss
template <class>
void balance_loss(const Call& c) {
  *out<double>(c, 0) +=
      cpu::balance_loss(in<double>(c, 0), c.reads[0].dim(1), c.attributes->chosen, c.attributes->multiplier * *in<double>(c, 1));
}

// logits, router_scale, loss[, what backward reads] -> loss
template <class E>
void router_z_loss(const Call& c) {
  *out<double>(c, 0) +=
      cpu::router_z_loss<E>(in<E>(c, 0), c.reads[0].dim(0), c.reads[0].dim(1), c.attributes->multiplier * *in<double>(c, 1));
}
// logits, router_scale[, before] -> dlogits
template <class E>
void router_z_loss_backward(const Call& c) {
  const int64_t T = c.reads[0].dim(0), E_ = c.reads[0].dim(1);
  const E* const before = optional_in<E>(c, 2);
  const double factor = double(c.attributes->multiplier) * *in<double>(c, 1);
  parallel_ranges(T, 32 * E_, [&](int64_t begin, int64_t end) {
    cpu::router_z_loss_backward<E>(in<E>(c, 0) + begin * E_, before == nullptr ? nullptr : before + begin * E_,
                                   out<E>(c, 0) + begin * E_, end - begin, E_, T, factor);
  });
}

#define DISTSETUP_NAMED(name, kernel) \
  NativeOp { name, kernel<float>, kernel<Bf16>, kernel<F16> }
#define DISTSETUP_ENTRY(kernel) DISTSETUP_NAMED(#kernel, kernel)
#define DISTSETUP_OF(name, kernel, of) \
  NativeOp { name, kernel<of, float>, kernel<of, Bf16>, kernel<of, F16> }
#define DISTSETUP_ROUTE(kernel, score) \
  DISTSETUP_OF(#kernel, route, RouterScore::score), DISTSETUP_OF(#kernel "_backward", route_backward, RouterScore::score)
#define DISTSETUP_WEIGHTED(kernel, F)                                                                                              \
  DISTSETUP_OF(#kernel, gated_weighted, Activation::F), DISTSETUP_OF(#kernel "_backward", gated_weighted_backward, Activation::F), \
      DISTSETUP_OF(#kernel "_rows", gated_rows, Activation::F),                                                                    \
      DISTSETUP_OF(#kernel "_rows_backward", gated_rows_backward, Activation::F)
constexpr std::array kTable = {DISTSETUP_ROUTE(route_softmax, kSoftmax),
                               DISTSETUP_ROUTE(route_softmax_biased, kSoftmax),
                               DISTSETUP_ROUTE(route_sigmoid, kSigmoid),
                               DISTSETUP_ENTRY(sort_experts),
                               DISTSETUP_ENTRY(permute),
                               DISTSETUP_ENTRY(unpermute),
                               DISTSETUP_NAMED("unpermute_add", unpermute),
                               DISTSETUP_WEIGHTED(swiglu_weighted, kSilu),
                               DISTSETUP_WEIGHTED(geglu_weighted, kGelu),
                               DISTSETUP_WEIGHTED(geglu_tanh_weighted, kGeluTanh),
                               DISTSETUP_ENTRY(own_starts),
                               DISTSETUP_ENTRY(sort_weights),
                               DISTSETUP_ENTRY(unsort_weights),
                               DISTSETUP_ENTRY(sigmoid_rows),
                               DISTSETUP_ENTRY(sigmoid_rows_backward),
                               DISTSETUP_ENTRY(clear_routes),
                               DISTSETUP_ENTRY(copy_routes),
                               DISTSETUP_ENTRY(count_routes),
                               DISTSETUP_ENTRY(count_routes_backward),
                               DISTSETUP_ENTRY(sum_routes),
                               DISTSETUP_ENTRY(balance_loss),
                               DISTSETUP_ENTRY(router_z_loss),
                               DISTSETUP_NAMED("router_z_loss_of_all", router_z_loss),
                               DISTSETUP_ENTRY(router_z_loss_backward)};
#undef DISTSETUP_WEIGHTED
#undef DISTSETUP_ROUTE
#undef DISTSETUP_OF
#undef DISTSETUP_ENTRY
#undef DISTSETUP_NAMED

}  // namespace

bool bind_expert_op(const std::string& kernel, Call& call) {
  call.function = find_op(kTable, kernel, call);
  return call.function != nullptr;
}

}  // namespace distsetup
