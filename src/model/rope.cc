// Sources: RoPE, arXiv 2104.09864; linear interpolation, arXiv 2306.15595; YaRN ("NTK by parts", attention temperature), arXiv
// 2309.00071, section 3; Llama 3.1's bands, The Llama 3 Herd of Models (arXiv 2407.21783) with the constants that its config.json
// states. Names and defaults of the keys: Transformers, modeling_rope_utils.py. DeepSeek's temperature of scores: arXiv 2405.04434,
// section 3.1.4, as Transformers' models/deepseek_v3 computes it.
#include "model/rope.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace distsetup {
namespace {

constexpr std::array<std::string_view, 3> kKinds = {"linear", "llama3", "yarn"};

double wavelength(double frequency) { return 2 * std::numbers::pi / frequency; }

// Slow pairs are interpolated by the factor, fast ones left, those between blended by how many turns fit the original context.
double llama3(double frequency, const Geometry& g) {
  const auto original = static_cast<double>(g.rope_original_positions);
  const double turns = original / wavelength(frequency);
  if (turns < g.rope_low_turns) return frequency / g.rope_factor;
  if (turns > g.rope_high_turns) return frequency;
  const double smooth = (turns - g.rope_low_turns) / (g.rope_high_turns - g.rope_low_turns);
  return (1 - smooth) * frequency / g.rope_factor + smooth * frequency;
}

// The pair whose wavelength makes so many turns within the original context.
double pair_of_turns(double turns, double size, double base, double original) {
  return size * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
}

double temperature(const Geometry& g, double mscale) { return g.rope_factor <= 1 ? 1 : 0.1 * mscale * std::log(g.rope_factor) + 1; }

void yarn(RopeFrequencies& out, const Geometry& g, double size, double base) {
  const auto original = static_cast<double>(g.rope_original_positions);
  const double last = size - 1;
  const double begin = pair_of_turns(g.rope_high_turns, size, base, original),
               end = pair_of_turns(g.rope_low_turns, size, base, original);
  const double low = std::clamp(g.rope_truncated ? std::floor(begin) : begin, 0.0, last);
  double high = std::clamp(g.rope_truncated ? std::ceil(end) : end, 0.0, last);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < out.per_pair.size(); ++i) {
    const double interpolated = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    out.per_pair[i] *= interpolated / g.rope_factor + (1 - interpolated);
  }
  if (g.rope_amplitude > 0)
    out.amplitude = g.rope_amplitude;
  else if (g.rope_mscale > 0 && g.rope_mscale_all > 0)
    out.amplitude = temperature(g, g.rope_mscale) / temperature(g, g.rope_mscale_all);
  else
    out.amplitude = temperature(g, 1);
}

}  // namespace

bool is_known_rope_scaling(std::string_view kind) { return std::find(kKinds.begin(), kKinds.end(), kind) != kKinds.end(); }

int64_t rotated_elements(const Geometry& g) {
  if (g.attention == Attention::kLatent) return g.qk_rope_head_size;
  return static_cast<int64_t>(static_cast<double>(g.head_size) * g.rotary_fraction + 1e-9) / 2 * 2;
}

double score_scale(const Geometry& g) {
  const double scale = 1 / std::sqrt(static_cast<double>(g.head_size));
  if (g.rope_scaling != "yarn" || g.rope_mscale_all == 0) return scale;
  const double t = temperature(g, g.rope_mscale_all);
  return scale * t * t;
}

RopeFrequencies rope_frequencies(const Geometry& g, bool local) {
  const bool own_base = local && g.local_rope_base > 0;
  const double base = own_base ? g.local_rope_base : g.rope_base;
  const auto size = static_cast<double>(rotated_elements(g));
  RopeFrequencies out;
  for (int64_t i = 0; i < rotated_elements(g) / 2; ++i) out.per_pair.push_back(std::pow(base, -2.0 * static_cast<double>(i) / size));
  if (own_base) return out;  // layers with a window see no more than before
  if (g.rope_scaling == "linear")
    for (double& f : out.per_pair) f /= g.rope_factor;
  if (g.rope_scaling == "llama3")
    for (double& f : out.per_pair) f = llama3(f, g);
  if (g.rope_scaling == "yarn") yarn(out, g, size, base);
  return out;
}

}  // namespace distsetup
