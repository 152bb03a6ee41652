#include "model/layer_pattern.h"

#include <algorithm>

namespace distsetup {

LayerPattern pattern_of(const std::vector<bool>& layers) {
  LayerPattern pattern;
  const auto first = std::find(layers.begin(), layers.end(), true);
  if (first == layers.end()) return pattern;
  pattern.every = first - layers.begin() + 1;
  const bool is_first_of_several = pattern.every == 1 && std::find(layers.begin(), layers.end(), false) != layers.end();
  if (is_first_of_several) pattern.every = -(std::find(first + 1, layers.end(), true) - layers.begin());
  for (int64_t i = 0; i < std::ssize(layers) && !pattern.odd; ++i)
    if (layers[static_cast<size_t>(i)] != is_in_pattern(i, pattern.every)) pattern.odd = i;
  return pattern;
}

}  // namespace distsetup
