// How sure a prediction is: intervals from the residuals of its own class of measured runs (framework, program, full or adapter
// training; presets/calibration/residuals.yaml, written by scripts/accuracy --update).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "planner/frameworks/setup.h"
#include "planner/report/distance.h"
#include "planner/report/verdict.h"
#include "planner/time/calibration.h"

namespace distsetup {

// From the narrowest class to the widest; the first that has residuals counts. Of memory, a class is what makes the error physically
// different: {"fsdp2.torchtitan_compiled.full.data.expandable.plain.blackwell", ".. .plain", ".. .expandable", the same program under
// any framework, any program, "all"}. Of time: {"fsdp2.torchtitan_compiled.full.tensor", "fsdp2.torchtitan_compiled.full", ..}, with
// "experts" in the place of the mesh for models that have them.
std::vector<std::string> residual_classes(const Setup& setup, Predicted quantity);

// The program of a training script that nobody has described: planned as a plain PyTorch transformer, as sure as runs of code bases
// were that no constant and no program was made for.
inline constexpr std::string_view kUnknownProgram = "unknown";

// The share of predicted bytes that can be wrong: all but parameters and optimizer states, which are counted exactly (bound_bytes). An
// error is one of activations, caches and buffers, so that it weighs less where states are most of the memory. 1 of tokens/s.
double uncertain_share(const Setup& setup, Predicted quantity, double predicted);

// What runs of other programs show says less about this one: intervals of memory from such a class are half again as wide.
double widening(std::string_view residual_class);

// Whether something of the setup is in no measured run: its interval is that of unseen code (distance.h), whose tails are heavy.
bool is_unseen(const Setup& setup, Predicted quantity, const Calibration& residuals);

// Where the truth is with probability `level` (0.9, 0.99), given the prediction (bytes, or tokens/s per GPU), which is inside. Without
// residuals of any class: +-10 % memory, +-20 % tokens/s at 0.9.
Interval interval_of(const Setup& setup, Predicted quantity, double predicted, double level, const Calibration& residuals);
Interval interval_of(const Setup& setup, Predicted quantity, double predicted, double level);  // the built-in residuals

}  // namespace distsetup
