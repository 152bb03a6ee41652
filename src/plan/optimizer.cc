#include "plan/optimizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"

namespace distsetup {
namespace {

struct OptimizerRow {
  std::string_view name, words;
  std::vector<OptimizerState> states;
  bool needs_momentum = false;  // without momentum nothing is kept
};

// Names of states are those of the optimizers' usual implementations: torch.optim's AdamW and SGD, the Lion of its authors.
const std::vector<OptimizerRow>& rows() {
  static const std::vector<OptimizerRow> kRows = {
      {"adamw", "AdamW moments", {{"exp_avg"}, {"exp_avg_sq"}}},
      {"sgd", "SGD momentum", {{"momentum_buffer"}}, true},
      {"lion", "Lion momentum", {{"exp_avg"}}},
      {"adamw_8bit", "8-bit AdamW moments", {{"exp_avg", Dtype::kInt8}, {"exp_avg_sq", Dtype::kInt8, false}}},
      {kAdafactor, "Adafactor means", {{"factors", Dtype::kF32, false, StateScope::kFactors}}},
      {kMuon,
       "Muon momentum",
       {{"momentum_buffer", Dtype::kF32, true, StateScope::kMomenta}, {"exp_avg_sq", Dtype::kF32, false, StateScope::kRest}}},
  };
  return kRows;
}

const OptimizerRow* find_row(std::string_view name) {
  const auto it = std::find_if(rows().begin(), rows().end(), [name](const OptimizerRow& row) { return row.name == name; });
  return it == rows().end() ? nullptr : &*it;
}

void add_suffixes(std::string_view name, StateScope scope, std::vector<std::string>& out) {
  if (scope == StateScope::kFactors) return void(out.insert(out.end(), {".row_var", ".col_var", ".variance"}));
  out.push_back("." + std::string(name));
  if (scope == StateScope::kMomenta) out.emplace_back(".exp_avg");
}

std::vector<std::string> suffixes(const std::vector<OptimizerState>& states) {
  std::vector<std::string> out = {""};
  for (const OptimizerState& state : states) add_suffixes(state.name, state.scope, out);
  return out;
}

const std::vector<OptimizerState>& states_of(const TrainPlan& train) {
  static const std::vector<OptimizerState> kNone;
  const OptimizerRow* row = find_row(train.optimizer);
  return row == nullptr || (row->needs_momentum && train.momentum == 0) ? kNone : row->states;
}

// visit(state, its elements, elements of the fp32 scales beside them: 0 where it has none), of each state of a rank.
template <typename Visit>
void for_each_state(const TrainPlan& train, const StateSizes& sizes, Visit visit) {
  for (const OptimizerState& state : states_of(train)) {
    const int64_t numel = sizes.of(state.scope);
    visit(state, numel, state.dtype == Dtype::kF32 ? 0 : (numel + kScaleBlock - 1) / kScaleBlock);
  }
}

double bytes_per_element(const TrainPlan& train) {
  return static_cast<double>(optimizer_bytes(train, kScaleBlock)) / static_cast<double>(kScaleBlock);
}

}  // namespace

std::string native_optimizers() {
  std::vector<std::string_view> names;
  for (const OptimizerRow& row : rows()) names.push_back(row.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

bool is_native_optimizer(std::string_view name) { return find_row(name) != nullptr; }

std::vector<OptimizerState> optimizer_states(const TrainPlan& train) { return states_of(train); }

std::string scale_buffer(const OptimizerState& state) { return fmt::format("{}_scales", state.name); }

std::vector<OptimizerBuffer> optimizer_buffers(const TrainPlan& train, const StateSizes& sizes) {
  std::vector<OptimizerBuffer> out;
  for_each_state(train, sizes, [&](const OptimizerState& state, int64_t numel, int64_t scales) {
    out.push_back({std::string(state.name), numel, state.dtype});
    if (state.dtype != Dtype::kF32) out.push_back({scale_buffer(state), scales, Dtype::kF32});
  });
  return out;
}

int64_t optimizer_bytes(const TrainPlan& train, const StateSizes& sizes) {
  int64_t bytes = 0;
  for_each_state(train, sizes, [&](const OptimizerState& state, int64_t numel, int64_t scales) {
    bytes += numel * size_bytes(state.dtype) + scales * size_bytes(Dtype::kF32);
  });
  return bytes;
}

std::string optimizer_words(const TrainPlan& train) {
  const double bytes = bytes_per_element(train);
  return bytes == 0 ? "" : fmt::format("{} {:.4g}", find_row(train.optimizer)->words, bytes);
}

double update_bytes_per_parameter(const TrainPlan& train) {
  constexpr double kMasterAndGradient = 12;
  const bool has_moved_before = train.optimizer == kMuon || train.optimizer == kAdafactor;  // momentum and means: update_writer.h
  return kMasterAndGradient + (has_moved_before ? 0 : 2 * bytes_per_element(train));
}

std::vector<std::string> stored_states(const TrainPlan& train) { return suffixes(optimizer_states(train)); }

std::vector<std::string> stored_names(const std::vector<StateValues>& states) {
  std::vector<std::string> out = {""};
  for (const StateValues& state : states) add_suffixes(state.name, state.scope, out);
  return out;
}

int64_t stored_bytes(const TrainPlan& train, const StateSizes& sizes) {
  int64_t numel = sizes.elements;
  for (const OptimizerState& state : optimizer_states(train)) numel += sizes.of(state.scope);
  return 4 * numel;
}

std::string optimizers_with(const std::vector<std::string>& states) {
  std::vector<std::string> names;
  for (const OptimizerRow& row : rows()) {
    const bool has_none = row.needs_momentum && states.size() == 1;
    if (!has_none && suffixes(row.states) != states) continue;
    names.push_back(std::string(row.name) + (!row.needs_momentum ? "" : has_none ? " without momentum" : " with momentum"));
  }
  return names.empty() ? "another program" : fmt::format("{}", fmt::join(names, " or "));
}

}  // namespace distsetup
