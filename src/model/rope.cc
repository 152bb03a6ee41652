// Sources: RoPE, arXiv 2104.09864; linear interpolation, arXiv 2306.15595; YaRN ("NTK by parts", attention temperature), arXiv
// 2309.00071, section 3; Llama 3.1's bands, The Llama 3 Herd of Models (arXiv 2407.21783) with the constants that its config.json
// states. Names and defaults of the keys: Transformers, modeling_rope_utils.py. DeepSeek's temperature of scores: arXiv 2405.04434,
// section 3.1.4, as Transformers' models/deepseek_v3 computes it. LongRoPE, arXiv 2402.13753, and a base that grows with the sequence
// ("dynamic NTK"): as modeling_rope_utils.py computes both.
#include "model/rope.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace distsetup {
namespace {

constexpr std::array<std::string_view, 5> kKinds = {"linear", "llama3", "yarn", "longrope", "dynamic"};

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

void longrope(RopeFrequencies& out, const Geometry& g, int64_t length) {
  const bool is_long = length > g.rope_original_positions;
  const std::vector<double>& factors = is_long ? g.rope_long_factors : g.rope_short_factors;
  for (size_t i = 0; i < out.per_pair.size(); ++i) out.per_pair[i] /= factors[i];
  const double own = is_long ? g.rope_long_amplitude : g.rope_short_amplitude;
  if (own > 0)
    out.amplitude = own;
  else if (g.rope_amplitude > 0)
    out.amplitude = g.rope_amplitude;
  else if (g.rope_factor > 1)
    out.amplitude = std::sqrt(1 + std::log(g.rope_factor) / std::log(static_cast<double>(g.rope_original_positions)));
}

// The base for a sequence of that length, with "dynamic" scaling.
double grown_base(double base, const Geometry& g, double size, int64_t length) {
  if (g.rope_scaling != "dynamic" || length <= g.rope_original_positions) return base;
  const double longer = static_cast<double>(length) / static_cast<double>(g.rope_original_positions);
  return base * std::pow(g.rope_factor * longer - (g.rope_factor - 1), size / (size - 2));
}

}  // namespace

std::string rope_scaling_problem(const Geometry& g) {
  if (!g.rope_scaled) return "";
  if (g.rope_scaling.empty()) return fmt::format("RoPE scaling of an unstated kind: it has {}", fmt::join(kKinds, ", "));
  const std::string name = fmt::format("RoPE scaling '{}'", g.rope_scaling);
  if (std::find(kKinds.begin(), kKinds.end(), g.rope_scaling) == kKinds.end())
    return fmt::format("{}: it has {}", name, fmt::join(kKinds, ", "));
  if (g.rope_scaling != "linear" && g.rope_original_positions <= 1)
    return fmt::format(
        "{} of a context whose length before is not stated (original_max_position_embeddings, in a preset "
        "rope_original_positions)",
        name);
  if (g.rope_scaling == "dynamic" && rotated_elements(g) <= 2)
    return fmt::format("{} of {} rotated elements", name, rotated_elements(g));
  if (g.rope_scaling != "longrope") return "";
  const auto pairs = static_cast<size_t>(rotated_elements(g) / 2);
  for (const std::vector<double>* factors : {&g.rope_short_factors, &g.rope_long_factors})
    if (factors->size() != pairs)
      return fmt::format("{} with {} factors for {} pairs of rotated elements (short_factor and long_factor)", name, factors->size(),
                         pairs);
  return "";
}

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

RopeFrequencies rope_frequencies(const Geometry& g, bool local, int64_t length) {
  const bool own_base = local && g.local_rope_base > 0;
  const auto size = static_cast<double>(rotated_elements(g));
  const double base = own_base ? g.local_rope_base : grown_base(g.rope_base, g, size, length);
  RopeFrequencies out;
  for (int64_t i = 0; i < rotated_elements(g) / 2; ++i) out.per_pair.push_back(std::pow(base, -2.0 * static_cast<double>(i) / size));
  if (own_base) return out;  // layers with a window see no more than before
  if (g.rope_scaling == "linear")
    for (double& f : out.per_pair) f /= g.rope_factor;
  if (g.rope_scaling == "llama3")
    for (double& f : out.per_pair) f = llama3(f, g);
  if (g.rope_scaling == "yarn") yarn(out, g, size, base);
  if (g.rope_scaling == "longrope") longrope(out, g, length);
  return out;
}

}  // namespace distsetup
