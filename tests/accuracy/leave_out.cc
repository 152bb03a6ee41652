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
// those that are here are few. A width must earn itself: what one code base shows is nearer to chance than what all do. On both sides
// the same: which side an unseen code base is on, those that are here do not say (widths of tokens/s apart for each side, of all first
// sights but the last wave's, held for fewer of that wave than one width for both). None is known better than kLeast.
constexpr double kOutside = 0.08, kPrice = 0.001;
constexpr double kLeast = 0.05;
constexpr double kWidths[] = {0,    0.01,  0.02, 0.03,  0.04, 0.05, 0.06, 0.07, 0.08, 0.09, 0.1,  0.11, 0.12, 0.125, 0.13, 0.135,
                              0.14, 0.145, 0.15, 0.155, 0.16, 0.17, 0.18, 0.21, 0.24, 0.28, 0.33, 0.4,  0.5,  0.6,   0.8};

double unit_of(Metric metric) { return metric == Metric::kTokensPerSecond ? 1 : kGib; }

// What a row misses by, as a logarithm.
struct Miss {
  double by = 0, weight = 1;
  bool is_below = false, offloads = false;
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

// The widths whose sum, as of variances, kOutside of the weight of all misses is beyond. The first difficulty is that of any
// code: what it takes, no other needs, so each of its widths is tried with the best of all others.
class WidthFit {
 public:
  WidthFit(const std::vector<Miss>& misses, size_t num_difficulties) : misses_(misses), with_(num_difficulties) {
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
    return misses_[i].weight * (over > 0 ? (1 - kOutside) * over : -kOutside * over);
  }

  double loss() const {
    double sum = 0;
    for (size_t one = 1; one < widths_.size(); ++one) sum += kPrice * weight_ * widths_[one];
    for (size_t i = 0; i < misses_.size(); ++i) sum += missed(i, variance_[i]);
    return sum;
  }

  void improve(size_t one) {
    double best = 0, least = 1e30;
    for (const double width : kWidths) {
      double now = kPrice * weight_ * width;
      for (const size_t i : with_[one]) now += missed(i, variance_[i] + width * width - widths_[one] * widths_[one]);
      if (now >= least - 1e-12) continue;
      least = now;
      best = width;
    }
    for (const size_t i : with_[one]) variance_[i] += best * best - widths_[one] * widths_[one];
    widths_[one] = best;
  }

