// What a run's frozen parameters are read from: published weights, beside which adapters or a part of the model is trained.
// Checkpoints do not hold them, so what they were is kept as a digest.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "plan/layout.h"
#include "weights/folder.h"
#include "weights/match.h"
#include "weights/read_box.h"

namespace distsetup {

// Where what is frozen goes.
struct StoreFrozen {
  // Of a rank's flat shard of what is held in the compute type (layout.h), from element `offset` on.
  std::function<void(int64_t offset, std::span<const float> values)> values;
  // Of the flat shard of what is held as nf4, from byte `offset` on.
  std::function<void(int64_t offset, std::span<const uint8_t> bytes)> bytes;
};

// A matrix as nf4. `fill` is asked for all of it, rows after rows: for the values of `rows` ones from `first` on. Errors are its own.
using FillRows = std::function<Diagnostics(int64_t first, int64_t rows, float* values)>;
Result<std::vector<uint8_t>> make_record(const Parameter& parameter, const FillRows& fill);
// The records of which this rank has a part, each made whole, and that part of it stored. `rows_of`: where a matrix's rows come from.
Diagnostics store_records(const Layout& layout, const Coordinates& at, const std::function<FillRows(const Parameter&)>& rows_of,
                          const StoreFrozen& store);

// A head that is published beside the embedding it is tied to has the same values: in a folder where it has not, one of the two is
// wrong, and nobody knows which. `values`: of `box` of the embedding. Compared in pieces, as they are read.
Diagnostics compare_tied_head(BoxReader& reader, const WeightsFolder& folder, const MatchedWeights& matched,
                              const Parameter& embedding, const Box& box, const float* values);

// What is frozen, piece by piece; but for the reference's copies of adapters, which `load_adapter_copies` takes from a folder of
// adapters.
Diagnostics load_frozen(const WeightsFolder& folder, const Layout& layout, const Coordinates& at, const StoreFrozen& store);
Diagnostics load_adapter_copies(const WeightsFolder& adapter, const Layout& layout, const Coordinates& at, const StoreFrozen& store);

// A number for the values of all frozen parameters of a model, the same on any mesh: the sum over all elements of what mixing the
// name, the element's number and the bits of its value gives. Each rank adds what it holds and no rank of lower number does.
class FrozenDigest {
 public:
  FrozenDigest(const Layout& layout, const Coordinates& at) : layout_(layout), at_(at) {}
  // Of this rank's flat shard of what is frozen; to be called with all of it, in any pieces that do not cross parameters.
  void add(int64_t offset, std::span<const float> values);
  // The same of what is held as nf4, whose bytes stand for elements and values.
  void add_bytes(int64_t offset, std::span<const uint8_t> bytes);
  uint64_t sum() const { return sum_; }

 private:
  struct Place {
    const UnitLayout* unit = nullptr;
    const Parameter* parameter = nullptr;
    int64_t element = 0;  // of the rank's piece, or of the record
  };
  Place place_of(int64_t offset, bool is_quantized) const;
  bool is_counted(const Place& place) const;  // by this rank

  const Layout& layout_;
  const Coordinates at_;
  uint64_t sum_ = 0;
};

// FrozenDigest's sum as CheckpointMetadata has it.
std::string frozen_digest_text(uint64_t sum);

}  // namespace distsetup
