#include "fit.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "base/check.h"
#include "predict.h"

namespace distsetup::accuracy {
namespace {

constexpr double kScale = 0.1;       // residuals beyond count ever less
constexpr double kPullWidth = 0.35;  // of a constant's logarithm around its start value
constexpr double kMeasuredWidth = 0.1;
constexpr double kLawWidth = 0.05;
constexpr double kNoise = 0.05;  // of a measurement: weighs rows against the pull
constexpr double kLargestStep = 0.35;
constexpr double kProbe = 0.02;

// Cauchy's loss: quadratic for small residuals, and a row that contradicts all others (a run of another kind, a misprint) pulls ever
// less.
double robust(double r) { return kScale * kScale / 2 * std::log1p(r * r / (kScale * kScale)); }

// What micro-benchmarks state (nccl-tests' bus bandwidth, bytes counted from kernels, FlashAttention's own tables) moves less than
// what only a training run shows, and least what follows from a stated power limit.
double pull_width(const std::string& name) {
  if (name.starts_with("clock.")) return kLawWidth;
  for (const std::string_view counted : {"network.nvlink", "network.xgmi", "attention.flash2.hopper", "attention.unfused",
                                         "gemm.ampere.k_half", "software.host_beside_gpu"}) {
    if (name.starts_with(counted)) return kMeasuredWidth;
  }
  return kPullWidth;
}

double largest_value(const std::string& name) {
  for (const std::string_view tail : {"efficiency", "share", "hidden", ".forward", ".backward"}) {
    if (name.ends_with(tail)) return 1;
  }
  return 1e30;
}

// Solves a x = b in place for a symmetric positive definite a (Cholesky).
std::vector<double> solve(std::vector<std::vector<double>> a, std::vector<double> b) {
  const size_t n = b.size();
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = a[i][j];
      for (size_t k = 0; k < j; ++k) sum -= a[i][k] * a[j][k];
      if (i == j) {
        CHECK(sum > 0, "matrix is not positive definite", i);
        a[i][i] = std::sqrt(sum);
      } else {
        a[i][j] = sum / a[j][j];
      }
    }
    for (size_t k = 0; k < i; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) b[i] -= a[k][i] * b[k];
    b[i] /= a[i][i];
  }
  return b;
}

}  // namespace

void in_parallel(size_t n, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next = 0;
  const auto worker = [&] {
    for (size_t i = next++; i < n; i = next++) work(i);
  };
  std::vector<std::thread> threads;
  const unsigned count = std::clamp(std::thread::hardware_concurrency(), 1U, 8U);
  for (unsigned t = 1; t < count; ++t) threads.emplace_back(worker);
  worker();
  for (std::thread& thread : threads) thread.join();
}

Fitter::Fitter(std::vector<Observation> observations, Calibration start)
    : observations_(std::move(observations)), start_(std::move(start)) {
  for (const auto& [name, value] : start_.constants) {
    if (value > 0) names_.push_back(name);
  }
}

std::vector<double> Fitter::residuals(const Calibration& constants) const {
  std::vector<double> all;
  all.reserve(observations_.size());
  for (const Observation& o : observations_) {
    all.push_back(std::log(predict_tokens_per_s_per_gpu(*o.setup, constants) / o.measured));
  }
  return all;
}

void Fitter::update_jacobian(const Calibration& constants, const std::vector<double>& at) {
  slope_.assign(names_.size(), {});
  in_parallel(names_.size(), [&](size_t i) {
    Calibration probe = constants;
    probe.constants[names_[i]] *= 1 + kProbe;
    std::vector<double> there = residuals(probe);
    bool moves = false;
    for (size_t r = 0; r < there.size(); ++r) {
      there[r] = (there[r] - at[r]) / std::log1p(kProbe);
      moves = moves || std::abs(there[r]) > 1e-9;
    }
    if (moves) slope_[i] = std::move(there);
  });
}

double Fitter::objective(const Calibration& constants, const std::vector<double>& at, const std::vector<bool>& left_out) const {
  double sum = 0;
  for (size_t r = 0; r < at.size(); ++r) {
    if (left_out.empty() || !left_out[r]) sum += observations_[r].weight * robust(at[r]) / (kNoise * kNoise);
  }
  for (const std::string& name : names_) {
    const double away = std::log(constants.at(name) / start_.at(name)) / pull_width(name);
    sum += away * away / 2;
  }
  return sum;
}

