// See load.h. How a checkpoint's boxes are found and read is in weights/stored_checkpoint.cc.
#include "runtime/checkpoint/load.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "plan/update_layout.h"
#include "weights/stored_checkpoint.h"

namespace distsetup {

Result<CheckpointMetadata> verify_checkpoint(const std::string& directory, int64_t step, int part, int parts) {
  const std::string path = checkpoint_path(directory, step);
  Result<CheckpointMetadata> metadata = verify_stored(path, part, parts);
  if (metadata.ok() && metadata->step != step)
    return error(code::kCheckpoint, {path}, fmt::format("'{}' says step {}, expected {}", path, metadata->step, step));
  return metadata;
}

namespace {

enum class Wanted { kParameters, kAllStates };

Diagnostics check_states(const std::string& checkpoint, const std::vector<std::string>& found,
                         const std::vector<std::string>& expected) {
  if (found == expected) return {};
  return {error(code::kCheckpoint, {checkpoint},
                fmt::format("'{}' is of the optimizer {}, this run's is {}: they keep other states", checkpoint,
                            optimizers_with(found), optimizers_with(expected)),
                "resume with the optimizer that it was written with, or export it and start from its weights")};
}

Diagnostics load_pieces(StoredCheckpoint& stored, const ShardState& state, const StateValues& to) {
  std::fill(to.values.begin(), to.values.end(), 0.0f);
  for (const StatePiece& piece : state_pieces(*state.layout, to.name, to.scope, state.at)) {
    CHECK(piece.box.shard_offset + piece.box.numel() <= static_cast<int64_t>(to.values.size()), "{}", piece.name());
    Diagnostics found = stored.read(piece.parameter, piece.state, piece.box, to.values.data() + piece.box.shard_offset);
    if (has_error(found)) return found;
  }
  return {};
}

Diagnostics load_states(const std::string& checkpoint, const ShardState& state, Wanted wanted) {
  Result<StoredCheckpoint> stored = StoredCheckpoint::open(checkpoint);
  if (!stored.ok()) return stored.diagnostics;
  if (Diagnostics found = stored->check_model(state.layout->geometry, state.layout->tuning); has_error(found)) return found;
  std::vector<std::string> names = {""};
  std::vector<std::span<float>> states = {state.master};
  std::vector<StateValues> others;  // that are no value for each element
  for (const StateValues& s : state.states) {
    if (wanted == Wanted::kParameters) break;
    if (s.scope != StateScope::kElements) {
      others.push_back(s);
      continue;
    }
    names.push_back("." + std::string(s.name));
    states.push_back(s.values);
  }
  if (wanted == Wanted::kAllStates)
    if (Diagnostics found = check_states(checkpoint, stored->index().states, stored_names(state.states)); has_error(found))
      return found;
  for (const StateValues& s : others)
    if (Diagnostics found = load_pieces(*stored, state, s); has_error(found)) return found;
  for (const std::span<float>& values : states) std::fill(values.begin(), values.end(), 0.0f);  // padding stays zero
  for (const UnitLayout& unit : state.layout->units) {
    if (unit.is_frozen) continue;
    for (const Parameter& parameter : unit.parameters) {
      for (const Box& box : boxes_of(*state.layout, unit, parameter, state.at)) {
        for (size_t s = 0; s < states.size(); ++s) {
          CHECK(box.shard_offset + box.numel() <= static_cast<int64_t>(states[s].size()), "{}", parameter.name);
          Diagnostics found = stored->read(parameter.name, names[s], box, states[s].data() + box.shard_offset);
          if (has_error(found)) return found;
        }
      }
    }
  }
  return {};
}

}  // namespace

Diagnostics load_shard(const std::string& directory, int64_t step, const ShardState& state) {
  return load_states(checkpoint_path(directory, step), state, Wanted::kAllStates);
}

Diagnostics load_parameters(const std::string& checkpoint, const ShardState& state) {
  return load_states(checkpoint, state, Wanted::kParameters);
}

}  // namespace distsetup
