#include "runtime/kernels/cpu/latent.h"

#include <algorithm>

#include "runtime/kernels/cpu/bf16.h"

namespace distsetup::cpu {
namespace {

// Pairs of neighbours, apart; and back.
template <class E>
void spread_pairs(const E* from, E* to, int64_t rot) {
  for (int64_t i = 0; i < rot / 2; ++i) to[i] = from[2 * i], to[rot / 2 + i] = from[2 * i + 1];
}
template <class E>
void join_pairs(const E* from, E* to, int64_t rot) {
  for (int64_t i = 0; i < rot / 2; ++i) to[2 * i] = from[i], to[2 * i + 1] = from[rot / 2 + i];
}

}  // namespace

template <class E>
void join_latent_heads(const E* q, const E* kv, const E* ckv, E* qkv, const LatentHeads& s) {
  E *const k = qkv + s.q_row(), *const v = k + s.q_row();
  for (int64_t head = 0; head < s.num; ++head) {
    const E *const q_head = q + head * s.size(), *const kv_head = kv + head * (s.plain + s.value);
    E *const to_q = qkv + head * s.size(), *const to_k = k + head * s.size(), *const to_v = v + head * s.size();
    spread_pairs(q_head + s.plain, to_q, s.rot);
    std::copy_n(q_head, s.plain, to_q + s.rot);
    spread_pairs(ckv + s.latent, to_k, s.rot);
    std::copy_n(kv_head, s.plain, to_k + s.rot);
    std::copy_n(kv_head + s.plain, s.value, to_v);
    std::fill(to_v + s.value, to_v + s.size(), E{});
  }
}
template <class E>
void split_latent_heads(const E* dqkv, E* dq, E* dkv, E* dckv, const LatentHeads& s) {
  const E *const dk = dqkv + s.q_row(), *const dv = dk + s.q_row();
  for (int64_t head = 0; head < s.num; ++head) {
    const E *const q_head = dqkv + head * s.size(), *const k_head = dk + head * s.size();
    E *const to_q = dq + head * s.size(), *const to_kv = dkv + head * (s.plain + s.value);
    std::copy_n(q_head + s.rot, s.plain, to_q);
    join_pairs(q_head, to_q + s.plain, s.rot);
    std::copy_n(k_head + s.rot, s.plain, to_kv);
    std::copy_n(dv + head * s.size(), s.value, to_kv + s.plain);
  }
  for (int64_t i = 0; i < s.rot; ++i) {
    float sum = 0;
    for (int64_t head = 0; head < s.num; ++head) sum += to_float(dk[head * s.size() + i / 2 + i % 2 * (s.rot / 2)]);
    from_float(sum, dckv + s.latent + i);
  }
}

#define DISTSETUP_INSTANTIATE(E)                                                            \
  template void join_latent_heads<E>(const E*, const E*, const E*, E*, const LatentHeads&); \
  template void split_latent_heads<E>(const E*, E*, E*, E*, const LatentHeads&);
DISTSETUP_INSTANTIATE(float)
DISTSETUP_INSTANTIATE(Bf16)
DISTSETUP_INSTANTIATE(F16)
#undef DISTSETUP_INSTANTIATE

}  // namespace distsetup::cpu
