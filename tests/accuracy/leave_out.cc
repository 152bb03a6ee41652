#include "leave_out.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "fit.h"

namespace distsetup::accuracy {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;
constexpr double kInside = 0.9;
// No feature alone widens by more than a quarter: what errs by more is mistaken, not distant.
constexpr double kWidths[] = {0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.065, 0.08, 0.1, 0.12, 0.14, 0.16, 0.18, 0.21, 0.24};

double unit_of(Metric metric) { return metric == Metric::kTokensPerSecond ? 1 : kGib; }

// What a row misses by, and the half-width without any distance; logarithms over the uncertain share.
struct Miss {
  double by = 0, half = 0, weight = 1;
  std::vector<size_t> kinds;  // of features that no other code base covers
};

Interval interval_without(const Scored& row, Metric metric, const Calibration& residual_constants) {
  return interval_of(row.setup, quantity(metric), predicted_value(row, metric, Column::kHeldOutCodeBase) * unit_of(metric), kInside,
                     residual_constants);
}

template <class Visit>
void each_prediction(const std::vector<Scored>& rows, Visit visit) {
  for (const Scored& row : rows) {
    for (const Measurement& m : row.measured) {
      if (predicted_value(row, m.metric, Column::kHeldOutCodeBase) > 0 && !censored(row, m)) visit(row, m);
    }
  }
}

double half_of(const Miss& miss, const std::vector<double>& widths) {
  double sum = miss.half * miss.half;
  for (const size_t kind : miss.kinds) sum += widths[kind] * widths[kind];
  return std::sqrt(sum);
}

double loss(const std::vector<Miss>& misses, const std::vector<double>& widths) {
  double sum = 0;
  for (const Miss& miss : misses) {
    const double over = miss.by - half_of(miss, widths);
    sum += miss.weight * (over > 0 ? kInside * over : (kInside - 1) * over);
  }
  return sum;
}

// P(at most `inside` of n) where each is inside with probability 0.9.
double binomial_chance(int n, int inside) {
  double sum = 0;
  for (int k = 0; k <= inside; ++k) {
    const double ways = std::lgamma(n + 1.0) - std::lgamma(k + 1.0) - std::lgamma(n - k + 1.0);
    sum += std::exp(ways + k * std::log(kInside) + (n - k) * std::log1p(-kInside));
  }
  return std::min(1.0, sum);
}

double middle(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto at = values.begin() + static_cast<long>(values.size() / 2);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

struct Sum {
  std::vector<double> errors, half_widths;
  int inside = 0;
};

LeftOut left_out(const std::string& name, const Sum& sum) {
  LeftOut score;
  score.name = name;
  score.n = static_cast<int>(sum.errors.size());
  score.inside = sum.inside;
  for (const double e : sum.errors) score.mape += 100 * e / score.n;
  score.median = 100 * middle(sum.errors);
  score.median_half_width = 100 * middle(sum.half_widths);
  score.chance = binomial_chance(score.n, score.inside);
  return score;
}

}  // namespace

ResidualsByCodeBase residuals_without_each(const std::vector<Scored>& rows) {
  std::set<std::string> names;
  for (const Scored& row : rows) names.insert(row.code_base);
  const std::vector<std::string> list(names.begin(), names.end());
  std::vector<Calibration> found(list.size());
  in_parallel(list.size(), [&](size_t i) {
    std::vector<const Scored*> others;
    for (const Scored& row : rows) {
      if (row.code_base != list[i]) others.push_back(&row);
    }
    found[i] = residuals(others);
  });
  ResidualsByCodeBase all;
  for (size_t i = 0; i < list.size(); ++i) all[list[i]] = std::move(found[i]);
  return all;
}

Calibration fit_distances(const std::vector<Scored>& rows, const ResidualsByCodeBase& without) {
  std::map<std::string, int> size;
  each_prediction(rows, [&](const Scored& row, const Measurement&) { ++size[row.code_base]; });
  Calibration fitted;
  for (const std::string_view group : {"memory", "time"}) {
    std::vector<std::string> kinds;
    std::vector<Miss> misses;
    each_prediction(rows, [&](const Scored& row, const Measurement& m) {
      if (measured_group(quantity(m.metric)) != group) return;
      const Calibration& others = without.at(row.code_base);
      const double predicted = predicted_value(row, m.metric, Column::kHeldOutCodeBase);
      const double share = uncertain_share(row.setup, quantity(m.metric), predicted * unit_of(m.metric));
      const Interval i = interval_without(row, m.metric, others);
      const double low = std::log(i.low / unit_of(m.metric)), high = std::log(i.high / unit_of(m.metric));
      Miss miss;
      miss.by = std::abs(std::log(m.value) - (low + high) / 2) / share;
      miss.half = (high - low) / 2 / share;
      miss.weight = 1 / std::sqrt(size[row.code_base]);
      for (const Feature& feature : unmeasured(row.setup, quantity(m.metric), others)) {
        auto kind = std::find(kinds.begin(), kinds.end(), feature.kind);
        if (kind == kinds.end()) kind = kinds.insert(kinds.end(), feature.kind);
        miss.kinds.push_back(static_cast<size_t>(kind - kinds.begin()));
      }
      misses.push_back(std::move(miss));
    });
    std::vector<double> widths(kinds.size(), 0.05);
    for (int round = 0; round < 6; ++round) {
      for (size_t kind = 0; kind < kinds.size(); ++kind) {
        double best = widths[kind], least = loss(misses, widths);
        for (const double width : kWidths) {
          widths[kind] = width;
          if (const double now = loss(misses, widths); now < least - 1e-12) {
            least = now;
            best = width;
          }
        }
        widths[kind] = best;
      }
    }
    for (size_t kind = 0; kind < kinds.size(); ++kind)
      fitted.constants[fmt::format("distance.{}.{}", group, kinds[kind])] = widths[kind];
  }
  return fitted;
}

LeaveOutScore leave_out_score(const std::vector<Scored>& rows, const ResidualsByCodeBase& without, const Calibration& fallback) {
  std::map<std::string, Sum> by_metric, by_code_base;
  LeaveOutScore score;
  each_prediction(rows, [&](const Scored& row, const Measurement& m) {
    const auto others = without.find(row.code_base);
    const Interval i = interval_without(row, m.metric, others == without.end() ? fallback : others->second);
    const double low = i.low / unit_of(m.metric), high = i.high / unit_of(m.metric);
    const double predicted = predicted_value(row, m.metric, Column::kHeldOutCodeBase);
    const bool inside = m.value >= low && m.value <= high;
    for (Sum* sum : {&by_metric[std::string(name(m.metric))], &by_code_base[row.code_base]}) {
      sum->errors.push_back(std::abs(predicted / m.value - 1));
      sum->half_widths.push_back((high - low) / 2 / predicted);
      sum->inside += inside ? 1 : 0;
    }
    ++score.n;
    score.inside += inside ? 1 : 0;
  });
  for (const auto& [name, sum] : by_metric) score.metrics.push_back(left_out(name, sum));
  for (const auto& [name, sum] : by_code_base) score.code_bases.push_back(left_out(name, sum));
  return score;
}

}  // namespace distsetup::accuracy
