// Constants that come out of measured runs: each belongs to a GPU, an operation or a generation of a framework, never to one run.
// presets/calibration/*.yaml hold them with source and date; scripts/fit writes them, the accuracy scoreboard refits them without a
// block of rows (or without a model size) to score on what the fit has not seen.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "base/diagnostic.h"
#include "base/value.h"

namespace distsetup {

// "gemm.a100.efficiency" -> 0.70. Flat, so that a fit can move any of them.
struct Calibration {
  std::map<std::string, double, std::less<>> constants;
  double at(std::string_view name) const;  // CHECKs that it exists
  double get(std::string_view name, double fallback) const;
};

Result<Calibration> calibration_from_value(const Value& value);
// Text of a calibration file: constants in groups, sorted, with the given comment lines on top.
std::string calibration_text(const Calibration& calibration, std::string_view comment);

}  // namespace distsetup
