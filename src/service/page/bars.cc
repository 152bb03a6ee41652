#include "service/page/bars.h"

#include <fmt/format.h>

#include <algorithm>

namespace distsetup {
namespace {

constexpr double kBarWidth = 1000;

double bar_place(int64_t bytes, int64_t most_bytes) {
  return kBarWidth * std::clamp(static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(most_bytes, 1)), 0.0, 1.0);
}

}  // namespace

std::string bar_svg(const std::vector<BarPart>& parts, int64_t most_bytes) {
  std::string inside;
  int64_t begin_bytes = 0;
  for (const BarPart& part : parts) {
    const double begin = bar_place(begin_bytes, most_bytes), end = bar_place(begin_bytes + part.bytes, most_bytes);
    begin_bytes += part.bytes;
    if (end - begin < 0.05) continue;
    inside +=
        fmt::format("<rect class=\"part{}\" x=\"{:.1f}\" width=\"{:.1f}\" y=\"0\" height=\"20\"/>", part.colour, begin, end - begin);
  }
  return fmt::format("<svg class=\"bar\" viewBox=\"0 0 1000 20\" preserveAspectRatio=\"none\" aria-hidden=\"true\">{}</svg>", inside);
}

std::string swatch_svg(size_t colour) {
  return fmt::format(
      "<svg class=\"swatch\" viewBox=\"0 0 10 10\" aria-hidden=\"true\"><rect class=\"part{}\" width=\"10\" height=\"10\"/></svg>",
      colour);
}

}  // namespace distsetup
