// The trainer's own kernels under the names that programs use, on all threads of the rank. Operand order is the program's
// (src/plan/kernel_table.cc). How work is split changes no bit of a result, with one exception: the sum behind a row of a norm's
// weight gradient may be rounded otherwise by one thread than by several.
#include "runtime/engine/ops_native.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

#include "runtime/engine/ops_table.h"
#include "runtime/engine/threads.h"
#include "runtime/kernels/cpu/kernels.h"

namespace distsetup {
namespace {

using cpu::Store;

Store store(const Call& c) { return c.accumulate ? Store::kAdd : Store::kSet; }
float multiplier(const Call& c) { return float(c.attributes->multiplier); }
float weight_offset(const Call& c) { return float(c.attributes->weight_offset); }
cpu::RmsNorm rms(const Call& c) { return {float(c.attributes->epsilon), weight_offset(c)}; }

// ids, p:wte -> y
template <class E>
void embedding_forward(const Call& c) {
  const int64_t H = c.writes[0].dim(1);
  parallel_ranges(c.writes[0].dim(0), 2 * H * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    cpu::embedding_forward<E>(in<int64_t>(c, 0) + begin, in<E>(c, 1), out<E>(c, 0) + begin * H, end - begin, H, multiplier(c),
                              own_vocabulary(*c.context, c.reads[1].dim(0)));
  });
}
// ids, dy -> g:wte
template <class E>
void embedding_backward(const Call& c) {
  const int64_t T = c.reads[1].dim(0), V = c.writes[0].dim(0), H = c.writes[0].dim(1), row = H * int64_t(sizeof(E));
  const auto zero = [&](int64_t begin, int64_t end) { std::memset(out<char>(c, 0) + begin * row, 0, size_t((end - begin) * row)); };
  if (store(c) == Store::kSet) parallel_ranges(V, row, zero);
  constexpr bool kByColumn = std::is_same_v<E, float>;
  parallel_ranges(kByColumn ? H : T, kByColumn ? 2 * T * int64_t(sizeof(E)) : 2 * row, [&](int64_t begin, int64_t end) {
    cpu::embedding_backward_add(in<int64_t>(c, 0), in<E>(c, 1), out<E>(c, 0), T, H, begin, end, multiplier(c),
                                own_vocabulary(*c.context, V));
  });
}
// x, p:n -> h, r
template <class E>
void rms_norm(const Call& c) {
  const int64_t H = c.reads[0].dim(1);
  parallel_ranges(c.reads[0].dim(0), 2 * H * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    cpu::rms_norm<E>(in<E>(c, 0) + begin * H, in<E>(c, 1), out<E>(c, 0) + begin * H, out<float>(c, 1) + begin, end - begin, H, rms(c));
  });
}
// One thread does both halves in one pass over memory; several take the weights by columns first, since dx may lie over dh.
template <class E>
void rms_norm_backward_of(const Call& c, const E* residual) {
  const int64_t T = c.reads[0].dim(0), H = c.reads[0].dim(1);
  const E *dh = in<E>(c, 0), *x = in<E>(c, 1), *w = in<E>(c, 3);
  const float* r = in<float>(c, 2);
  if (compute_threads_now() == 1)
    return cpu::rms_norm_backward<E>(dh, x, r, w, residual, out<E>(c, 0), out<E>(c, 1), out<float>(c, 2), T, H, weight_offset(c),
                                     store(c));
  constexpr int64_t kColumns = 64;  // of a range at least: whole cache lines
  parallel_ranges((H + kColumns - 1) / kColumns, 2 * T * kColumns * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    cpu::rms_norm_backward_weight<E>(dh, x, r, out<E>(c, 1), out<float>(c, 2), T, H, begin * kColumns, std::min(end * kColumns, H),
                                     store(c));
  });
  parallel_ranges(T, 3 * H * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    cpu::rms_norm_backward_input<E>(dh + begin * H, x + begin * H, r + begin, w, residual ? residual + begin * H : nullptr,
                                    out<E>(c, 0) + begin * H, end - begin, H, weight_offset(c));
  });
}
// dh, x, r, p:n, dy -> dx, g:n, ws
template <class E>
void rms_norm_backward(const Call& c) {
  rms_norm_backward_of<E>(c, in<E>(c, 4));
}
// dh, x, r, p:n -> dx, g:n, ws
template <class E>
void rms_norm_backward_first(const Call& c) {
  rms_norm_backward_of<E>(c, nullptr);
}
// qkv, p:qn, p:kn -> qk, rqk
template <class E>
void qk_norm(const Call& c) {
  const Heads h = heads(*c.context);
  parallel_ranges(c.context->T, 2 * h.row() * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    cpu::qk_norm<E>(in<E>(c, 0) + begin * h.packed_row(), in<E>(c, 1), in<E>(c, 2), out<E>(c, 0) + begin * h.row(),
                    out<float>(c, 1) + begin * (h.num_q + h.num_kv), end - begin, h, rms(c));
  });
}
// dqk, qkv, rqk, p:qn, p:kn, dqkv -> dqkv, g:qn, g:kn, ws_qk
template <class E>
void qk_norm_backward(const Call& c) {
  float* ws = out<float>(c, 3);
  cpu::qk_norm_backward<E>(in<E>(c, 0), in<E>(c, 1), in<float>(c, 2), in<E>(c, 3), in<E>(c, 4), out<E>(c, 0), out<E>(c, 1),
                           out<E>(c, 2), ws, ws + c.context->d, c.context->T, heads(*c.context), weight_offset(c), store(c));
}
// rows, cos, sin[, positions] -> rows: qkv or qk, told apart by its width
template <class E>
void rope_in_place(const Call& c, float direction) {
  const OpContext& x = *c.context;
  const int64_t stride = c.writes[0].dim(1);
  parallel_ranges(x.T, 2 * stride * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    cpu::rope<E>(out<E>(c, 0) + begin * stride, in<float>(c, 1), in<float>(c, 2), end - begin, x.S, x.a + x.kv, x.d,
                 2 * c.reads[1].dim(1), stride, direction, begin, c.reads.size() > 3 ? in<int64_t>(c, 3) + begin : nullptr);
  });
}
template <class E>
void rope(const Call& c) {
  rope_in_place<E>(c, 1.f);
}
template <class E>
void rope_backward(const Call& c) {
  rope_in_place<E>(c, -1.f);
}
// The token that this rank's first row is, where ranks share the tokens.
int64_t first_token(const OpContext& x, int64_t num_rows) { return x.tp_index * num_rows; }
// y, p:wpe -> y
template <class E>
void position_add(const Call& c) {
  const int64_t H = c.writes[0].dim(1), first = first_token(*c.context, c.writes[0].dim(0));
  parallel_ranges(c.writes[0].dim(0), 3 * H * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    cpu::position_add<E>(out<E>(c, 0) + begin * H, in<E>(c, 1) + c.attributes->first_row * H, end - begin, positions_of(*c.context), H,
                         first + begin);
  });
}
// Zeros for the rows of a table of positions that are none's, unless gradients are added to what is there.
template <class E>
void clear_first_rows(const Call& c) {
  if (store(c) == Store::kSet) std::memset(out<char>(c, 0), 0, size_t(c.attributes->first_row * c.writes[0].dim(1)) * sizeof(E));
}
// dy -> g:wpe
template <class E>
void position_backward(const Call& c) {
  const int64_t T = c.reads[0].dim(0), H = c.writes[0].dim(1), before = c.attributes->first_row;
  clear_first_rows<E>(c);
  parallel_ranges(c.writes[0].dim(0) - before, 2 * H * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    cpu::position_backward<E>(in<E>(c, 0), out<E>(c, 0) + before * H, T, positions_of(*c.context), H, begin, end, store(c),
                              first_token(*c.context, T));
  });
}
// y, p:wpe, positions -> y: rows of a rank that splits the tokens are some of them
template <class E>
void position_add_packed(const Call& c) {
  const int64_t H = c.writes[0].dim(1), first = first_token(*c.context, c.writes[0].dim(0));
  parallel_ranges(c.writes[0].dim(0), 3 * H * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      E* const row = out<E>(c, 0) + t * H;
      cpu::add<E>(row, in<E>(c, 1) + (c.attributes->first_row + in<int64_t>(c, 2)[first + t]) * H, row, H);
    }
  });
}
// dy, positions -> g:wpe: as the rows of an embedding whose ids are the positions
template <class E>
void position_add_packed_backward(const Call& c) {
  const int64_t T = c.reads[0].dim(0), P = c.writes[0].dim(0), H = c.writes[0].dim(1), row = H * int64_t(sizeof(E)),
                before = c.attributes->first_row;
  const auto zero = [&](int64_t begin, int64_t end) { std::memset(out<char>(c, 0) + begin * row, 0, size_t((end - begin) * row)); };
  if (store(c) == Store::kSet) parallel_ranges(P, row, zero);
  constexpr bool kByColumn = std::is_same_v<E, float>;
  parallel_ranges(kByColumn ? H : T, kByColumn ? 2 * T * int64_t(sizeof(E)) : 2 * row, [&](int64_t begin, int64_t end) {
    cpu::embedding_backward_add(in<int64_t>(c, 1) + first_token(*c.context, T), in<E>(c, 0), out<E>(c, 0) + before * H, T, H, begin,
                                end, 1.0f, VocabularyRange{0, P - before});
  });
}
// x, p:w[, p:b] -> h, mean, r
template <class E>
void layer_norm(const Call& c) {
  const int64_t H = c.reads[0].dim(1);
  parallel_ranges(c.reads[0].dim(0), 2 * H * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    cpu::layer_norm<E>(in<E>(c, 0) + begin * H, in<E>(c, 1), c.reads.size() > 2 ? in<E>(c, 2) : nullptr, out<E>(c, 0) + begin * H,
                       out<float>(c, 1) + begin, out<float>(c, 2) + begin, end - begin, H, rms(c));
  });
}
// dh, x, mean, r, p:w[, residual] -> dx, g:w[, g:b], ws: the weights first, since dx may lie over dh.
template <class E>
void layer_norm_backward(const Call& c) {
  const int64_t T = c.reads[0].dim(0), H = c.reads[0].dim(1);
  const E *dh = in<E>(c, 0), *x = in<E>(c, 1), *residual = c.reads.size() > 5 ? in<E>(c, 5) : nullptr;
  const float *mean = in<float>(c, 2), *r = in<float>(c, 3);
  const bool has_bias = c.writes.size() > 3;
  E* const gb = has_bias ? out<E>(c, 2) : nullptr;
  float* const ws = out<float>(c, has_bias ? 3 : 2);
  constexpr int64_t kColumns = 64;
  parallel_ranges((H + kColumns - 1) / kColumns, 2 * T * kColumns * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    cpu::layer_norm_backward_weight<E>(dh, x, mean, r, out<E>(c, 1), gb, ws, T, H, begin * kColumns, std::min(end * kColumns, H),
                                       store(c));
  });
  parallel_ranges(T, 3 * H * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    cpu::layer_norm_backward_input<E>(dh + begin * H, x + begin * H, mean + begin, r + begin, in<E>(c, 4),
                                      residual ? residual + begin * H : nullptr, out<E>(c, 0) + begin * H, end - begin, H,
                                      float(c.attributes->weight_offset));
  });
}
// qkv, p:qn, p:kn -> qk, rqk
template <class E>
void qk_norm_wide(const Call& c) {
  const Heads h = heads(*c.context);
  parallel_ranges(c.context->T, 2 * h.row() * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    cpu::qk_norm_wide<E>(in<E>(c, 0) + begin * h.packed_row(), in<E>(c, 1), in<E>(c, 2), out<E>(c, 0) + begin * h.row(),
                         out<float>(c, 1) + begin * 2, end - begin, h, rms(c));
  });
}
// dqk, qkv, rqk, p:qn, p:kn, dqkv -> dqkv, g:qn, g:kn, ws
template <class E>
void qk_norm_wide_backward(const Call& c) {
  cpu::qk_norm_wide_backward<E>(in<E>(c, 0), in<E>(c, 1), in<float>(c, 2), in<E>(c, 3), in<E>(c, 4), out<E>(c, 0), out<E>(c, 1),
                                out<E>(c, 2), out<float>(c, 3), c.context->T, heads(*c.context), weight_offset(c), store(c));
}
// a, b -> c
template <class E>
void add(const Call& c) {
  parallel_ranges(numel(c.writes[0]), 3 * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    cpu::add<E>(in<E>(c, 0) + begin, in<E>(c, 1) + begin, out<E>(c, 0) + begin, end - begin);
  });
}
// x -> y; dy, x -> dx
template <Activation kF, class E>
void activation(const Call& c) {
  parallel_ranges(numel(c.writes[0]), 2 * int64_t(sizeof(E)),
                  [&](int64_t begin, int64_t end) { cpu::activation<kF, E>(in<E>(c, 0) + begin, out<E>(c, 0) + begin, end - begin); });
}
template <Activation kF, class E>
void activation_backward(const Call& c) {
  parallel_ranges(numel(c.writes[0]), 3 * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    cpu::activation_backward<kF, E>(in<E>(c, 0) + begin, in<E>(c, 1) + begin, out<E>(c, 0) + begin, end - begin);
  });
}
// gu -> m; dm, gu -> dgu
template <Activation kF, class E>
void gated(const Call& c) {
  const int64_t F = c.writes[0].dim(1);
  parallel_ranges(c.writes[0].dim(0), 3 * F * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    cpu::gated_activation<kF, E>(in<E>(c, 0) + begin * 2 * F, out<E>(c, 0) + begin * F, end - begin, F);
  });
}
template <Activation kF, class E>
void gated_backward(const Call& c) {
  const int64_t F = c.reads[0].dim(1);
  parallel_ranges(c.reads[0].dim(0), 5 * F * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    cpu::gated_activation_backward<kF, E>(in<E>(c, 0) + begin * F, in<E>(c, 1) + begin * 2 * F, out<E>(c, 0) + begin * 2 * F,
                                          end - begin, F);
  });
}

