#include "leave_out.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "fit.h"

namespace distsetup::accuracy {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;
constexpr double kInside = 0.9;
// How many runs of an unseen code base are outside, and what a width costs. Fewer than one in ten: code bases differ as wholes, and
// those that are here are few. A width must earn itself, of memory more, which fewer print: what one of them shows is nearer to chance
// than what all do. Chosen where what is learned from one half of the code bases holds for the other (--halves 1). On both sides the
// same: which side an unseen code base is on, those that are here do not say (apart, each side held what a few of them chanced to
// show: Brier 0.028 for 0.024, and one code base more failed). None is known better than kLeast.
struct Target {
  double outside = 0, price = 0;
};
constexpr Target kMemory{0.07, 0.002}, kTime{0.06, 0.001};
constexpr double kLeast = 0.05;
constexpr double kWidths[] = {0,    0.01,  0.02, 0.03,  0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.1,  0.11, 0.12, 0.125, 0.13, 0.135,
                              0.14, 0.145, 0.15, 0.155, 0.16, 0.17, 0.18, 0.21, 0.24, 0.28, 0.33, 0.4,  0.5,  0.6,   0.8};

double unit_of(Metric metric) { return metric == Metric::kTokensPerSecond ? 1 : kGib; }

// What a row misses by, as a logarithm.
struct Miss {
  double by = 0, weight = 1;
  std::vector<size_t> difficulties;
};

Interval interval_without(const Scored& row, Metric metric, const Calibration& residual_constants) {
  return interval_of(unseen_setup(row), quantity(metric), predicted_value(row, metric, Column::kHeldOutCodeBase) * unit_of(metric),
                     kInside, residual_constants);
}

template <class Visit>
void each_prediction(const std::vector<Scored>& rows, Visit visit) {
  for (const Scored& row : rows) {
    for (const Measurement& m : row.measured) {
      if (predicted_value(row, m.metric, Column::kHeldOutCodeBase) > 0 && !censored(row, m)) visit(row, m);
    }
  }
}

// The widths whose sum, as of variances, `target.outside` of the weight of all misses is beyond. The first difficulty is that of any
// code: what it takes, no other needs, so each of its widths is tried with the best of all others.
class WidthFit {
 public:
  WidthFit(const std::vector<Miss>& misses, size_t num_difficulties, const Target& target)
      : misses_(misses), target_(target), with_(num_difficulties) {
    for (size_t i = 0; i < misses.size(); ++i) {
      for (const size_t one : misses[i].difficulties) with_[one].push_back(i);
      weight_ += misses[i].weight;
    }
  }

  std::vector<double> best() {
    std::vector<double> best;
    double least = 1e30;
    for (const double of_any : kWidths) {
      if (of_any < kLeast) continue;
      start(of_any);
      for (int round = 0; round < 3; ++round) {
        for (size_t one = 1; one < widths_.size(); ++one) improve(one);
      }
      const double now = loss();
      if (now >= least - 1e-12) continue;
      least = now;
      best = widths_;
    }
    return best;
  }

 private:
  void start(double of_any) {
    widths_.assign(with_.size(), 0);
    widths_[0] = of_any;
    variance_.assign(misses_.size(), 0);
    for (const size_t i : with_[0]) variance_[i] = of_any * of_any;
  }

  double missed(size_t i, double variance) const {
    const double over = misses_[i].by - std::sqrt(std::max(0.0, variance));
    return misses_[i].weight * (over > 0 ? (1 - target_.outside) * over : -target_.outside * over);
  }

  double loss() const {
    double sum = 0;
    for (size_t one = 1; one < widths_.size(); ++one) sum += target_.price * weight_ * widths_[one];
    for (size_t i = 0; i < misses_.size(); ++i) sum += missed(i, variance_[i]);
    return sum;
  }

  void improve(size_t one) {
    double best = 0, least = 1e30;
    for (const double width : kWidths) {
      double now = target_.price * weight_ * width;
      for (const size_t i : with_[one]) now += missed(i, variance_[i] + width * width - widths_[one] * widths_[one]);
      if (now >= least - 1e-12) continue;
      least = now;
      best = width;
    }
    for (const size_t i : with_[one]) variance_[i] += best * best - widths_[one] * widths_[one];
    widths_[one] = best;
  }

