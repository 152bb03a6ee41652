#include "weights/frozen_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/splitmix.h"

namespace distsetup {

Diagnostics compare_tied_head(BoxReader& reader, const WeightsFolder& folder, const MatchedWeights& matched,
                              const Parameter& embedding, const Box& box, const float* values) {
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

Diagnostics load_frozen(const WeightsFolder& folder, const Layout& layout, const Coordinates& at, const StoreFrozen& store) {
  const Result<MatchedWeights> matched = match_weights(folder, layout.geometry);
  if (!matched.ok()) return matched.diagnostics;
  BoxReader reader(folder, layout.geometry);
  std::vector<float> values;
  const auto load = [&](const Parameter& parameter, const Box& piece) -> Diagnostics {
    values.resize(static_cast<size_t>(piece.numel()));
    Diagnostics said = reader.read(parameter, *matched->tensors.at(parameter.name), piece, values.data());
    if (has_error(said)) return said;
    store(piece.shard_offset, values);
    if (matched->tied_head == nullptr || parameter.name != matched->tied_to) return {};
    return compare_tied_head(reader, folder, *matched, parameter, piece, values.data());
  };
  for (const UnitLayout& unit : layout.units) {
    for (const Parameter& parameter : unit.parameters) {
      if (!unit.is_frozen) continue;
      for (const Box& box : boxes_of(layout, unit, parameter, at)) {
        const int64_t width = box.size.size() > 1 ? box.size[1] : 1;
        const int64_t step = std::max<int64_t>(1, kPieceBytes / static_cast<int64_t>(sizeof(float)) / width);
        for (int64_t row = 0; row < box.size[0]; row += step) {
          Box piece = box;
          piece.start[0] += row;
          piece.size[0] = std::min(step, box.size[0] - row);
          piece.shard_offset += row * width;
          if (Diagnostics said = load(parameter, piece); has_error(said)) return said;
        }
      }
    }
  }
  return {};
}

FrozenDigest::Place FrozenDigest::place_of(int64_t offset) const {
  for (const UnitLayout& unit : layout_.units) {
    if (!unit.is_frozen || offset < unit.shard_offset || offset >= unit.shard_offset + unit.shard_numel) continue;
    const int64_t at = offset - unit.shard_offset + owned_range(unit, shard_index(layout_, unit, at_)).begin;
    for (const Parameter& p : unit.parameters)
      if (at >= p.offset && at < p.offset + p.numel) return {&unit, &p, at - p.offset};
  }
  return {};
}

void FrozenDigest::add(int64_t offset, std::span<const float> values) {
  const Place place = place_of(offset);
  CHECK(place.parameter != nullptr && place.element + static_cast<int64_t>(values.size()) <= place.parameter->numel, "{} + {}", offset,
        values.size());
  const bool is_first_replica = at_.dp_replicate == 0 && (place.unit->shard_ranks > 1 || (at_.dp_shard == 0 && at_.cp == 0)) &&
                                (place.parameter->split_dim >= 0 || at_.tp == 0);
  if (!is_first_replica) return;
  uint64_t name = 0;
  for (const char c : place.parameter->name) name = splitmix(name + static_cast<uint8_t>(c) + kSplitMixStep);
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t element = full_element(*place.parameter, at_.tp, place.element + static_cast<int64_t>(i));
    if (element < 0) continue;
    sum_ += splitmix(name + static_cast<uint64_t>(element) * kSplitMixStep + std::bit_cast<uint32_t>(values[i]));
  }
}

std::string frozen_digest_text(uint64_t sum) { return fmt::format("{:016x}", sum); }

}  // namespace distsetup
