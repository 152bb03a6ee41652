// Positions of a model: how many a learned table has; how fast each pair of a rotated head's elements turns, long-context scaling
// included.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/geometry.h"

namespace distsetup {

// The longest sequence that a model's table of learned positions has rows for; 0: it has no table. Some have rows that are no
// position's (OPT: two).
inline int64_t positions_in_table(const Geometry& g) {
  return g.learned_positions > 0 && g.max_positions > 0 ? std::min(g.learned_positions, g.max_positions) : g.learned_positions;
}

// Elements of a head that are rotated; the others pass through.
int64_t rotated_elements(const Geometry& geometry);

// What scores are multiplied by where the model says no more of it: 1 / sqrt(d), and YaRN's temperature of DeepSeek.
double score_scale(const Geometry& geometry);

struct RopeFrequencies {
  std::vector<double> per_pair;  // radians a position, rotated_elements / 2 of them
  double amplitude = 1;          // what cosines and sines are multiplied by (YaRN)
};
// `local`: of the layers with a window, where the model has a base of their own for them (Gemma 3). `length`: tokens of the longest
// sequence; two kinds of scaling ("longrope", "dynamic") turn otherwise in a sequence that is longer than the original context.
RopeFrequencies rope_frequencies(const Geometry& geometry, bool local, int64_t length);

// Why rope_frequencies() does not know the scaling that a model states: "RoPE scaling 'axial': it has …"; "": it does.
std::string rope_scaling_problem(const Geometry& geometry);

}  // namespace distsetup