  const std::vector<Miss>& misses_;
  std::vector<std::vector<size_t>> with_;  // the misses of each difficulty
  std::vector<double> widths_, variance_;
  double weight_ = 0;
};

// How many times as wide as of code that was read the widths have to be at first sight on one side, for no more than one in twenty of
// the weight to be beyond them.
double times_at_first_sight(const std::vector<Miss>& misses, bool below, const std::vector<std::string>& names,
                            const std::vector<double>& widths) {
  std::vector<std::pair<double, double>> times;  // and its weight
  double weight = 0;
  for (const Miss& miss : misses) {
    weight += miss.weight;
    if (miss.is_below != below) continue;
    double read = 0, of_any_script = 0;
    for (const size_t one : miss.difficulties) (names[one] == "own_script" ? of_any_script : read) += widths[one] * widths[one];
    times.emplace_back(std::sqrt(std::max(0.0, miss.by * miss.by - of_any_script) / read), miss.weight);
  }
  std::sort(times.rbegin(), times.rend());
  double beyond = 0;
  for (const auto& [needed, of] : times) {
    beyond += of;
    if (beyond > (1 - kInside) / 2 * weight) return std::max(1.0, needed);
  }
  return 1;
}

std::string name_of_times(std::string_view group, std::string_view kind, bool below) {
  return fmt::format("unseen.{}.first_sight{}.{}", group, kind, below ? "below" : "above");
}
constexpr std::string_view kOffloading = "_offloading";

// Factors for runs that offload nothing, and for those that do, where each of their code bases counts as one and all others together
// as two. A run that offloads is no surer than one that does not.
void fit_first_sights(std::string_view group, std::vector<Miss> misses, const std::vector<std::string>& names,
                      const std::vector<double>& widths, Calibration& fitted) {
  constexpr double kOfOthers = 2;
  std::vector<Miss> rest;
  double weight_of_rest = 0;
  for (const Miss& miss : misses) {
    if (miss.offloads) continue;
    rest.push_back(miss);
    weight_of_rest += miss.weight;
  }
  if (rest.empty()) return;
  for (Miss& miss : misses) {
    if (!miss.offloads) miss.weight *= kOfOthers / weight_of_rest;
  }
  for (const bool below : {true, false}) {
    const double times = times_at_first_sight(rest, below, names, widths);
    fitted.constants[name_of_times(group, "", below)] = times;
    fitted.constants[name_of_times(group, kOffloading, below)] = std::max(times, times_at_first_sight(misses, below, names, widths));
  }
}

Calibration of_read_code(Calibration residual_constants) {
  for (const char* group : {"memory", "time"}) {
    for (const std::string_view kind : {std::string_view(), kOffloading}) {
      for (const bool below : {true, false}) residual_constants.constants.erase(name_of_times(group, kind, below));
    }
  }
  return residual_constants;
}

bool has_first_sight(const Scored& row) {
  return std::any_of(std::begin(row.first_sight), std::end(row.first_sight), [](double predicted) { return predicted > 0; });
}

std::set<std::string> with_first_sights(const std::vector<Scored>& rows) {
  std::set<std::string> names;
  for (const Scored& row : rows) {
    if (has_first_sight(row)) names.insert(row.code_base);
  }
  return names;
}

// What is known of a run before any of its code is.
std::string_view kind_of(const Setup& s) {
  if (s.model.num_experts > 0) return "experts";
  if (s.offload != OffloadPlan{}) return "offloading";
  if (s.tp > 1 || s.pp > 1 || s.cp > 1) return "split models";
  return s.finetune == Finetune::kFull ? "plain" : "adapters";
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
  const std::set<std::string> first = with_first_sights(rows);
  in_parallel(list.size(), [&](size_t i) {
    std::vector<const Scored*> others;
    for (const Scored& row : rows) {
      if (row.code_base != list[i]) others.push_back(&row);
    }
    found[i] = residuals(others);
    Calibration unseen = fit_unseen(rows, list[i]);
    if (!first.contains(list[i])) unseen = of_read_code(std::move(unseen));
    found[i].constants.merge(unseen.constants);
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
  const std::set<std::string> first = with_first_sights(rows);
  for (const std::string_view group : {"memory", "time"}) {
    std::vector<std::string> names;
    std::vector<Miss> of_read_code, of_first_sights;
    std::map<std::string, int> size;
    const auto each = [&](auto visit) {
      each_prediction(rows, [&](const Scored& row, const Measurement& m) {
        if (left_out.contains(row.code_base) || measured_group(quantity(m.metric)) != group) return;
        const bool is_first = row.first_sight[static_cast<size_t>(m.metric)] > 0;
        if (is_first == first.contains(row.code_base)) visit(row, m, is_first);
      });
    };
    each([&](const Scored& row, const Measurement&, bool) { ++size[row.code_base]; });
    each([&](const Scored& row, const Measurement& m, bool is_first) {
      Miss miss;
      const double by = std::log(m.value / predicted_value(row, m.metric, Column::kHeldOutCodeBase));
      miss.by = std::abs(by);
      miss.is_below = by < 0;
      miss.offloads = unseen_setup(row).offload != OffloadPlan{};
      miss.weight = std::pow(size[row.code_base], is_first ? -1 : -0.5);
      for (const Difficulty& one : difficulties(unseen_setup(row), quantity(m.metric))) {  // "any" first
        auto name = std::find(names.begin(), names.end(), one.key);
        if (name == names.end()) name = names.insert(names.end(), std::string(one.key));
        miss.difficulties.push_back(static_cast<size_t>(name - names.begin()));
      }
      (is_first ? of_first_sights : of_read_code).push_back(std::move(miss));
    });
    const std::vector<double> widths = WidthFit(of_read_code, names.size()).best();
    for (size_t i = 0; i < names.size(); ++i) {
      if (widths[i] == 0) continue;
      for (const char* side : {"below", "above"}) {
        fitted.constants[fmt::format("unseen.{}.{}.{}", group, names[i], side)] = widths[i];
        // Of a plan that names no code base nobody knows: its own layers are as likely as another's.
        if (names[i] == "other_layers") fitted.constants[fmt::format("unseen.{}.unnamed.{}", group, side)] = widths[i] / 2;
      }
    }
    fit_first_sights(group, std::move(of_first_sights), names, widths, fitted);
  }
  return fitted;
}

LeaveOutScore leave_out_score(const std::vector<Scored>& rows, const ResidualsByCodeBase& without, const Calibration& fallback) {
  std::map<std::string, Sum> by_metric, by_code_base;
  std::map<std::pair<std::string, std::string>, std::map<std::string, Sum>> first_sights;  // by group and kind, and code base
  LeaveOutScore score;
  each_prediction(rows, [&](const Scored& row, const Measurement& m) {
    const auto others = without.find(row.code_base);
    const Interval i = interval_without(row, m.metric, others == without.end() ? fallback : others->second);
    const double low = i.low / unit_of(m.metric), high = i.high / unit_of(m.metric);
    const double predicted = predicted_value(row, m.metric, Column::kHeldOutCodeBase);
    const bool inside = m.value >= low && m.value <= high;
    std::vector<Sum*> sums = {&by_metric[std::string(name(m.metric))], &by_code_base[row.code_base]};
    if (row.first_sight[static_cast<size_t>(m.metric)] > 0) {
      const std::string group(measured_group(quantity(m.metric)));
      for (const std::string_view kind : {std::string_view{}, kind_of(row.setup)})
        sums.push_back(&first_sights[{group, std::string(kind)}][row.code_base]);
    }
    for (Sum* sum : sums) {
      sum->errors.push_back(std::abs(predicted / m.value - 1));
      sum->half_widths.push_back((high - low) / 2 / predicted);
      sum->inside += inside ? 1 : 0;
    }
    ++score.n;
    score.inside += inside ? 1 : 0;
  });
  for (const auto& [name, sum] : by_metric) score.metrics.push_back(left_out(name, sum));
  for (const auto& [name, sum] : by_code_base) score.code_bases.push_back(left_out(name, sum));
  for (const auto& [key, bases] : first_sights) {
    FirstSights first{key.first, key.second, static_cast<int>(bases.size())};
    std::vector<double> half_widths;
    for (const auto& [name, sum] : bases) {
      const auto n = static_cast<double>(sum.errors.size());
      first.n += static_cast<int>(sum.errors.size());
      first.inside += sum.inside;
      first.inside_by_code_base += sum.inside / n / static_cast<double>(bases.size());
      half_widths.insert(half_widths.end(), sum.half_widths.begin(), sum.half_widths.end());
    }
    first.median_half_width = 100 * middle(std::move(half_widths));
    score.first_sights.push_back(std::move(first));
  }
  return score;
}

std::vector<Halves> score_halves(const std::vector<Scored>& rows, int num_draws, uint64_t seed) {
  std::vector<Halves> both;
  const std::set<std::string> first = with_first_sights(rows);
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
      const Calibration at_first_sight = fit_unseen(rows, held), read = of_read_code(at_first_sight);
      std::map<std::string, std::pair<int, int>> inside;  // of how many
      each([&](const Scored& row, const Measurement& m) {
        if (!held.contains(row.code_base)) return;
        const Calibration& widths = first.contains(row.code_base) ? at_first_sight : read;
        const Spread spread = unseen_spread(unseen_setup(row), quantity(m.metric), widths);
        const double by = std::log(m.value / predicted_value(row, m.metric, Column::kHeldOutCodeBase));
        auto& [in, of] = inside[row.code_base];
        in += -spread.below <= by && by <= spread.above ? 1 : 0;
        ++of;
        half_widths.push_back((std::exp(spread.above) - std::exp(-spread.below)) / 2);
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
