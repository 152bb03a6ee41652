// How sure a prediction is: intervals from the residuals of its own class of measured runs (framework, program, full or adapter
// training; presets/calibration/residuals.yaml, written by scripts/accuracy --update), and the three-way verdict that follows.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "planner/frameworks/memory.h"
#include "planner/frameworks/setup.h"
#include "planner/report/verdict.h"
#include "planner/time/calibration.h"

namespace distsetup {

enum class Predicted { kAllocated, kReserved, kDevice, kTokensPerSecond };
std::string_view name(Predicted quantity);  // allocated, reserved, device, tokens_per_s_per_gpu

// From the narrowest class to the widest; the first that has residuals counts. Of memory, a class is what makes the error physically
// different: {"fsdp2.torchtitan_compiled.full.data.expandable.plain.blackwell", ".. .plain", ".. .expandable", the same program under
// any framework, any program, "all"}. Of time: {"fsdp2.torchtitan_compiled.full.tensor", "fsdp2.torchtitan_compiled.full", ..}.
std::vector<std::string> residual_classes(const Setup& setup, Predicted quantity);

// The program of a training script that nobody has described: planned as a plain PyTorch transformer, as sure as runs of code bases
// were that no constant and no program was made for.
inline constexpr std::string_view kUnknownProgram = "unknown";

// The share of predicted bytes that can be wrong: all but parameters and optimizer states, which are counted exactly (bound_bytes). An
// error is one of activations, caches and buffers, so that it weighs less where states are most of the memory. 1 of tokens/s.
double uncertain_share(const Setup& setup, Predicted quantity, double predicted);

// What runs of other programs show says less about this one: intervals of memory from such a class are half again as wide.
double widening(std::string_view residual_class);

// Where the truth is with probability `level` (0.9, 0.99), given the prediction (bytes, or tokens/s per GPU). Without residuals of any
// class: +-10 % memory, +-20 % tokens/s at 0.9.
Interval interval_of(const Setup& setup, Predicted quantity, double predicted, double level, const Calibration& residuals);
Interval interval_of(const Setup& setup, Predicted quantity, double predicted, double level);  // the built-in residuals

// Where the bytes lie that a run needs of its GPU: from the lower 99 % end of what is allocated to the upper one of what the device
// holds.
Interval needed_bytes(const Setup& setup, const MemoryEstimate& memory, const Calibration& residuals);

// The verdict of a replay. Near the capacity the allocator returns cached blocks and goes on, so that what decides is
// what is allocated and how it lies: a run that is tight by its interval is replayed once more on a GPU smaller by the upper 99 % end
// of allocated bytes, and fits when it comes through. Not with sharded 4-bit weights.
bool is_replayed_when_tight(const Setup& setup);
Verdict replayed_verdict_of(const Setup& setup, const MemoryEstimate& memory, const Calibration& residuals);
Verdict replayed_verdict_of(const Setup& setup, const MemoryEstimate& memory);

}  // namespace distsetup
