// The loss curve as text: training loss as dots (averaged per column), held-out loss as o, on one pair of axes. ASCII only.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace distsetup {

struct LossPoint {
  int64_t step = 0;
  double loss = 0;
};

// "" with fewer than 2 training points. Width and height in characters, axes included.
std::string format_curve(const std::vector<LossPoint>& training, const std::vector<LossPoint>& held_out, int width = 76,
                         int height = 12);

}  // namespace distsetup
