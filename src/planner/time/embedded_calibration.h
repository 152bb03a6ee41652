// The constants of presets/calibration, as a table that the build made of those files (cmake/calibration_table.cc): every command that
// plans needs all of them, and reading them as YAML takes longer than the plan.
#pragma once
#include <span>
#include <string_view>
#include <utility>

#include "planner/time/calibration.h"

namespace distsetup {

// Name and value, sorted by name. Generated.
std::span<const std::pair<std::string_view, double>> calibration_table();

const Calibration& embedded_calibration();

}  // namespace distsetup
