// The rows of the kernel table (kernel_table.h) of DeepSeek's latent attention (arXiv 2405.04434, section 2.1): keys and values come
// out of one latent of rk elements, beside which lie the dr = rot elements of a rotary key that all heads share. A head's query and
// key have d = dn + dr elements, its values dv. Attention itself is the one of all families, over heads of d elements: those of values
// end in zeros.
//   latent_part    ckv -> its first rk columns
//   latent_heads   q, kv, ckv -> qkv, heads as attention reads them: the rotary elements of a head first, those of a pair (2i, 2i + 1)
//                  dr / 2 apart, as `rope` turns them
//   latent_values  att -> what is not zeros
#pragma once
#include <string_view>
#include <vector>

#include "plan/kernel_table.h"
#include "plan/program.h"

namespace distsetup {

const std::vector<KernelRule>& latent_rules();

// Does the program attend through latents?
bool has_latents(const Program& program);

}  // namespace distsetup
