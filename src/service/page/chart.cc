#include "service/page/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "base/quantity.h"
#include "service/page/html.h"
#include "service/run_curve.h"

namespace distsetup {
namespace {

constexpr double kPlane = 1000;  // the drawing's own units

// Not what a loss that ran away ends as.
bool is_drawable(double value) { return std::isfinite(value) && std::abs(value) < 1e30; }

// Ticks at equal distances from low to high, both included.
struct Scale {
  double low = 0, high = 1, step = 1;
  int num_ticks() const { return 1 + static_cast<int>(std::lround((high - low) / step)); }
  double place(double value) const { return (value - low) / (high - low); }
};

// The nearest of 1, 2, 5 times a power of ten that makes at most five stretches of [low, high].
Scale scale_of(double low, double high) {
  if (high - low < 1e-12 * std::max({std::abs(low), std::abs(high), 1e-30})) {
    const double room = low == 0 ? 1 : std::abs(low) * 0.1;
    low -= room;
    high += room;
  }
  const double power = std::pow(10, std::floor(std::log10((high - low) / 4)));
  Scale scale;
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    scale.step = factor * power;
    scale.low = std::floor(low / scale.step) * scale.step;
    scale.high = std::ceil(high / scale.step) * scale.step;
    if (scale.num_ticks() <= 6) break;
  }
  return scale;
}

// The text of a tick: as many digits as its neighbour needs to differ.
std::string tick_text(double value, double step) {
  const double size = std::max(std::abs(value), step);
  if (std::abs(value) < step * 1e-6) return "0";
  if (size < 1e-3 || size >= 1e6) return fmt::format("{:.3g}", value);
  return fmt::format("{:.{}f}", value, std::max(0, -static_cast<int>(std::floor(std::log10(step) + 1e-9))));
}

struct Range {
  double first_step = 0, last_step = 0, low = 0, high = 0;
};

std::optional<Range> range_of(const Chart& chart) {
  std::optional<Range> range;
  for (const ChartLine& line : chart.lines) {
    for (const auto& [step, value] : line.points) {
      if (!is_drawable(value)) continue;
      if (!range) range = Range{std::min(step, chart.first_step), std::max(step, chart.last_step), value, value};
      range->first_step = std::min(range->first_step, step);
      range->last_step = std::max(range->last_step, step);
      range->low = std::min(range->low, value);
      range->high = std::max(range->high, value);
    }
  }
  return range;
}

std::string polyline(const ChartLine& line, size_t number, const Range& range, const Scale& scale) {
  const double width = std::max(range.last_step - range.first_step, 1e-9);
  std::string points;
  for (const auto& [step, value] : thinned(line.points, kMostPoints))
    points += fmt::format("{}{:.1f},{:.1f}", points.empty() ? "" : " ", kPlane * (step - range.first_step) / width,
                          kPlane * (1 - scale.place(value)));
  if (points.find(' ') == std::string::npos) points += " " + points;  // one point: a dot, by the round ends of a line
  return fmt::format("<polyline class=\"line line{}\" points=\"{}\"/>", number, points);
}

}  // namespace

std::string short_number(double value) {
  const double size = std::abs(value);
  if (!is_drawable(value)) return "not a number";
  if (size != 0 && size < 1e-3) return fmt::format("{:.2e}", value);
  if (size >= 1e15) return fmt::format("{:.3e}", value);
  return size >= 1e3 ? format_count(static_cast<int64_t>(std::llround(value))) : fmt::format("{:.4g}", value);
}

std::vector<std::pair<double, double>> thinned(const std::vector<std::pair<double, double>>& points, size_t most) {
  std::vector<std::pair<double, double>> drawn;
  for (const auto& point : points)
    if (is_drawable(point.second)) drawn.push_back(point);
  if (drawn.size() <= most) return drawn;
  const size_t stretches = std::max<size_t>(1, (most - 2) / 2);
  std::vector<std::pair<double, double>> out = {drawn.front()};
  const size_t inner = drawn.size() - 2;
  for (size_t n = 0; n < stretches; ++n) {
    const auto begin = drawn.begin() + 1 + static_cast<std::ptrdiff_t>(inner * n / stretches);
    const auto end = drawn.begin() + 1 + static_cast<std::ptrdiff_t>(inner * (n + 1) / stretches);
    auto [low, high] = std::minmax_element(begin, end, [](const auto& a, const auto& b) { return a.second < b.second; });
    if (low > high) std::swap(low, high);
    out.push_back(*low);
    if (low != high) out.push_back(*high);
  }
  out.push_back(drawn.back());
  return out;
}

std::string chart_sentence(const Chart& chart) {
  std::string text;
  for (const ChartLine& line : chart.lines) {
    const auto points = thinned(line.points, line.points.size());
    if (points.empty()) continue;
    const auto [low, high] =
        std::minmax_element(points.begin(), points.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    text += fmt::format("{}{}: {} at step {:.0f}, lowest {} at step {:.0f}, highest {} at step {:.0f}, now {} at step {:.0f}",
                        text.empty() ? "" : "; ", line.name, short_number(points.front().second), points.front().first,
                        short_number(low->second), low->first, short_number(high->second), high->first,
                        short_number(points.back().second), points.back().first);
  }
  return text;
}

std::string chart_html(const Chart& chart) {
  const std::optional<Range> range = range_of(chart);
  if (!range) return "";
  const Scale scale =
      chart.has_zero ? scale_of(std::min(range->low, 0.0), std::max(range->high, 0.0)) : scale_of(range->low, range->high);
  const int num_ticks = scale.num_ticks();
  std::string drawing, labels, legend;
  for (int n = 0; n < num_ticks; ++n) {
    const double value = scale.low + n * scale.step, y = kPlane * (1 - scale.place(value));
    drawing += fmt::format("<line class=\"grid\" x1=\"0\" x2=\"{0:.0f}\" y1=\"{1:.1f}\" y2=\"{1:.1f}\"/>", kPlane, y);
    labels = fmt::format("<span>{}</span>", tick_text(value, scale.step)) + labels;  // the highest comes first
  }
  for (size_t n = 0; n < chart.lines.size(); ++n) {
    if (chart.lines[n].points.empty()) continue;
    drawing += polyline(chart.lines[n], n, *range, scale);
    legend += fmt::format("<span class=\"key key{}\">{}</span>", n, escape_html(chart.lines[n].name));
  }
  return fmt::format(
      "<figure class=\"chart\" id=\"{0}\"><figcaption>{1} <span class=\"legend\">{2}</span></figcaption>"
      "<div class=\"plot\"><div class=\"ticks\" aria-hidden=\"true\">{3}</div>"
      "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{4}\">{5}</svg>"
      "<div class=\"steps\" aria-hidden=\"true\"><span>step {6}</span><span>{7}</span></div></div></figure>",
      chart.id, escape_html(chart.title), legend, labels, escape_html(chart_sentence(chart)), drawing,
      format_count(static_cast<int64_t>(range->first_step)), format_count(static_cast<int64_t>(range->last_step)));
}

}  // namespace distsetup