// gu -> m
template <class E>
void swiglu(const Call& c) {
  const int64_t F = c.writes[0].dim(1);
  parallel_ranges(c.writes[0].dim(0), 3 * F * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    cpu::swiglu<E>(in<E>(c, 0) + begin * 2 * F, out<E>(c, 0) + begin * F, end - begin, F);
  });
}
// dm, gu -> dgu
template <class E>
void swiglu_backward(const Call& c) {
  const int64_t F = c.reads[0].dim(1);
  parallel_ranges(c.reads[0].dim(0), 5 * F * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    cpu::swiglu_backward<E>(in<E>(c, 0) + begin * F, in<E>(c, 1) + begin * 2 * F, out<E>(c, 0) + begin * 2 * F, end - begin, F);
  });
}
LogitShape logit_shape(const Call& c) { return {multiplier(c), float(c.attributes->soft_cap)}; }
// Adds the loss of all rows, in the order of rows, whichever thread had them. rows(begin, end, loss): the loss of those, unscaled.
void add_loss(const Call& c, double scale, int64_t row_bytes, const std::function<void(int64_t, int64_t, double*)>& rows) {
  thread_local std::vector<double> loss;
  loss.resize(size_t(c.reads[0].dim(0)));
  double* const row_loss = loss.data();
  parallel_ranges(c.reads[0].dim(0), row_bytes, [&](int64_t begin, int64_t end) { rows(begin, end, row_loss + begin); });
  double total = 0;
  for (const double row : loss) total += row;
  *out<double>(c, 1) += total * scale;
}
// z, targets, loss_scale, loss -> dz, loss
template <class E>
void cross_entropy(const Call& c) {
  const int64_t V = c.reads[0].dim(1);
  const double scale = *in<double>(c, 2);
  const LogitShape shape = logit_shape(c);
  const bool is_shaped = shape.soft_cap > 0 || shape.multiplier != 1;
  add_loss(c, scale, 3 * V * int64_t(sizeof(E)), [&](int64_t begin, int64_t end, double* row_loss) {
    const E* z = in<E>(c, 0) + begin * V;
    const int64_t* targets = in<int64_t>(c, 1) + begin;
    E* dz = out<E>(c, 0) + begin * V;
    if (is_shaped)
      cpu::cross_entropy_shaped<E>(z, targets, dz, row_loss, end - begin, V, scale, shape.multiplier, shape.soft_cap);
    else
      cpu::cross_entropy<E>(z, targets, dz, nullptr, end - begin, V, scale, row_loss);
  });
}
// z, targets -> stats
template <class E>
void cross_entropy_local(const Call& c) {
  const int64_t V = c.reads[0].dim(1);
  parallel_ranges(c.reads[0].dim(0), 2 * V * int64_t(sizeof(E)), [&](int64_t begin, int64_t end) {
    cpu::cross_entropy_local<E>(in<E>(c, 0) + begin * V, in<int64_t>(c, 1) + begin, out<float>(c, 0) + begin * kLossStats, end - begin,
                                V, own_vocabulary(*c.context, V), logit_shape(c));
  });
}
// z, targets, all_stats, loss_scale, loss -> dz, loss
template <class E>
void cross_entropy_finish(const Call& c) {
  const int64_t T = c.reads[0].dim(0), V = c.reads[0].dim(1);
  const double scale = *in<double>(c, 3);
  add_loss(c, scale, 2 * V * int64_t(sizeof(E)), [&](int64_t begin, int64_t end, double* row_loss) {
    cpu::cross_entropy_finish<E>(in<E>(c, 0) + begin * V, in<int64_t>(c, 1) + begin, in<float>(c, 2) + begin * kLossStats,
                                 c.context->tp, T * kLossStats, out<E>(c, 0) + begin * V, row_loss, end - begin, V, scale,
                                 own_vocabulary(*c.context, V), logit_shape(c));
  });
}
// qkv, p:b -> qkv
template <class E>
void bias_add(const Call& c) {
  const int64_t H = c.writes[0].dim(1);
  parallel_ranges(c.writes[0].dim(0), 2 * H * int64_t(sizeof(E)),
                  [&](int64_t begin, int64_t end) { cpu::bias_add<E>(out<E>(c, 0) + begin * H, in<E>(c, 1), end - begin, H); });
}
// dqkv -> g:b, ws
template <class E>
void bias_backward(const Call& c) {
  cpu::bias_backward<E>(in<E>(c, 0), out<E>(c, 0), out<float>(c, 1), c.reads[0].dim(0), c.reads[0].dim(1), store(c));
}

