#include "runtime/checkpoint/load_weights.h"

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "plan/frozen.h"
#include "weights/adapter_folder.h"
#include "weights/frozen_source.h"
#include "weights/match.h"
#include "weights/read_box.h"

namespace distsetup {

Result<WeightsFolder> open_weights(const Plan& plan, const std::string& plan_directory) {
  const std::string directory = (std::filesystem::path(plan_directory) / plan.weights.directory).lexically_normal().string();
  Result<WeightsFolder> folder = read_planned_weights(plan.weights, directory);
  if (!folder.ok()) return folder;
  const Result<MatchedWeights> matched = match_weights(*folder, plan.model);
  if (!matched.ok()) return matched.diagnostics;
  return folder;
}

Result<WeightsFolder> open_adapter(const Plan& plan, const std::string& plan_directory) {
  const std::string directory = (std::filesystem::path(plan_directory) / plan.adapter.directory).lexically_normal().string();
  return read_planned_adapter(plan.adapter, directory);
}

Diagnostics load_weights(const WeightsFolder& folder, const ShardState& state) {
  const Geometry& geometry = state.layout->geometry;
  const Result<MatchedWeights> matched = match_weights(folder, geometry);
  if (!matched.ok()) return matched.diagnostics;
  const bool is_whole = state.layout->tuning.trains_all();
  if (is_whole) std::fill(state.master.begin(), state.master.end(), 0.0f);
  for (const StateValues& s : state.states) std::fill(s.values.begin(), s.values.end(), 0.0f);
  BoxReader reader(folder, geometry);
  for (const UnitLayout& unit : state.layout->units) {
    if (unit.is_frozen) continue;
    for (const Parameter& parameter : unit.parameters) {
      if (is_adapter_name(parameter.name)) continue;
      for (const Box& box : boxes_of(*state.layout, unit, parameter, state.at)) {
        CHECK(box.shard_offset + box.numel() <= static_cast<int64_t>(state.master.size()), "{}", parameter.name);
        float* const values = state.master.data() + box.shard_offset;
        if (Diagnostics said = reader.read(parameter, *matched->tensors.at(parameter.name), box, values); has_error(said)) return said;
        if (matched->tied_head == nullptr || parameter.name != matched->tied_to) continue;
        if (Diagnostics said = compare_tied_head(reader, folder, *matched, parameter, box, values); has_error(said)) return said;
      }
    }
  }
  return {};
}

Diagnostics load_adapter(const WeightsFolder& adapter, const ShardState& state) {
  BoxReader reader(adapter, state.layout->geometry);
  for (const UnitLayout& unit : state.layout->units) {
    for (const Parameter& parameter : unit.parameters) {
      if (unit.is_frozen || !is_adapter_name(parameter.name)) continue;
      const auto tensor = adapter.tensors.find(peft_name(parameter.name));
      CHECK(tensor != adapter.tensors.end(), "{}", parameter.name);  // the plan was made with this header
      for (const Box& box : boxes_of(*state.layout, unit, parameter, state.at)) {
        Diagnostics said = reader.read(parameter, tensor->second, box, state.master.data() + box.shard_offset);
        if (has_error(said)) return said;
      }
    }
  }
  return {};
}

}  // namespace distsetup
