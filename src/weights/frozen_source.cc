#include "weights/frozen_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/splitmix.h"
#include "plan/frozen.h"
#include "weights/nf4.h"

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

namespace {

// This rank's boxes of what is frozen and no record, in pieces that fit into kPieceBytes.
Diagnostics each_frozen_piece(const Layout& layout, const Coordinates& at, bool of_adapters,
                              const std::function<Diagnostics(const Parameter&, const Box&)>& load) {
  for (const UnitLayout& unit : layout.units) {
    for (const Parameter& parameter : unit.parameters) {
      if (!unit.is_frozen || unit.is_quantized || is_adapter_name(parameter.name) != of_adapters) continue;
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

}  // namespace

Diagnostics load_adapter_copies(const WeightsFolder& adapter, const Layout& layout, const Coordinates& at, const StoreFrozen& store) {
  BoxReader reader(adapter, layout.geometry);
  std::vector<float> values;
  return each_frozen_piece(layout, at, true, [&](const Parameter& parameter, const Box& piece) {
    values.resize(static_cast<size_t>(piece.numel()));
    const auto tensor = adapter.tensors.find(peft_name(parameter.name));
    CHECK(tensor != adapter.tensors.end(), "{}", parameter.name);  // the plan was made with this header
    Diagnostics said = reader.read(parameter, tensor->second, piece, values.data());
    if (!has_error(said)) store.values(piece.shard_offset, values);
    return said;
  });
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
    store.values(piece.shard_offset, values);
    if (matched->tied_head == nullptr || parameter.name != matched->tied_to) return {};
    return compare_tied_head(reader, folder, *matched, parameter, piece, values.data());
  };
  if (Diagnostics said = each_frozen_piece(layout, at, false, load); has_error(said)) return said;
  const auto rows_of = [&](const Parameter& parameter) -> FillRows {
    return [&](int64_t first, int64_t rows, float* to) {
      const Box box = {{first, 0}, {rows, parameter.full_shape[1]}, 0};
      return reader.read(parameter, *matched->tensors.at(parameter.name), box, to);
    };
  };
  return store_records(layout, at, rows_of, store);
}

Result<std::vector<uint8_t>> make_record(const Parameter& parameter, const FillRows& fill) {
  const int64_t num_rows = parameter.full_shape[0], width = parameter.full_shape[1];
  const int64_t step = std::max<int64_t>(1, kPieceBytes / static_cast<int64_t>(sizeof(float)) / width);
  Nf4Writer writer(num_rows * width);
  std::vector<float> values;
  for (int64_t row = 0; row < num_rows; row += step) {
    const int64_t rows = std::min(step, num_rows - row);
    values.resize(static_cast<size_t>(rows * width));
    if (Diagnostics said = fill(row, rows, values.data()); has_error(said)) return said;
    writer.add(values);
  }
  return writer.finish();
}

namespace {

// Which blocks of the whole a rank has, as its record says it.
std::array<int32_t, 3> nf4_blocks_of(const Parameter& p, int tp_index) {
  const bool has_columns = p.split_dim == 1;
  const auto blocks = [](int64_t weights) {
    CHECK(weights % kNf4Block == 0, "{} weights", weights);
    return static_cast<int32_t>(weights / kNf4Block);
  };
  return {blocks(full_element(p, tp_index, 0)), has_columns ? blocks(p.shape[1]) : 1, has_columns ? blocks(p.full_shape[1]) : 1};
}

}  // namespace

Diagnostics store_records(const Layout& layout, const Coordinates& at, const std::function<FillRows(const Parameter&)>& rows_of,
                          const StoreFrozen& store) {
  for (const UnitLayout& unit : layout.units) {
    for (const Parameter& parameter : unit.parameters) {
      if (!unit.is_quantized) continue;
      const OwnedBytes own = owned_bytes(layout, unit, parameter, at);
      if (own.range.size() == 0) continue;
      Result<std::vector<uint8_t>> record = make_record(parameter, rows_of(parameter));
      if (!record.ok()) return record.diagnostics;
      if (const Nf4Record of = record_of(parameter); of.part_at >= 0)
        *record = nf4_part(*record, nf4_record(full_numel(parameter)), of, nf4_blocks_of(parameter, at.tp));
      store.bytes(own.shard_offset,
                  std::span(*record).subspan(static_cast<size_t>(own.range.begin), static_cast<size_t>(own.range.size())));
    }
  }
  return {};
}

FrozenDigest::Place FrozenDigest::place_of(int64_t offset, bool is_quantized) const {
  for (const UnitLayout& unit : layout_.units) {
    if (!unit.is_frozen || unit.is_quantized != is_quantized || offset < unit.shard_offset ||
        offset >= unit.shard_offset + unit.shard_numel)
      continue;
    const int64_t at = offset - unit.shard_offset + owned_range(unit, shard_index(layout_, unit, at_)).begin;
    for (const Parameter& p : unit.parameters) {
      const int64_t size = is_quantized ? record_of(p).num_bytes : p.numel;
      if (p.expert_place >= 0 && p.expert_place != group_index(layout_.mesh, Group::kEp, at_)) continue;
      if (at >= p.offset && at < p.offset + size) return {&unit, &p, at - p.offset};
    }
  }
  return {};
}

bool FrozenDigest::is_counted(const Place& place) const {
  if (place.unit->is_expert) {  // tp does not cut their matrices: its ranks split or copy them as others do
    const bool is_first = group_index(layout_.mesh, expert_group(layout_.mesh, layout_.sharding), at_) == 0;
    return at_.dp_replicate == 0 && (place.unit->shard_ranks > 1 || is_first);
  }
  return at_.dp_replicate == 0 && !place.unit->is_copy && (place.unit->shard_ranks > 1 || (at_.dp_shard == 0 && at_.cp == 0)) &&
         (place.parameter->split_dim >= 0 || at_.tp == 0);
}

namespace {

uint64_t number_of(const std::string& parameter) {
  uint64_t number = 0;
  for (const char c : parameter) number = splitmix(number + static_cast<uint8_t>(c) + kSplitMixStep);
  return number;
}

}  // namespace

void FrozenDigest::add_bytes(int64_t offset, std::span<const uint8_t> bytes) {
  const Place place = place_of(offset, true);
  CHECK(place.parameter != nullptr, "{}", offset);
  if (!is_counted(place)) return;
  const Parameter& p = *place.parameter;
  const uint64_t name = number_of(p.name + "/nf4");
  const auto count = [&](int64_t at, uint8_t byte) { sum_ += splitmix(name + static_cast<uint64_t>(at) * kSplitMixStep + byte); };
  const Nf4Record of = record_of(p), whole = nf4_record(full_numel(p));
  for (size_t i = 0; i < bytes.size(); ++i) {
    const int64_t at = place.element + static_cast<int64_t>(i);
    if (of.part_at < 0) {
      count(at, bytes[i]);
    } else if (at < of.scales_at) {
      count(full_element(p, at_.tp, 2 * at) / 2, bytes[i]);
    } else if (at < of.scales_at + of.num_scales) {
      count(whole.scales_at + full_element(p, at_.tp, (at - of.scales_at) * kNf4Block) / kNf4Block, bytes[i]);
    } else if (at_.tp == 0 && at >= of.ranges_at && at < of.part_at) {  // all ranks have them
      count(at - of.ranges_at + whole.ranges_at, bytes[i]);
      if (at != of.mean_at) continue;
      for (int64_t gap = whole.scales_at + whole.num_scales; gap < whole.ranges_at; ++gap) count(gap, 0);
      for (int64_t gap = whole.mean_at + 4; gap < whole.num_bytes; ++gap) count(gap, 0);
    }
  }
}

void FrozenDigest::add(int64_t offset, std::span<const float> values) {
  const Place place = place_of(offset, false);
  CHECK(place.parameter != nullptr && place.element + static_cast<int64_t>(values.size()) <= place.parameter->numel, "{} + {}", offset,
        values.size());
  if (!is_counted(place)) return;
  const uint64_t name = number_of(place.parameter->name + (place.unit->is_reference ? "/reference" : ""));
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t element = full_element(*place.parameter, at_.tp, place.element + static_cast<int64_t>(i));
    if (element < 0) continue;
    sum_ += splitmix(name + static_cast<uint64_t>(element) * kSplitMixStep + std::bit_cast<uint32_t>(values[i]));
  }
}

std::string frozen_digest_text(uint64_t sum) { return fmt::format("{:016x}", sum); }

}  // namespace distsetup