#define DISTSETUP_ALIAS(name, kernel) \
  NativeOp { name, kernel<float>, kernel<Bf16>, kernel<F16> }
#define DISTSETUP_ENTRY(kernel) DISTSETUP_ALIAS(#kernel, kernel)
constexpr std::array kTable = {DISTSETUP_ENTRY(embedding_forward),
                               DISTSETUP_ENTRY(embedding_backward),
                               DISTSETUP_ENTRY(rms_norm),
                               DISTSETUP_ENTRY(rms_norm_backward),
                               DISTSETUP_ENTRY(rms_norm_backward_first),
                               DISTSETUP_ENTRY(qk_norm),
                               DISTSETUP_ENTRY(qk_norm_backward),
                               DISTSETUP_ENTRY(rope),
                               DISTSETUP_ENTRY(rope_backward),
                               DISTSETUP_ALIAS("rope_packed", rope),
                               DISTSETUP_ALIAS("rope_packed_backward", rope_backward),
                               DISTSETUP_ENTRY(swiglu),
                               DISTSETUP_ENTRY(swiglu_backward),
                               DISTSETUP_ENTRY(cross_entropy),
                               DISTSETUP_ENTRY(cross_entropy_local),
                               DISTSETUP_ENTRY(cross_entropy_finish),
                               DISTSETUP_ENTRY(bias_add),
                               DISTSETUP_ENTRY(bias_backward),
                               DISTSETUP_ENTRY(position_add),
                               DISTSETUP_ENTRY(position_backward),
                               DISTSETUP_ENTRY(position_add_packed),
                               DISTSETUP_ENTRY(position_add_packed_backward),
                               DISTSETUP_ENTRY(layer_norm),
                               DISTSETUP_ENTRY(layer_norm_backward),
                               DISTSETUP_ALIAS("layer_norm_backward_first", layer_norm_backward),
                               DISTSETUP_ALIAS("layer_norm_no_bias", layer_norm),
                               DISTSETUP_ALIAS("layer_norm_no_bias_backward", layer_norm_backward),
                               DISTSETUP_ALIAS("layer_norm_no_bias_backward_first", layer_norm_backward),
                               DISTSETUP_ENTRY(qk_norm_wide),
                               DISTSETUP_ENTRY(qk_norm_wide_backward),
                               DISTSETUP_ENTRY(add)};
