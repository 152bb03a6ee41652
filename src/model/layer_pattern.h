// Which layers of a model are of a kind, as a geometry says it: each n-th (n), the first of each n (-n), none (0).
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace distsetup {

constexpr bool is_in_pattern(int64_t layer, int64_t every) {
  return every > 0 ? (layer + 1) % every == 0 : every < 0 && layer % -every == 0;
}

struct LayerPattern {
  int64_t every = 0;
  std::optional<int64_t> odd;  // the first layer that is otherwise
};
// Of a list that says it of each layer.
LayerPattern pattern_of(const std::vector<bool>& layers);

}  // namespace distsetup
