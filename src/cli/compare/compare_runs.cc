#include "cli/compare/compare_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/quantity.h"

namespace distsetup {
namespace {

constexpr double kLargestLoss = 100;
constexpr size_t kNumWindows = 20, kMostBars = 40;

double relative(double a, double b) {
  const double larger = std::max(std::abs(a), std::abs(b));
  return larger == 0 ? 0 : std::abs(a - b) / larger;
}

struct CommonStep {
  LoggedStep a, b;
};

// Steps that both have. Without step numbers in one of them: the first with the first, and so on.
std::vector<CommonStep> common_steps(const RunLog& a, const RunLog& b) {
  std::vector<CommonStep> out;
  if (!a.counts_steps || !b.counts_steps) {
    for (size_t i = 0; i < std::min(a.steps.size(), b.steps.size()); ++i) out.push_back({a.steps[i], b.steps[i]});
    return out;
  }
  auto at = b.steps.begin();
  for (const LoggedStep& one : a.steps) {
    while (at != b.steps.end() && at->step < one.step) ++at;
    if (at != b.steps.end() && at->step == one.step) out.push_back({one, *at});
  }
  return out;
}

CurveStatistics statistics(const std::vector<CommonStep>& pairs, LoggedStep CommonStep::*side) {
  CurveStatistics s;
  s.num_steps = static_cast<int64_t>(pairs.size());
  s.first = (pairs.front().*side).loss;
  s.last = (pairs.back().*side).loss;
  s.min = s.max = s.first;
  for (const CommonStep& one : pairs) {
    const double loss = (one.*side).loss;
    s.mean += loss / static_cast<double>(pairs.size());
    s.min = std::min(s.min, loss);
    s.max = std::max(s.max, loss);
  }
  for (const CommonStep& one : pairs) s.deviation += ((one.*side).loss - s.mean) * ((one.*side).loss - s.mean);
  s.deviation = std::sqrt(s.deviation / static_cast<double>(pairs.size()));
  return s;
}

void compare_windows(const std::vector<CommonStep>& pairs, RunComparison& out) {
  const size_t length = (pairs.size() + kNumWindows - 1) / kNumWindows;
  ComparedValue worst = {"worst stretch", out.of_a.mean, out.of_b.mean, -1, true, false};
  for (size_t begin = 0; begin < pairs.size(); begin += length) {
    const size_t end = std::min(begin + length, pairs.size());
    double a = 0, b = 0;
    for (size_t i = begin; i < end; ++i) {
      a += pairs[i].a.loss / static_cast<double>(end - begin);
      b += pairs[i].b.loss / static_cast<double>(end - begin);
    }
    if (relative(a, b) <= worst.difference) continue;
    worst.a = a, worst.b = b, worst.difference = relative(a, b);
    out.worst_first_step = pairs[begin].a.step;
    out.worst_last_step = pairs[end - 1].a.step;
  }
  out.values.push_back(worst);
}

// The mean of what both logged, for information.
void add_mean(const std::vector<CommonStep>& pairs, const std::string& name, std::optional<double> LoggedStep::*field,
              RunComparison& out) {
  double a = 0, b = 0;
  int64_t n = 0;
  for (const CommonStep& one : pairs) {
    if (!(one.a.*field) || !(one.b.*field) || !std::isfinite(*(one.a.*field)) || !std::isfinite(*(one.b.*field))) continue;
    a += *(one.a.*field);
    b += *(one.b.*field);
    ++n;
  }
  if (n == 0) return;
  a /= static_cast<double>(n);
  b /= static_cast<double>(n);
  out.values.push_back({name, a, b, relative(a, b), false, field == &LoggedStep::memory_bytes});
}

// The curve in one line of bars, between the lowest and the highest loss of both runs.
std::string bars(const std::vector<LoggedStep>& steps, double low, double high, size_t width) {
  static constexpr const char* kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string out;
  const size_t n = std::min(width, steps.size());
  for (size_t i = 0; i < n; ++i) {
    const size_t begin = i * steps.size() / n, end = (i + 1) * steps.size() / n;
    double mean = 0;
    for (size_t k = begin; k < end; ++k) mean += steps[k].loss / static_cast<double>(end - begin);
    const double level = high > low ? (mean - low) / (high - low) : 0;
    out += std::isfinite(mean) ? kBars[static_cast<size_t>(std::lround(std::clamp(level, 0.0, 1.0) * 7.0))] : "?";
  }
  return out;
}

std::string shown(const ComparedValue& value, double number) {
  return value.is_bytes ? format_bytes(static_cast<int64_t>(number)) : fmt::format("{:.5g}", number);
}

std::string percent(double share) { return fmt::format("{:.{}f} %", 100 * share, share < 0.00995 && share > 0 ? 2 : 1); }

Json json_of(const RunLog& log, const CurveStatistics& s) {
  return {{"path", log.path},     {"format", log.format}, {"loss", log.loss_name},   {"steps_logged", log.steps.size()},
          {"steps", s.num_steps}, {"first", s.first},     {"mean", s.mean},          {"last", s.last},
          {"min", s.min},         {"max", s.max},         {"deviation", s.deviation}};
}

}  // namespace

Result<RunComparison> compare_runs(RunLog a, RunLog b, double threshold) {
  RunComparison out;
  out.threshold = threshold;
  std::vector<CommonStep> pairs = common_steps(a, b);
  if (pairs.empty()) {
    return error(code::kConflict, {b.path, 0, 0}, fmt::format("'{}' and '{}' have no step in common", a.path, b.path),
                 fmt::format("the first logs steps {} to {}, the second {} to {}", a.steps.front().step, a.steps.back().step,
                             b.steps.front().step, b.steps.back().step));
  }
  for (const CommonStep& one : pairs) {
    if (std::isfinite(one.a.loss) && std::isfinite(one.b.loss)) continue;
    out.diverged_step = one.a.step;
    break;
  }
  const auto is_usable = [](double loss) { return loss > 0 && loss <= kLargestLoss; };
  const int64_t num_all = static_cast<int64_t>(pairs.size());
  std::erase_if(pairs, [&](const CommonStep& one) { return !is_usable(one.a.loss) || !is_usable(one.b.loss); });
  out.num_left_out = num_all - static_cast<int64_t>(pairs.size());
  if (pairs.empty()) {
    return error(code::kConflict, {b.path, 0, 0},
                 fmt::format("none of the {} common steps has two losses between 0 and {}", num_all, kLargestLoss));
  }
  out.of_a = statistics(pairs, &CommonStep::a);
  out.of_b = statistics(pairs, &CommonStep::b);
  const auto decide = [&out](const char* name, double x, double y) {
    out.values.push_back({name, x, y, relative(x, y), true, false});
  };
  decide("first loss", out.of_a.first, out.of_b.first);
  decide("mean loss", out.of_a.mean, out.of_b.mean);
  decide("last loss", out.of_a.last, out.of_b.last);
  compare_windows(pairs, out);
  add_mean(pairs, "gradient norm, mean", &LoggedStep::gradient_norm, out);
  add_mean(pairs, "seconds a step, mean", &LoggedStep::step_s, out);
  add_mean(pairs, "tokens/s, mean", &LoggedStep::tokens_per_s, out);
  add_mean(pairs, "memory, mean", &LoggedStep::memory_bytes, out);
  out.agree = out.diverged_step < 0;
  for (const ComparedValue& one : out.values) out.agree &= !one.decides || one.difference <= threshold;
  out.a = std::move(a);
  out.b = std::move(b);
  return out;
}

Json to_json(const RunComparison& c) {
  Json values = Json::array();
  for (const ComparedValue& one : c.values) {
    values.push_back({{"name", one.name}, {"a", one.a}, {"b", one.b}, {"difference", one.difference}, {"decides", one.decides}});
  }
  return {{"schema_version", 1},
          {"agree", c.agree},
          {"threshold", c.threshold},
          {"a", json_of(c.a, c.of_a)},
          {"b", json_of(c.b, c.of_b)},
          {"values", values},
          {"worst_stretch", {c.worst_first_step, c.worst_last_step}},
          {"left_out", c.num_left_out},
          {"diverged_step", c.diverged_step < 0 ? Json() : Json(c.diverged_step)}};
}

std::string to_text(const RunComparison& c, int width_columns) {
  const double low = std::min(c.of_a.min, c.of_b.min), high = std::max(c.of_a.max, c.of_b.max);
  const size_t width = std::min(kMostBars, static_cast<size_t>(std::max(10, width_columns - 30)));
  std::string out;
  for (const auto& [letter, log] : {std::pair<char, const RunLog*>{'A', &c.a}, {'B', &c.b}}) {
    out += fmt::format("{}  {}: {} steps, '{}' ({})\n   {}\n", letter, log->path, log->steps.size(), log->loss_name, log->format,
                       bars(log->steps, low, high, width));
  }
  out += fmt::format("\n{:<22}{:>12}{:>12}  {:>10}\n", fmt::format("{} common steps", c.of_a.num_steps), "A", "B", "difference");
  for (const ComparedValue& one : c.values) {
    const bool too_far = one.decides && one.difference > c.threshold;
    out += fmt::format("{:<22}{:>12}{:>12}  {:>10}{}\n", one.name, shown(one, one.a), shown(one, one.b), percent(one.difference),
                       too_far ? fmt::format("  over {}", percent(c.threshold)) : "");
  }
  out += fmt::format("worst stretch: steps {} to {}\n", c.worst_first_step, c.worst_last_step);
  if (c.num_left_out > 0) out += fmt::format("{} steps with a loss outside 0 to {} are left out\n", c.num_left_out, kLargestLoss);
  out += "\n";
  if (c.diverged_step >= 0)
    out += fmt::format("the losses differ: at step {} one of them is no number\n", c.diverged_step);
  else
    out += c.agree ? fmt::format("the losses agree within {}\n", percent(c.threshold))
                   : fmt::format("the losses differ by more than {}\n", percent(c.threshold));
  return out;
}

}  // namespace distsetup
