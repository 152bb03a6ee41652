// Attention in bf16 and fp16:
//   cuDNN's kernels on Hopper and later, forward and backward, where there is no window and it takes the sizes (has_cudnn_attention):
//         twice as fast as FlashAttention 2 there. They return fresh tensors, which are copied into the arena and count as workspace.
//   FlashAttention 2 elsewhere: the forward writes into the arena (its C++ entry takes an output), the backward returns fresh tensors.
//   Both backwards add to an fp32 accumulator of dq in any order. Where the plan asks for the same bits in every run
//         (TrainPlan::deterministic), FlashAttention's deterministic backward is taken: an accumulator per split of the keys. Both
//         libraries' log-sum-exps are natural logarithms, so that either backward follows either forward.
//   Of a rank's own queries with the keys of one rank at a time (ring attention): attention_ring.cc, with these kernels.
//   Of a rank's own queries with whole sequences (context parallelism): FlashAttention 2, whose masks end at the last key.
//   fp32: the memory-efficient kernel; everything it returns is copied, keys and values are repeated to the number of query heads. One
//         split of the keys, so always the same bits. A fallback for comparisons, not for speed.
// log-sum-exps lie as [B, heads, S] here and as [B, S, heads] on CPU: forward and backward of one device agree, nobody else reads
// them. What a kernel cannot do is refused when a list is bound, by name.
#include "runtime/kernels/cuda/attention.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_cudnn_attention_backward.h>
#include <ATen/ops/_cudnn_attention_forward.h>
#include <ATen/ops/_efficient_attention_backward.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <cmath>
#include <optional>

// In libtorch_cuda; its header is not in the wheel whole (aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.h of
// PyTorch 2.11).
namespace pytorch_flash {
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> mha_fwd(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::optional<at::Tensor>& out,
    std::optional<at::Tensor>& alibi_slopes, float p_dropout, float softmax_scale, bool is_causal, int window_size_left,
    int window_size_right, float softcap, bool return_softmax, std::optional<at::Generator> generator);
}  // namespace pytorch_flash

