// What each optimizer keeps of a trained element beside the fp32 master and its gradient: one row per optimizer. Buffers of a rank,
// bytes, checkpoints and the seconds of an update follow from it. Arithmetic: runtime/optim.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/dtype.h"
#include "plan/plan.h"

namespace distsetup {

// Elements of the flat shard that share a scale, where a state is held in 8 bits.
inline constexpr int64_t kScaleBlock = 256;

// Of what a state has a value.
enum class StateScope {
  kElements,  // each element of the flat shard; its tensors in checkpoints have its name
  kMomenta,   // the same, where checkpoints have momentum_buffer of matrices and exp_avg of the rest (Muon)
  kRest,      // each element of a parameter that Muon leaves to AdamW
  kFactors,   // each row and each column of a matrix, each element of a vector (Adafactor); whole on every rank
};

// What a rank has of each scope: for how many elements it keeps states (update_layout.h).
struct StateSizes {
  int64_t elements = 0, rest = 0, factors = 0;
  StateSizes(int64_t all = 0) : elements(all) {}  // NOLINT(google-explicit-constructor): of most optimizers nothing else is asked
  StateSizes(int64_t all, int64_t left_to_adamw, int64_t of_factors) : elements(all), rest(left_to_adamw), factors(of_factors) {}
  int64_t of(StateScope scope) const { return scope == StateScope::kRest ? rest : scope == StateScope::kFactors ? factors : elements; }
};

struct OptimizerState {
  std::string_view name;      // of its run buffer ("exp_avg"), and behind a dot of its tensors in checkpoints
  Dtype dtype = Dtype::kF32;  // kF32, or kInt8: codes, and beside them an fp32 scale for each block of kScaleBlock elements
  bool is_signed = true;      // of codes: whether values below zero occur
  StateScope scope = StateScope::kElements;
};
// A state of a rank, as checkpoints hold it.
struct StateValues {
  std::string_view name;
  std::span<float> values;
  StateScope scope = StateScope::kElements;
};
struct OptimizerBuffer {
  std::string name;
  int64_t numel = 0;
  Dtype dtype = Dtype::kF32;
};

std::string native_optimizers();  // what the bundled trainer runs, in words: "adamw, sgd"
bool is_native_optimizer(std::string_view name);
// Is all that it keeps a value for each element? Adafactor and Muon see whole matrices.
inline bool keeps_elements(std::string_view optimizer) { return optimizer != kAdafactor && optimizer != kMuon; }

std::vector<OptimizerState> optimizer_states(const TrainPlan& train);
std::string scale_buffer(const OptimizerState& state);  // the name of the buffer beside codes
// The buffers of a rank, in order, scales behind their codes.
std::vector<OptimizerBuffer> optimizer_buffers(const TrainPlan& train, const StateSizes& sizes);
int64_t optimizer_bytes(const TrainPlan& train, const StateSizes& sizes);  // of these
// "AdamW moments 8": bytes of a parameter in words; empty where nothing is kept.
std::string optimizer_words(const TrainPlan& train);
// An update reads and writes the master and all states that each element has, and reads the gradient.
double update_bytes_per_parameter(const TrainPlan& train);

// What checkpoints hold of parameters, as suffixes of their names: "" for the master, ".exp_avg", … All of it is fp32 there.
std::vector<std::string> stored_states(const TrainPlan& train);
std::vector<std::string> stored_names(const std::vector<StateValues>& states);  // the same of a rank's states
int64_t stored_bytes(const TrainPlan& train, const StateSizes& sizes);
// Optimizers that keep exactly these states, in words: "adamw or adamw_8bit".
std::string optimizers_with(const std::vector<std::string>& states);

}  // namespace distsetup
