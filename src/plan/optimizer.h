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

struct OptimizerState {
  std::string_view name;      // of its run buffer ("exp_avg"), and behind a dot of its tensors in checkpoints
  Dtype dtype = Dtype::kF32;  // kF32, or kInt8: codes, and beside them an fp32 scale for each block of kScaleBlock elements
  bool is_signed = true;      // of codes: whether values below zero occur
};
// A value of each element of a rank's flat shard, as checkpoints hold it.
struct StateValues {
  std::string_view name;
  std::span<float> values;
};
struct OptimizerBuffer {
  std::string name;
  int64_t numel = 0;
  Dtype dtype = Dtype::kF32;
};

std::string native_optimizers();  // what the bundled trainer runs, in words: "adamw, sgd"
bool is_native_optimizer(std::string_view name);

std::vector<OptimizerState> optimizer_states(const TrainPlan& train);
std::string scale_buffer(const OptimizerState& state);  // the name of the buffer beside codes
// The buffers of a flat shard of so many elements, in order, scales behind their codes.
std::vector<OptimizerBuffer> optimizer_buffers(const TrainPlan& train, int64_t numel);
int64_t optimizer_bytes(const TrainPlan& train, int64_t numel);  // of these
// "AdamW moments 8": bytes of a parameter in words; empty where nothing is kept.
std::string optimizer_words(const TrainPlan& train);
// An update reads and writes the master and all states, and reads the gradient.
double update_bytes_per_parameter(const TrainPlan& train);

// What checkpoints hold of each parameter, as suffixes of its name: "" for the master, ".exp_avg", … All of it is fp32 there.
std::vector<std::string> stored_states(const TrainPlan& train);
inline int64_t stored_bytes(const TrainPlan& train, int64_t numel) {
  return 4 * static_cast<int64_t>(1 + optimizer_states(train).size()) * numel;
}
// Optimizers that keep exactly these states, in words: "adamw or adamw_8bit".
std::string optimizers_with(const std::vector<std::string>& states);

}  // namespace distsetup