  const std::vector<Miss>& misses_;
  Target target_;
  std::vector<std::vector<size_t>> with_;  // the misses of each difficulty
  std::vector<double> widths_, variance_;
  double weight_ = 0;
};

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
    found[i].constants.merge(fit_unseen(rows, list[i]).constants);
    for (const Scored& row : rows) {
      if (row.code_base != list[i]) continue;
      const std::string software = features(row.setup).front().key;
      for (const char* group : {"memory", "time"}) found[i].constants.erase(fmt::format("measured.{}.{}", group, software));
    }
  });
  ResidualsByCodeBase all;
  for (size_t i = 0; i < list.size(); ++i) all[list[i]] = std::move(found[i]);
  return all;
}

Calibration fit_unseen(const std::vector<Scored>& rows, const std::string& code_base) {
  return fit_unseen(rows, std::set<std::string>{code_base});
}

Calibration fit_unseen(const std::vector<Scored>& rows, const std::set<std::string>& left_out) {
  Calibration fitted;
  for (const std::string_view group : {"memory", "time"}) {
    std::vector<std::string> names;
    std::vector<Miss> misses;
    std::map<std::string, int> size;
    const auto each = [&](auto visit) {
      each_prediction(rows, [&](const Scored& row, const Measurement& m) {
        if (!left_out.contains(row.code_base) && measured_group(quantity(m.metric)) == group) visit(row, m);
      });
    };
    each([&](const Scored& row, const Measurement&) { ++size[row.code_base]; });
    each([&](const Scored& row, const Measurement& m) {
      Miss miss;
      miss.by = std::abs(std::log(m.value / predicted_value(row, m.metric, Column::kHeldOutCodeBase)));
      miss.weight = 1 / std::sqrt(size[row.code_base]);
      for (const Difficulty& one : difficulties(unseen_setup(row), quantity(m.metric))) {  // "any" first
        auto name = std::find(names.begin(), names.end(), one.key);
        if (name == names.end()) name = names.insert(names.end(), std::string(one.key));
        miss.difficulties.push_back(static_cast<size_t>(name - names.begin()));
      }
      misses.push_back(std::move(miss));
    });
    const std::vector<double> widths = WidthFit(misses, names.size(), group == "time" ? kTime : kMemory).best();
    for (size_t i = 0; i < names.size(); ++i) {
      if (widths[i] == 0) continue;
      for (const char* side : {"below", "above"}) {
        fitted.constants[fmt::format("unseen.{}.{}.{}", group, names[i], side)] = widths[i];
        // Of a plan that names no code base nobody knows: its own layers are as likely as another's.
        if (names[i] == "other_layers") fitted.constants[fmt::format("unseen.{}.unnamed.{}", group, side)] = widths[i] / 2;
      }
    }
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

std::vector<Halves> score_halves(const std::vector<Scored>& rows, int num_draws, uint64_t seed) {
  std::vector<Halves> both;
  for (const char* group : {"memory", "time"}) {
    std::set<std::string> names;
    const auto each = [&](auto visit) {
      each_prediction(rows, [&](const Scored& row, const Measurement& m) {
        if (measured_group(quantity(m.metric)) == group) visit(row, m);
      });
    };
    each([&](const Scored& row, const Measurement&) { names.insert(row.code_base); });
    std::vector<std::string> order(names.begin(), names.end());
    std::mt19937_64 random(seed);
    Halves halves{group, {}, 0};
    std::vector<double> half_widths;
    for (int draw = 0; draw < num_draws; ++draw) {
      for (size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random() % (i + 1)]);
      const std::set<std::string> held(order.begin() + static_cast<long>(order.size() / 2), order.end());
      const Calibration widths = fit_unseen(rows, held);
      std::map<std::string, std::pair<int, int>> inside;  // of how many
      each([&](const Scored& row, const Measurement& m) {
        if (!held.contains(row.code_base)) return;
        const double width = unseen_spread(unseen_setup(row), quantity(m.metric), widths).above;
        const double by = std::abs(std::log(m.value / predicted_value(row, m.metric, Column::kHeldOutCodeBase)));
        auto& [in, of] = inside[row.code_base];
        in += by <= width ? 1 : 0;
        ++of;
        half_widths.push_back((std::exp(width) - std::exp(-width)) / 2);
      });
      HalfDraw one;
      int in = 0, of = 0;
      for (const auto& [name, count] : inside) {
        in += count.first;
        of += count.second;
        one.inside_by_code_base += static_cast<double>(count.first) / count.second / static_cast<double>(inside.size());
      }
      one.inside = static_cast<double>(in) / std::max(1, of);
      halves.draws.push_back(one);
    }
    halves.median_half_width = middle(half_widths);
    both.push_back(std::move(halves));
  }
  return both;
}

}  // namespace distsetup::accuracy
