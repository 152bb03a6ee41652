#include "model/mixer_parameters.h"

namespace distsetup {
namespace {

double sized(int64_t value) { return static_cast<double>(value); }

}  // namespace

// Mamba (arXiv 2312.00752, section 3.4) and Mamba-2 (2405.21060, section 7): projections of h to the inner width and back, the states
// of each group, a short convolution. Their gates and norms are left out.
double scan_parameters(const ConfigSizes& s, const Geometry& g, bool alone) {
  const int64_t heads = s.first({"mamba_num_heads", "mamba_n_heads"}),
                head = s.first({"mamba_head_dim", "mamba_d_head", "mamba_headdim"});
  const int64_t stated = alone ? s.first({"d_inner", "intermediate_size"}) : 0;
  const int64_t expand = s.first({"mamba_expand", "expand"}, 2);
  const double h = sized(g.hidden), inner = sized(s.first({"mamba_d_ssm"}, heads * head > 0 ? heads * head
                                                                           : stated > 0     ? stated
                                                                                            : expand * g.hidden));
  const double states = sized(s.first({"ssm_state_size", "mamba_d_state", "state_size", "d_state"}, 16));
  const double kernel = sized(s.first({"mamba_d_conv", "conv_kernel", "d_conv"}, 4));
  const int64_t groups = s.first({"mamba_n_groups", "n_groups", "mamba_ngroups"}, heads > 0 ? 1 : 0);
  if (groups > 0) {
    const double per_group = 2 * sized(groups) * states, num_heads = heads > 0 ? sized(heads) : inner / 64;
    return h * (2 * inner + per_group + num_heads) + kernel * (inner + per_group) + inner * h;
  }
  const double rank = sized(s.first({"time_step_rank", "mamba_dt_rank", "dt_rank"}, (g.hidden + 15) / 16));
  return 3 * h * inner + inner * (kernel + 2 * rank + 3 * states);
}

// Gated DeltaNet (arXiv 2412.06464) where its heads are stated; Kimi's KDA (2510.26692) where a map of its own states them, with gates
// of low rank; else q, k, v, an output and its gate of attention's width.
double linear_parameters(const ConfigSizes& s, const Geometry& g) {
  const double h = sized(g.hidden);
  const double values = sized(s.first({"linear_num_value_heads"}) * s.first({"linear_value_head_dim"}));
  const double keys = sized(s.first({"linear_num_key_heads"}) * s.first({"linear_key_head_dim"}));
  if (values > 0 && keys > 0)
    return h * (2 * keys + 3 * values + 2 * sized(s.first({"linear_num_value_heads"}))) +
           sized(s.first({"linear_conv_kernel_dim"}, 4)) * (2 * keys + values);
  const Value* own = s.find({"linear_attn_config"});
  const auto size = [&](const char* key) {
    return own == nullptr || own->find(key) == nullptr ? 0.0 : sized(as_int(*own->find(key)).value.value_or(0));
  };
  // As Transformers 5 writes them, without a map.
  const double head = own == nullptr ? sized(s.first({"linear_head_dim"})) : size("head_dim");
  const double width = head * (own == nullptr ? sized(s.first({"linear_num_heads"})) : size("num_heads"));
  if (width > 0) return 4 * h * width + 2 * head * (h + width);
  return 5 * h * sized(g.num_heads * g.head_size);
}

}  // namespace distsetup
