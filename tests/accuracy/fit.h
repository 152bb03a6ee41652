// Refits the constants of a calibration to measured tokens/s. Least squares on log(predicted / measured) in the logarithms of the
// constants, with a numeric Jacobian (Gauss-Newton with halved steps), Cauchy weights against outliers, and a pull toward start values
// that come from datasheets and papers: a constant that no row speaks about stays where it started. Deterministic.
// Leaves out: which constant belongs to what. The model that reads them says so by moving or not moving a row.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "planner/frameworks/setup.h"
#include "planner/time/calibration.h"

namespace distsetup::accuracy {

struct Observation {
  const Setup* setup = nullptr;
  double measured = 0;  // tokens/s per GPU
  double weight = 1;
};

struct FitState {
  Calibration constants;
  double loss = 0;  // mean Cauchy loss of the observations, without the pull
};

class Fitter {
 public:
  Fitter(std::vector<Observation> observations, Calibration start);
  // From `from` (the start values when empty), at most `iterations` steps.
  FitState fit(const Calibration& from, int iterations);
  // Again without the observations marked, with the Jacobian of the last fit(): the held-out columns.
  Calibration refit_without(const std::vector<bool>& left_out, int iterations) const;

 private:
  std::vector<double> residuals(const Calibration& constants) const;
  void update_jacobian(const Calibration& constants, const std::vector<double>& residuals);
  std::vector<double> step(const Calibration& constants, const std::vector<double>& residuals, const std::vector<bool>& left_out,
                           double damping) const;
  std::vector<double> solve_step(const Calibration& constants, const std::vector<double>& residuals, const std::vector<double>& weight,
                                 const std::vector<size_t>& active, double damping) const;
  double ceiling(const std::string& name) const;  // shares stay below 1
  double objective(const Calibration& constants, const std::vector<double>& residuals, const std::vector<bool>& left_out) const;
  Calibration moved(const Calibration& constants, const std::vector<double>& by, double share) const;

  std::vector<Observation> observations_;
  Calibration start_;
  std::vector<std::string> names_;          // of positive constants
  std::vector<std::vector<double>> slope_;  // [name][observation]: d log(predicted) / d log(constant)
  Calibration fitted_;
};

// Runs `work(i)` for i below n on all cores; the results must go to places of their own.
void in_parallel(size_t n, const std::function<void(size_t)>& work);

}  // namespace distsetup::accuracy
