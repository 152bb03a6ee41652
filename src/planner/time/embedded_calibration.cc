#include "planner/time/embedded_calibration.h"

namespace distsetup {

const Calibration& embedded_calibration() {
  static const Calibration all = [] {
    Calibration calibration;
    for (const auto& [name, value] : calibration_table()) calibration.constants.emplace_hint(calibration.constants.end(), name, value);
    return calibration;
  }();
  return all;
}

}  // namespace distsetup
