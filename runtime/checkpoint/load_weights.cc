#include "runtime/checkpoint/load_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "weights/match.h"
#include "weights/read_box.h"

namespace distsetup {
namespace {

// A head that is published beside the embedding it is tied to has the same values: in a folder where it has not, one of the two is
// wrong, and nobody knows which. Compared in pieces, as they are read.
Diagnostics compare_head(BoxReader& reader, const WeightsFolder& folder, const MatchedWeights& matched, const Parameter& embedding,
                         const Box& box, const float* values) {
  const int64_t width = box.size.size() > 1 ? box.size[1] : 1;
  const int64_t step = std::max<int64_t>(1, kPieceBytes / static_cast<int64_t>(sizeof(float)) / width);
  std::vector<float> head;
  for (int64_t row = 0; row < box.size[0]; row += step) {
    Box piece = box;
    piece.start[0] += row;
    piece.size[0] = std::min(step, box.size[0] - row);
    head.resize(static_cast<size_t>(piece.numel()));
    if (Diagnostics said = reader.read(embedding, *matched.tied_head, piece, head.data()); has_error(said)) return said;
    if (std::memcmp(head.data(), values + row * width, head.size() * sizeof(float)) == 0) continue;
    return {error(code::kWeights, {folder.plan.directory},
                  fmt::format("'{}' and '{}' differ in '{}', and config.json says that they are tied", matched.tied_head->entry.name,
                              matched.tensors.at(embedding.name)->entry.name, folder.plan.directory),
                  "if the head has values of its own, set tie_word_embeddings to false in config.json; else save the model again")};
  }
  return {};
}

}  // namespace

Result<WeightsFolder> open_weights(const Plan& plan, const std::string& plan_directory) {
  const std::string directory = (std::filesystem::path(plan_directory) / plan.weights.directory).lexically_normal().string();
  Result<WeightsFolder> folder = read_planned_weights(plan.weights, directory);
  if (!folder.ok()) return folder;
  const Result<MatchedWeights> matched = match_weights(*folder, plan.model);
  if (!matched.ok()) return matched.diagnostics;
  return folder;
}

Diagnostics load_weights(const WeightsFolder& folder, const ShardState& state) {
  const Geometry& geometry = state.layout->geometry;
  const Result<MatchedWeights> matched = match_weights(folder, geometry);
  if (!matched.ok()) return matched.diagnostics;
  for (const std::span<float>& values : {state.master, state.moment1, state.moment2}) std::fill(values.begin(), values.end(), 0.0f);
  BoxReader reader(folder, geometry);
  for (const UnitLayout& unit : state.layout->units) {
    for (const Parameter& parameter : unit.parameters) {
      for (const Box& box : boxes_of(*state.layout, unit, parameter, state.at)) {
        CHECK(box.shard_offset + box.numel() <= static_cast<int64_t>(state.master.size()), "{}", parameter.name);
        float* const values = state.master.data() + box.shard_offset;
        if (Diagnostics said = reader.read(parameter, *matched->tensors.at(parameter.name), box, values); has_error(said)) return said;
        if (matched->tied_head == nullptr || parameter.name != matched->tied_to) continue;
        if (Diagnostics said = compare_head(reader, folder, *matched, parameter, box, values); has_error(said)) return said;
      }
    }
  }
  return {};
}

}  // namespace distsetup
