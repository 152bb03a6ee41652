#include "data/pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/quantity.h"

namespace distsetup {
namespace {

constexpr int64_t kMostEpochs = 1000, kMostPieces = 50'000'000;  // packed to be counted

}  // namespace

Result<SetLengths> read_set_lengths(const std::string& folder) {
  const Result<PreparedSplit> split = PreparedSplit::open(folder, SetSplit::kTraining);
  if (!split.ok()) return split.diagnostics;
  Result<SetDescription> set = read_set_description(folder);
  if (!set.ok()) return set.diagnostics;
  SetLengths lengths;
  lengths.mixture = std::move(set->mixture);
  lengths.samples.reserve(static_cast<size_t>(split->size()));
  for (int64_t i = 0; i < split->size(); i += set->holds_pairs ? 2 : 1) {  // of a pair the chosen one
    const SampleRecord& s = split->sample(i);
    SampleShape shape = {std::max<uint32_t>(s.num_tokens, 1) - 1, 0, s.too_long, s.source};
    for (const TrainedSpan& span : split->spans(i)) {
      if (span.end < 2) continue;  // the first token is nobody's target
      shape.first_trained = std::max<uint32_t>(span.begin, 1);
      break;
    }
    lengths.samples.push_back(shape);
  }
  return lengths;
}

Pieces pieces_of(const SetLengths& set, int64_t sequence_length) {
  Pieces pieces;
  for (const SampleShape& s : set.samples) {
    if (s.too_long == TooLong::kIsCut && (s.first_trained == 0 || s.first_trained > sequence_length)) continue;
    each_piece(s.too_long, s.targets, sequence_length, [&](int64_t, int64_t length) {
      pieces.lengths.push_back(static_cast<uint32_t>(length));
      pieces.sources.push_back(s.source);
    });
  }
  return pieces;
}

std::vector<MixturePart> parts_of(const std::vector<SetPart>& mixture, std::span<const uint32_t> sources) {
  std::vector<MixturePart> parts;
  std::vector<size_t> part_of;  // by source
  for (const SetPart& part : mixture) {
    part_of.insert(part_of.end(), static_cast<size_t>(part.num_sources), parts.size());
    parts.push_back({part.weight, {}});
  }
  for (size_t i = 0; i < sources.size() && !parts.empty(); ++i) parts[part_of[sources[i]]].pieces.push_back(static_cast<uint32_t>(i));
  return parts;
}

PackedRows rows_of_epoch(std::span<const uint32_t> lengths, const std::vector<MixturePart>& mixture, int64_t sequence_length,
                         Packing packing, int64_t seed, int64_t epoch, PieceOrder piece_order) {
  std::vector<uint32_t> order = epoch_order(static_cast<int64_t>(lengths.size()), mixture, seed, epoch, piece_order);
  if (packing == Packing::kOn) return pack(order, lengths, sequence_length, seed, epoch, piece_order);
  PackedRows rows;
  rows.first.resize(order.size() + 1);
  std::iota(rows.first.begin(), rows.first.end(), 0u);
  rows.pieces = std::move(order);
  return rows;
}

int64_t num_rows(const SetLengths& set, int64_t sequence_length, Packing packing, int64_t seed, double epochs, PieceOrder order) {
  const Pieces pieces = pieces_of(set, sequence_length);
  if (pieces.size() == 0) return 0;
  const auto whole = static_cast<int64_t>(epochs);
  if (packing == Packing::kOff) return std::llround(static_cast<double>(pieces.size()) * epochs);
  const std::vector<MixturePart> parts = parts_of(set.mixture, pieces.sources);
  const int64_t counted = std::min({whole + 1, kMostEpochs, std::max<int64_t>(1, kMostPieces / pieces.size())});
  double sum = 0;
  for (int64_t epoch = 0; epoch < counted; ++epoch) {
    const double part = std::min(1.0, epochs - static_cast<double>(epoch));
    if (part > 0)
      sum += part * static_cast<double>(rows_of_epoch(pieces.lengths, parts, sequence_length, packing, seed, epoch, order).size());
  }
  return std::llround(sum * std::max(1.0, epochs / static_cast<double>(counted)));
}

CutSamples cut_samples(const PreparedSplit& split, bool holds_pairs, int64_t sequence_length) {
  CutSamples out;
  const int64_t together = holds_pairs ? 2 : 1;
  for (int64_t first = 0; first + together <= split.size(); first += together) {
    int64_t trained = 0, kept = 0;
    for (int64_t i = first; i < first + together; ++i) {
      const int64_t targets = std::max<int64_t>(split.sample(i).num_tokens, 1) - 1;
      trained += num_trained(split.spans(i), 0, targets);
      const bool is_cut = split.sample(i).too_long == TooLong::kIsCut;
      kept += num_trained(split.spans(i), 0, is_cut ? std::min(targets, sequence_length) : targets);
    }
    ++out.samples;
    out.without_trained += kept == 0;
    out.cut += kept > 0 && kept < trained;
    out.trained += trained;
    out.kept += kept;
  }
  return out;
}

std::string words_of(const CutSamples& found, bool holds_pairs) {
  std::string what;
  if (found.without_trained > 0) what = fmt::format(" {} with nothing to train on", format_count(found.without_trained));
  if (found.cut > 0) what += fmt::format("{} {} cut", what.empty() ? "" : ",", format_count(found.cut));
  return fmt::format("of {} {}:{}; {} of {} trained tokens are read", format_count(found.samples), holds_pairs ? "pairs" : "samples",
                     what, format_count(found.kept), format_count(found.trained));
}

PackingGain packing_gain(const SetLengths& set, int64_t sequence_length, int64_t seed) {
  const Pieces pieces = pieces_of(set, sequence_length);
  PackingGain gain;
  if (pieces.size() == 0) return gain;
  const PackedRows rows = rows_of_epoch(pieces.lengths, parts_of(set.mixture, pieces.sources), sequence_length, Packing::kOn, seed, 0);
  double squares = 0;
  for (const uint32_t piece : rows.pieces) {
    const int64_t length = pieces.lengths[piece];
    gain.tokens += length;
    squares += static_cast<double>(length) * static_cast<double>(length);
  }
  gain.rows_padded = pieces.size();
  gain.rows_packed = rows.size();
  gain.mean_square = squares / static_cast<double>(gain.tokens);
  return gain;
}

}  // namespace distsetup