namespace distsetup::cuda {
namespace {

using at::Tensor;

constexpr int64_t kLogSumExpAlignment = 32;  // kAlignLSE of the memory-efficient kernel

Tensor log_sums(const Argument& a, const OpContext& x) { return tensor(a).view({x.B, x.a, x.S}); }
// q, k, v, att, lse
template <bool kSplit>
std::vector<Tensor> attention(const Call& c) {
  const auto [q, k, v] = views::attention_inputs(c, tensor, kSplit);
  return {q, k, v, views::heads(tensor(c.writes[0]), *c.context), log_sums(c.writes[1], *c.context)};
}
// datt, q, k, v, att, lse, dq, dk, dv
template <bool kSplit>
std::vector<Tensor> attention_backward(const Call& c) {
  const auto [in, d, datt, att, lse] = views::attention_backward(c, tensor, kSplit);
  return {datt, in.q, in.k, in.v, att, log_sums(*lse, *c.context), d.q, d.k, d.v};
}

// Keys that a query sees, itself included, where that is not all before it; and those of them before it.
std::optional<int64_t> window_keys(const Call& c) {
  const int64_t window = c.attributes->window;
  return window > 0 && window < c.context->cp * c.context->S ? std::optional<int64_t>(window) : std::nullopt;
}

}  // namespace

std::optional<int64_t> window_left(const Call& c) {
  const std::optional<int64_t> keys = window_keys(c);
  return keys ? std::optional<int64_t>(*keys - 1) : std::nullopt;
}

Deterministic::Deterministic(bool on) : on_(on) {
  if (on_) at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
}
Deterministic::~Deterministic() {
  if (on_) at::globalContext().setDeterministicAlgorithms(false, false);
}

namespace {

// Where there are fewer queries than keys they are the last ones: both kernels then align the causal mask at the last key.
// t: q, k, v, att, lse
void flash(const Call& c, const Tensor* t) {
  std::optional<Tensor> output = t[3], no_slopes;
  const auto result = pytorch_flash::mha_fwd(t[0], t[1], t[2], output, no_slopes, 0.f, float(score_scale(c)), /*is_causal=*/true,
                                             int(window_left(c).value_or(-1)), window_left(c) ? 0 : -1, 0.f, false, std::nullopt);
  t[4].copy_(std::get<4>(result));
}

// What cuDNN's kernels take through libtorch, and take faster than FlashAttention 2 (measured on an H100: 1.6 to 1.9 times the
// forward, 1.4 to 1.8 times the backward, lengths 2,048 to 8,192).
bool has_cudnn_attention(const Call& c, int64_t queries, int64_t keys) {
  constexpr int kHopper = 9;
  constexpr int64_t kLengths = 64, kLargestHead = 128;
  return capability_major() >= kHopper && !window_keys(c) && queries % kLengths == 0 && keys % kLengths == 0 &&
         c.context->d <= kLargestHead;
}
Tensor heads_first(const Tensor& t) { return t.transpose(1, 2); }
Attended cudnn_attended(const Call& c, const Tensor& q, const Tensor& k, const Tensor& v, bool is_causal) {
  const int64_t queries = q.size(1), keys = k.size(1);
  const auto result = at::_cudnn_attention_forward(heads_first(q), heads_first(k), heads_first(v), {}, {}, {}, queries, keys,
                                                   /*compute_log_sumexp=*/true, 0.0, is_causal, false, score_scale(c));
  return {heads_first(std::get<0>(result)), std::get<1>(result).view({q.size(0), q.size(2), queries})};
}
// t: datt, q, k, v, att, lse
AttentionGradients cudnn_gradients(const Call& c, const Tensor* t, bool is_causal) {
  const Tensor no_seed =
      at::for_blob(t[5].data_ptr(), {}).options(t[5].options().dtype(at::kLong)).target_device(device()).make_tensor();
  const auto [dq, dk, dv] = at::_cudnn_attention_backward(heads_first(t[0]), heads_first(t[1]), heads_first(t[2]), heads_first(t[3]),
                                                          heads_first(t[4]), t[5].unsqueeze(-1), no_seed, no_seed, Tensor(), Tensor(),
                                                          Tensor(), t[1].size(1), t[2].size(1), 0.0, is_causal, score_scale(c));
  return {heads_first(dq), heads_first(dk), heads_first(dv)};
}
AttentionGradients flash_gradients(const Call& c, const Tensor* t, bool is_causal) {
  const Deterministic scope(c.context->deterministic);
  const auto [dq, dk, dv] = at::_flash_attention_backward(t[0], t[1], t[2], t[3], t[4], t[5], Tensor(), Tensor(), t[1].size(1),
                                                          t[2].size(1), 0.0, is_causal, Tensor(), Tensor(), score_scale(c),
                                                          window_left(c), window_left(c) ? std::optional<int64_t>(0) : std::nullopt);
  return {dq, dk, dv};
}
AttentionGradients flash_gradients(const Call& c, const Tensor* t) { return flash_gradients(c, t, true); }
AttentionGradients cudnn_gradients(const Call& c, const Tensor* t) { return cudnn_gradients(c, t, true); }

// t: q, k, v, att, lse
void put(const Attended& result, const Tensor* t) {
  t[3].copy_(result.att);
  t[4].copy_(result.lse);
}
void cudnn(const Call& c, const Tensor* t) { put(cudnn_attended(c, t[0], t[1], t[2], true), t); }

// Keys or values once per query head.
Tensor repeated(const Tensor& k, const OpContext& x) {
  if (x.kv == x.a) return k;
  return k.unsqueeze(3).expand({k.size(0), k.size(1), x.kv, x.a / x.kv, x.d}).reshape({k.size(0), k.size(1), x.a, x.d});
}
Tensor summed(const Tensor& dk, const OpContext& x) {
  return x.kv == x.a ? dk : dk.view({dk.size(0), dk.size(1), x.kv, x.a / x.kv, x.d}).sum(3);
}
int64_t mask_of(int64_t queries, int64_t keys, bool is_causal) {
  constexpr int64_t kNone = 0, kCausalFromTopLeft = 1, kCausalFromBottomRight = 2;  // sdp::CustomMaskType
  return !is_causal ? kNone : queries == keys ? kCausalFromTopLeft : kCausalFromBottomRight;
}
Attended efficient_attended(const Call& c, const Tensor& q, const Tensor& k, const Tensor& v, bool is_causal) {
  const OpContext& x = *c.context;
  const int64_t queries = q.size(1), keys = k.size(1);
  const auto result = at::_efficient_attention_forward(q, repeated(k, x), repeated(v, x), {}, {}, {}, queries, keys, 0.0,
                                                       mask_of(queries, keys, is_causal), true, score_scale(c), {}, window_keys(c));
  return {std::get<0>(result), std::get<1>(result).narrow(2, 0, queries)};
}
}  // namespace
void efficient(const Call& c, const Tensor* t) { put(efficient_attended(c, t[0], t[1], t[2], true), t); }

namespace {
AttentionGradients efficient_gradients(const Call& c, const Tensor* t, bool is_causal) {
  const OpContext& x = *c.context;
  const int64_t queries = t[1].size(1), keys = t[2].size(1);
  const int64_t padded = (queries + kLogSumExpAlignment - 1) / kLogSumExpAlignment * kLogSumExpAlignment;
  Tensor lse = t[5];
  if (padded != queries) {
    lse = at::full({t[1].size(0), x.a, padded}, INFINITY, t[5].options());
    lse.narrow(2, 0, queries).copy_(t[5]);
  }
  // One split of the keys: no atomics.
  const auto result = at::_efficient_attention_backward(t[0], t[1], repeated(t[2], x), repeated(t[3], x), {}, t[4], {}, {}, queries,
                                                        keys, lse, 0.0, Tensor(), Tensor(), mask_of(queries, keys, is_causal), false,
                                                        score_scale(c), /*num_splits_key=*/1, window_keys(c));
  return {std::get<0>(result), summed(std::get<1>(result), x), summed(std::get<2>(result), x)};
}
}  // namespace
AttentionGradients efficient_gradients(const Call& c, const Tensor* t) { return efficient_gradients(c, t, true); }

namespace {

using Forward = void (*)(const Call&, const Tensor*);
using Gradients = AttentionGradients (*)(const Call&, const Tensor*);
template <Forward kForward>
void attend(const Call& c) {
  kForward(c, views_of(c).data());
}
template <Gradients kGradients>
void attend_backward(const Call& c) {
  const std::vector<Tensor>& t = views_of(c);
  const auto [dq, dk, dv] = kGradients(c, t.data());
  t[6].copy_(dq);
  t[7].copy_(dk);
  t[8].copy_(dv);
}

// --- attention of a rank's own queries with whole sequences (src/plan/context_parallel.h): its two chunks of each sequence one after
// the other, each with the keys up to its end

constexpr size_t kChunkForward = 5, kChunkBackward = 9;  // tensors of a chunk, as without chunks

// Of rows that hold `total` heads of one chunk of every sequence: heads first .. first + count.
Tensor chunk_heads(const Argument& rows, const Call& c, int64_t chunk, int64_t first, int64_t count) {
  const OpContext& x = *c.context;
  const Tensor all = tensor(rows).view({x.B, x.S, rows.dim(1) / x.d, x.d});
  return all.narrow(1, chunk * (x.S / 2), x.S / 2).narrow(2, first, count);
}
// Of rows of keys and values of whole sequences: the first `keys` of each.
Tensor first_keys(const Argument& rows, const Call& c, int64_t keys, bool values) {
  const OpContext& x = *c.context;
  return tensor(rows).view({x.B, x.cp * x.S, 2 * x.kv, x.d}).narrow(1, 0, keys).narrow(2, values ? x.kv : 0, x.kv);
}
int64_t keys_of(const OpContext& x, int64_t chunk) {
  const Positions own = positions_of(x);
  return (chunk == 0 ? own.first : own.second) + x.S / 2;
}
Tensor chunk_sums(const Argument& lse, const OpContext& x, int64_t chunk) {
  const int64_t n = x.B * x.a * (x.S / 2);
  return tensor(lse).view({-1}).narrow(0, chunk * n, n).view({x.B, x.a, x.S / 2});
}
std::vector<Tensor> attention_shared(const Call& c) {
  const OpContext& x = *c.context;
  std::vector<Tensor> t;
  for (const int64_t chunk : {0, 1}) {
    const int64_t keys = keys_of(x, chunk);
    for (Tensor one :
         {chunk_heads(c.reads[0], c, chunk, 0, x.a), first_keys(c.reads[1], c, keys, false), first_keys(c.reads[1], c, keys, true),
          chunk_heads(c.writes[0], c, chunk, 0, x.a), chunk_sums(c.writes[1], x, chunk)})
      t.push_back(std::move(one));
  }
  return t;
}
// datt, rows, kv, att, lse -> d of rows (q alone), dkv; behind the chunks: dkv of the keys that no own query sees
std::vector<Tensor> attention_shared_backward(const Call& c) {
  const OpContext& x = *c.context;
  std::vector<Tensor> t;
  for (const int64_t chunk : {0, 1}) {
    const int64_t keys = keys_of(x, chunk);
    for (Tensor one :
         {chunk_heads(c.reads[0], c, chunk, 0, x.a), chunk_heads(c.reads[1], c, chunk, 0, x.a), first_keys(c.reads[2], c, keys, false),
          first_keys(c.reads[2], c, keys, true), chunk_heads(c.reads[3], c, chunk, 0, x.a), chunk_sums(c.reads[4], x, chunk),
          chunk_heads(c.writes[0], c, chunk, 0, x.a), first_keys(c.writes[1], c, keys, false), first_keys(c.writes[1], c, keys, true)})
      t.push_back(std::move(one));
  }
  const int64_t seen = keys_of(x, 1), all = x.cp * x.S;
  t.push_back(tensor(c.writes[1]).view({x.B, all, 2 * x.kv, x.d}).narrow(1, seen, all - seen));
  return t;
}
template <Forward kForward>
void attend_shared(const Call& c) {
  for (const size_t chunk : {0, 1}) kForward(c, views_of(c).data() + chunk * kChunkForward);
}
// The second chunk sees all keys that the first does: it sets, the first adds.
template <Gradients kGradients>
void attend_shared_backward(const Call& c) {
  const std::vector<Tensor>& all = views_of(c);
  for (const size_t chunk : {1, 0}) {
    const Tensor* t = all.data() + chunk * kChunkBackward;
    const auto [dq, dk, dv] = kGradients(c, t);
    t[6].copy_(dq);
    if (chunk == 1) {
      t[7].copy_(dk);
      t[8].copy_(dv);
    } else {
      t[7].add_(dk);
      t[8].add_(dv);
    }
  }
  all.back().zero_();
}

}  // namespace

const std::map<std::string, LibtorchKernel>& attention_kernels() {
  static const std::map<std::string, LibtorchKernel> table = {
      {"attention", {attention<false>, attend<efficient>, attend<flash>}},
      {"attention_split", {attention<true>, attend<efficient>, attend<flash>}},
      {"attention_backward", {attention_backward<false>, attend_backward<efficient_gradients>, attend_backward<flash_gradients>}},
      {"attention_split_backward", {attention_backward<true>, attend_backward<efficient_gradients>, attend_backward<flash_gradients>}},
      {"attention_shared", {attention_shared, attend_shared<efficient>, attend_shared<flash>}},
      {"attention_shared_backward",
       {attention_shared_backward, attend_shared_backward<efficient_gradients>, attend_shared_backward<flash_gradients>}}};
  return table;
}

std::string attention_refusal(const std::string& kernel, const Call& call) {
  const OpContext& x = *call.context;
  if (x.d % 8 != 0) return fmt::format("attention on CUDA takes head sizes that are multiples of 8, this model's is {}", x.d);
  if (call.attributes->soft_cap > 0) return "attention on CUDA has no soft cap";
  if (kernel.starts_with("attention_shared") && x.S < 4)
    return fmt::format("attention on CUDA takes chunks of at least 2 tokens, sequences of {} over cp {} have less", x.cp * x.S, x.cp);
  if (kernel.starts_with("attention_shared") && !is_16_bit(call) && window_keys(call))
    return "attention of some of a sequence's queries on CUDA has no window in fp32";
  if (kernel.starts_with("ring_attention") && window_keys(call))
    return "attention to keys that go round the ranks on CUDA has no window";
  if (x.d > 256) return fmt::format("attention on CUDA takes head sizes up to 256, this model's is {}", x.d);
  return "";
}

void take_faster(Call& call) {
  if (!has_cudnn_attention(call, call.context->S, call.context->S)) return;
  if (call.function == attend<flash>) call.function = attend<cudnn>;
  if (call.function == attend_backward<flash_gradients> && !call.context->deterministic)
    call.function = attend_backward<cudnn_gradients>;
}

Attended attend_to_piece(const Call& c, const Tensor& q, const Tensor& k, const Tensor& v, bool is_causal) {
  if (!is_16_bit(c)) return efficient_attended(c, q, k, v, is_causal);
  if (has_cudnn_attention(c, q.size(1), k.size(1))) return cudnn_attended(c, q, k, v, is_causal);
  const auto result =
      at::_flash_attention_forward(q, k, v, {}, {}, q.size(1), k.size(1), 0.0, is_causal, false, score_scale(c), {}, {});
  return {std::get<0>(result), std::get<1>(result)};
}
AttentionGradients piece_gradients(const Call& c, const Tensor* t, bool is_causal) {
  if (!is_16_bit(c)) return efficient_gradients(c, t, is_causal);
  if (has_cudnn_attention(c, t[1].size(1), t[2].size(1)) && !c.context->deterministic) return cudnn_gradients(c, t, is_causal);
  return flash_gradients(c, t, is_causal);
}

}  // namespace distsetup::cuda