std::vector<double> Fitter::step(const Calibration& constants, const std::vector<double>& at, const std::vector<bool>& left_out,
                                 double damping) const {
  std::vector<double> by(names_.size(), 0);
  std::vector<size_t> active;
  for (size_t i = 0; i < names_.size(); ++i) {
    if (slope_[i].empty()) {
      by[i] = std::log(start_.at(names_[i]) / constants.at(names_[i]));  // nothing speaks about it
    } else {
      active.push_back(i);
    }
  }
  std::vector<double> weight(at.size(), 0);
  for (size_t r = 0; r < at.size(); ++r) {
    if (left_out.empty() || !left_out[r])
      weight[r] = observations_[r].weight * (1 / (1 + at[r] * at[r] / (kScale * kScale))) / (kNoise * kNoise);
  }
  // A constant that would pass its ceiling stays there, and the others are solved for again: else they would move for a step that is
  // not taken.
  for (int round = 0;; ++round) {
    const std::vector<double> x = solve_step(constants, at, weight, active, damping);
    std::vector<size_t> free;
    for (size_t i = 0; i < active.size(); ++i) {
      const size_t name = active[i];
      const double room = std::log(ceiling(names_[name]) / constants.at(names_[name]));
      by[name] = std::clamp(x[i], -kLargestStep, kLargestStep);
      if (by[name] > room + 1e-9) {
        by[name] = std::max(room, 0.0);
      } else {
        free.push_back(name);
      }
    }
    if (free.size() == active.size() || round == 3) return by;
    active = std::move(free);
  }
}

double Fitter::ceiling(const std::string& name) const { return std::max(start_.at(name), largest_value(name)); }

std::vector<double> Fitter::solve_step(const Calibration& constants, const std::vector<double>& at, const std::vector<double>& weight,
                                       const std::vector<size_t>& active, double damping) const {
  std::vector<std::vector<double>> a(active.size(), std::vector<double>(active.size(), 0));
  std::vector<double> b(active.size(), 0);
  for (size_t i = 0; i < active.size(); ++i) {
    const std::vector<double>& si = slope_[active[i]];
    for (size_t j = 0; j <= i; ++j) {
      const std::vector<double>& sj = slope_[active[j]];
      double sum = 0;
      for (size_t r = 0; r < at.size(); ++r) sum += weight[r] * si[r] * sj[r];
      a[i][j] = sum;
    }
    for (size_t r = 0; r < at.size(); ++r) b[i] -= weight[r] * si[r] * at[r];
    const double width = pull_width(names_[active[i]]), pull = 1 / (width * width);
    a[i][i] = a[i][i] * (1 + damping) + pull;
    b[i] -= pull * std::log(constants.at(names_[active[i]]) / start_.at(names_[active[i]]));
  }
  return solve(std::move(a), std::move(b));
}

Calibration Fitter::moved(const Calibration& constants, const std::vector<double>& by, double share) const {
  Calibration to = constants;
  for (size_t i = 0; i < names_.size(); ++i) {
    double& value = to.constants[names_[i]];
    value = std::min(value * std::exp(share * by[i]), ceiling(names_[i]));
  }
  return to;
}

FitState Fitter::fit(const Calibration& from, int iterations) {
  fitted_ = from.constants.empty() ? start_ : from;
  std::vector<double> at = residuals(fitted_);
  double best = objective(fitted_, at, {});
  for (int i = 0; i < iterations; ++i) {
    update_jacobian(fitted_, at);
    const std::vector<double> by = step(fitted_, at, {}, 0.05);
    bool better = false;
    for (double share = 1; share > 0.05 && !better; share /= 2) {
      const Calibration next = moved(fitted_, by, share);
      std::vector<double> there = residuals(next);
      const double value = objective(next, there, {});
      if (value >= best - 1e-6) continue;
      better = true;
      best = value;
      fitted_ = next;
      at = std::move(there);
    }
    if (!better) break;
  }
  update_jacobian(fitted_, at);
  FitState state{fitted_, 0};
  for (const double r : at) state.loss += robust(r) / static_cast<double>(std::max<size_t>(1, at.size()));
  return state;
}

Calibration Fitter::refit_without(const std::vector<bool>& left_out, int iterations) const {
  // A constant that only left-out rows speak about goes back to its start value: what those rows taught is forgotten.
  Calibration constants = fitted_;
  for (size_t i = 0; i < names_.size(); ++i) {
    double heard = 0, all = 0;
    for (size_t r = 0; r < slope_[i].size(); ++r) {
      all += std::abs(slope_[i][r]);
      if (!left_out[r]) heard += std::abs(slope_[i][r]);
    }
    if (heard < 1e-6 * std::max(all, 1e-12)) constants.constants[names_[i]] = start_.at(names_[i]);
  }
  std::vector<double> at = residuals(constants);
  double best = objective(constants, at, left_out);
  for (int i = 0; i < iterations; ++i) {
    const std::vector<double> by = step(constants, at, left_out, 0.05);
    bool better = false;
    for (double share = 1; share > 0.1 && !better; share /= 2) {
      const Calibration next = moved(constants, by, share);
      std::vector<double> there = residuals(next);
      const double value = objective(next, there, left_out);
      if (value >= best - 1e-6) continue;
      better = true;
      best = value;
      constants = next;
      at = std::move(there);
    }
    if (!better) break;
  }
  return constants;
}

}  // namespace distsetup::accuracy
