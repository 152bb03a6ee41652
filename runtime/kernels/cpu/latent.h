// Rows of latent attention (src/plan/latent_rules.h), one token's at a time.
// q [A·D] and kv [A·(plain + V)] head by head, each head's elements without position first; ckv [L + R]; qkv [3·A·D], in each head of
// q and k the R rotary elements first, the even ones before the odd ones, in each of v V elements and zeros.
#pragma once
#include <cstdint>

#include "runtime/kernels/latent_heads.h"

namespace distsetup::cpu {

template <class E>
void join_latent_heads(const E* q, const E* kv, const E* ckv, E* qkv, const LatentHeads& heads);
// dckv: its rotary key alone, summed over heads in fp32, in their order. The latent's elements are left as they are.
template <class E>
void split_latent_heads(const E* dqkv, E* dq, E* dkv, E* dckv, const LatentHeads& heads);

}  // namespace distsetup::cpu
