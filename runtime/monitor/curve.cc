#include "runtime/monitor/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace distsetup {

std::string format_curve(const std::vector<LossPoint>& training, const std::vector<LossPoint>& held_out, int width, int height) {
  constexpr int kAxis = 8;  // "  5.61 |"
  const int columns = width - kAxis, rows = height - 2;
  if (training.size() < 2 || columns < 8 || rows < 2) return "";
  const int64_t first = training.front().step, last = std::max(training.back().step, first + 1);
  double low = training.front().loss, high = low;
  for (const auto* points : {&training, &held_out}) {
    for (const LossPoint& p : *points) {
      if (!std::isfinite(p.loss)) return "";
      low = std::min(low, p.loss);
      high = std::max(high, p.loss);
    }
  }
  if (high - low < 1e-9) high = low + 1e-9;
  const auto column = [&](int64_t step) {
    return static_cast<int>(std::clamp<int64_t>((step - first) * (columns - 1) / (last - first), 0, columns - 1));
  };
  const auto row = [&](double loss) {
    return std::clamp(static_cast<int>(std::lround((high - loss) / (high - low) * (rows - 1))), 0, rows - 1);
  };

  std::vector<std::string> picture(static_cast<size_t>(rows), std::string(static_cast<size_t>(columns), ' '));
  std::vector<double> sum(static_cast<size_t>(columns)), count(static_cast<size_t>(columns));
  for (const LossPoint& p : training) {
    sum[static_cast<size_t>(column(p.step))] += p.loss;
    count[static_cast<size_t>(column(p.step))] += 1;
  }
  for (size_t c = 0; c < sum.size(); ++c)
    if (count[c] > 0) picture[static_cast<size_t>(row(sum[c] / count[c]))][c] = '.';
  for (const LossPoint& p : held_out) picture[static_cast<size_t>(row(p.loss))][static_cast<size_t>(column(p.step))] = 'o';

  std::string out = fmt::format("loss: . training, o held out\n");
  for (int r = 0; r < rows; ++r) {
    const bool labelled = r == 0 || r == rows - 1 || r == rows / 2;
    const double value = high - (high - low) * r / (rows - 1);
    std::string line = labelled ? fmt::format("{:6.2f} |", value) : "       |";
    line += picture[static_cast<size_t>(r)];
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  const std::string from = fmt::format("step {}", first), to = fmt::format("{}", last);
  out += fmt::format("       {}{:>{}}\n", from, to, std::max(1, columns + 1 - static_cast<int>(from.size())));
  return out;
}

}  // namespace distsetup