#undef DISTSETUP_ENTRY
#undef DISTSETUP_ALIAS
#define DISTSETUP_OF(op, name, F) \
  NativeOp { name, op<Activation::F, float>, op<Activation::F, Bf16>, op<Activation::F, F16> }
#define DISTSETUP_ACTIVATION(name, F) DISTSETUP_OF(activation, #name, F), DISTSETUP_OF(activation_backward, #name "_backward", F)
#define DISTSETUP_GATED(name, F) DISTSETUP_OF(gated, #name, F), DISTSETUP_OF(gated_backward, #name "_backward", F)
constexpr std::array kActivations = {DISTSETUP_ACTIVATION(gelu, kGelu),     DISTSETUP_ACTIVATION(gelu_tanh, kGeluTanh),
                                     DISTSETUP_ACTIVATION(relu, kRelu),     DISTSETUP_ACTIVATION(relu2, kRelu2),
                                     DISTSETUP_ACTIVATION(silu, kSilu),     DISTSETUP_GATED(geglu, kGelu),
                                     DISTSETUP_GATED(geglu_tanh, kGeluTanh)};
#undef DISTSETUP_GATED
#undef DISTSETUP_ACTIVATION
#undef DISTSETUP_OF

}  // namespace

bool bind_native_op(const std::string& kernel, Call& call) {
  call.function = find_op(kTable, kernel, call);
  if (call.function == nullptr) call.function = find_op(kActivations, kernel, call);
  return call.function != nullptr;
}

}  // namespace distsetup
