// Stacked bars as inline SVG, for the cell of a table whose other cells have the numbers.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace distsetup {

struct BarPart {
  size_t colour = 0;  // part0 … part9 of the style sheet
  int64_t bytes = 0;
};

// `most_bytes`: the whole width.
std::string bar_svg(const std::vector<BarPart>& parts, int64_t most_bytes);
// A square of a part's colour, beside its name.
std::string swatch_svg(size_t colour);

}  // namespace distsetup
