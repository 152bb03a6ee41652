// Line charts as HTML with inline SVG: lines are drawn in a plane that stretches with the page, texts stand beside it and keep their
// size. A sentence says the same to whoever does not see it. No style attributes: the page's policy forbids them.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace distsetup {

struct ChartLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  // (step, value), steps ascending; values that are not finite are left out
};

struct Chart {
  std::string id, title;
  std::vector<ChartLine> lines;          // at most four
  bool has_zero = false;                 // the scale begins at 0
  double first_step = 0, last_step = 0;  // where the axis begins and ends; a line that goes on makes it longer
};

// At most `most` points that keep the shape: first, last, and the extremes of each stretch.
std::vector<std::pair<double, double>> thinned(const std::vector<std::pair<double, double>>& points, size_t most);
// "loss: 5.553 at step 1, lowest 4.828 at step 12, now 4.828".
std::string chart_sentence(const Chart& chart);
// Empty without a point.
std::string chart_html(const Chart& chart);
// Three to four digits: "4.828", "3.00e-04", "12,345".
std::string short_number(double value);

}  // namespace distsetup
