#include "intervals.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"

namespace distsetup::accuracy {
namespace {

struct Residual {
  const Scored* row = nullptr;
  double measured = 0, predicted = 0, share = 1;  // share of the prediction that can be wrong
};

// Quantile p of what a further row of the class would show: order statistics at k / (n + 1), continued beyond the outermost ones by
// the spread of the middle.
double tail(const std::vector<double>& sorted, double p) {
  const auto n = static_cast<double>(sorted.size());
  const double at = p * (n + 1) - 1;
  if (at >= 0 && at <= n - 1) {
    const auto below = static_cast<size_t>(at);
    const size_t above = std::min(below + 1, sorted.size() - 1);
    return sorted[below] + (sorted[above] - sorted[below]) * (at - static_cast<double>(below));
  }
  const double spread = (sorted.back() - sorted.front()) / std::max(1.0, n - 1);
  return at < 0 ? sorted.front() + at * spread : sorted.back() + (at - (n - 1)) * spread;
}

// `offset` (GiB, of device bytes only): what libraries load into the device beside context and communicators.
struct Ends {
  double low = 0, high = 0, offset = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return tail(values, 0.5);
}

// Rows of one table share what its source does not say: of memory, n of them say less than n runs of their own would, so that 4 % are
// left out on each side instead of 5.
Ends ends(const std::vector<Residual>& members, Predicted quantity) {
  const bool is_device = quantity == Predicted::kDevice;
  const double left_out = quantity == Predicted::kTokensPerSecond ? 0.05 : 0.04;
  Ends e;
  std::vector<double> values;
  if (is_device) {
    for (const Residual& r : members) values.push_back(r.measured - r.predicted);
    e.offset = std::max(0.0, median(values));
  }
  values.clear();
  for (const Residual& r : members) values.push_back(std::log(r.measured / (r.predicted + e.offset)) / r.share);
  std::sort(values.begin(), values.end());
  constexpr double kNarrowest = 0.002;  // sources print three or four digits
  const double low = tail(values, left_out), high = tail(values, 1 - left_out);
  const double middle = (low + high) / 2, half = std::max(kNarrowest, (high - low) / 2);
  e.low = middle - half;
  e.high = middle + half;
  return e;
}

Ends widened(const Ends& e, double by) {
  const double middle = (e.low + e.high) / 2, half = (e.high - e.low) / 2 * by;
  return {middle - half, middle + half, e.offset};
}

double share_of(const Scored& row, Predicted quantity, double predicted) {
  constexpr double kGib = 1024.0 * 1024 * 1024;
  return uncertain_share(row.setup, quantity, quantity == Predicted::kTokensPerSecond ? predicted : predicted * kGib);
}

using Classes = std::map<std::string, std::vector<Residual>>;  // by "<quantity>.<class>"

std::vector<const Scored*> pointers(const std::vector<Scored>& rows) {
  std::vector<const Scored*> all;
  for (const Scored& row : rows) all.push_back(&row);
  return all;
}

Classes classes_of(const std::vector<const Scored*>& rows) {
  Classes all;
  for (const Scored* one : rows) {
    const Scored& row = *one;
    for (const Measurement& m : row.measured) {
      // What a new program's memory shows is in `unseen` (leave_out.h): a class of bytes is of programs that were counted operation by
      // operation.
      if (row.is_transfer && m.metric != Metric::kTokensPerSecond) continue;
      const double predicted = predicted_value(row, m.metric, Column::kHeldOutBlock);
      if (predicted <= 0 || censored(row, m)) continue;
      const double share = share_of(row, quantity(m.metric), predicted);
      for (const std::string& one : residual_classes(row.setup, quantity(m.metric))) {
        all[fmt::format("{}.{}", name(quantity(m.metric)), one)].push_back({&row, m.value, predicted, share});
      }
    }
  }
  return all;
}

// Whether the class around it (its name without the last part) has the same rows: what is asked next gives the same answer.
bool says_nothing_new(const std::string& name, const Classes& classes) {
  const auto around = classes.find(name.substr(0, name.rfind('.')));
  return around != classes.end() && around->second.size() == classes.at(name).size();
}

}  // namespace

bool censored(const Scored& row, const Measurement& m) {
  constexpr double kGib = 1024.0 * 1024 * 1024, kNear = 3;
  return (m.metric == Metric::kReserved || m.metric == Metric::kDevice) &&
         m.value > static_cast<double>(row.setup.gpu.usable_memory_bytes) / kGib - kNear;
}

Predicted quantity(Metric metric) {
  switch (metric) {
    case Metric::kAllocated: return Predicted::kAllocated;
    case Metric::kReserved: return Predicted::kReserved;
    case Metric::kDevice: return Predicted::kDevice;
    case Metric::kTokensPerSecond: return Predicted::kTokensPerSecond;
  }
  CHECK(false, "metric", static_cast<int>(metric));
  return Predicted::kAllocated;
}

Calibration residuals(const std::vector<Scored>& rows) { return residuals(pointers(rows)); }

Calibration residuals(const std::vector<const Scored*>& rows) {
  Calibration all;
  for (const Scored* row : rows) {
    const std::vector<Feature> of_row = features(row->setup);
    for (const Measurement& m : row->measured) {
      if (m.metric != Metric::kTokensPerSecond) continue;
      for (const Feature& feature : of_row) all.constants["measured.time." + feature.key] += 1;
    }
    // A run that came through shows that it needs no more than its GPU has, whether or not its memory is printed.
    if (row->row.ran_out() || row->is_transfer) continue;
    for (const Feature& feature : of_row) all.constants["measured.memory." + feature.key] += 1;
  }
  const Classes classes = classes_of(rows);
  for (const auto& [name, members] : classes) {
    if (static_cast<int>(members.size()) < kFewest || says_nothing_new(name, classes)) continue;
    const bool is_device = name.starts_with("device.");
    const bool is_speed = name.starts_with("tokens_per_s_per_gpu.");
    const Ends e = ends(members, is_device ? Predicted::kDevice : is_speed ? Predicted::kTokensPerSecond : Predicted::kAllocated);
    if (is_device) all.constants["residual." + name + ".offset_gib"] = e.offset;
    all.constants["residual." + name + ".low"] = e.low;
    all.constants["residual." + name + ".high"] = e.high;
    all.constants["residual." + name + ".n"] = static_cast<double>(members.size());
  }
  return all;
}

std::vector<IntervalScore> interval_scores(const std::vector<Scored>& rows) {
  const Classes classes = classes_of(pointers(rows));
  std::vector<IntervalScore> scores;
  for (const Metric metric : kMetrics) {
    IntervalScore score{metric, 0, 0, 0};
    std::vector<double> half_widths;
    for (const Scored& row : rows) {
      if (row.is_transfer) continue;
      for (const Measurement& m : row.measured) {
        const double predicted = predicted_value(row, metric, Column::kHeldOutBlock);
        if (m.metric != metric || predicted <= 0 || censored(row, m)) continue;
        for (const std::string& one : residual_classes(row.setup, quantity(metric))) {
          std::vector<Residual> others;
          for (const Residual& r : classes.at(fmt::format("{}.{}", name(quantity(metric)), one))) {
            if (r.row != &row) others.push_back(r);
          }
          if (static_cast<int>(others.size()) < kFewest) continue;
          Ends e = ends(others, quantity(metric));
          if (metric != Metric::kTokensPerSecond) e = widened(e, widening(one));
          const double share = share_of(row, quantity(metric), predicted);
          const double truth = std::log(m.value / (predicted + e.offset)) / share;
          ++score.n;
          score.coverage += truth >= e.low && truth <= e.high ? 1 : 0;
          half_widths.push_back(100 * (std::exp(e.high * share) - std::exp(e.low * share)) / 2);
          break;
        }
      }
    }
    if (score.n == 0) continue;
    score.coverage *= 100.0 / score.n;
    std::nth_element(half_widths.begin(), half_widths.begin() + static_cast<long>(half_widths.size() / 2), half_widths.end());
    score.median_half_width = half_widths[half_widths.size() / 2];
    scores.push_back(score);
  }
  return scores;
}

}  // namespace distsetup::accuracy
