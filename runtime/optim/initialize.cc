// Counter-based: the name is hashed once (FNV-1a), then element i takes two 64-bit words from SplitMix64 (Steele, Lea, Flood 2014) at
// counters 2 i and 2 i + 1, turned into one normal variate by Box and Muller.
#include "runtime/optim/initialize.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/check.h"
#include "base/splitmix.h"
#include "plan/frozen.h"
#include "runtime/engine/threads.h"

namespace distsetup {
namespace {

constexpr int64_t kBytesOfWork = 128;  // an element takes as long as so many bytes of memory traffic

uint64_t hash_name(uint64_t seed, std::string_view name) {
  uint64_t h = 14695981039346656037ull ^ (seed * 0x9e3779b97f4a7c15ull);
  for (const char c : name) h = (h ^ uint8_t(c)) * 1099511628211ull;
  return h;
}

uint64_t splitmix64(uint64_t key, uint64_t counter) { return splitmix(key + (counter + 1) * kSplitMixStep); }

// In (0, 1): 53 random bits, never 0.
double uniform(uint64_t key, uint64_t counter) { return (double(splitmix64(key, counter) >> 11) + 0.5) * 0x1.0p-53; }

double normal(uint64_t key, uint64_t element) {
  return std::sqrt(-2.0 * std::log(uniform(key, 2 * element))) * std::cos(2.0 * std::numbers::pi * uniform(key, 2 * element + 1));
}

struct FirstValues {
  ParameterDecl::Init init;
  int64_t num_layers = 1, columns = 1;
};
FirstValues first_values(const Parameter& p, int64_t num_layers) {
  return {p.init, num_layers, p.full_shape.size() > 1 ? p.full_shape[1] : 1};
}

float value(uint64_t key, const FirstValues& of, int64_t element) {
  const int64_t num_layers = of.num_layers;
  switch (of.init) {
    case ParameterDecl::Init::kOnes: return 1.0f;
    case ParameterDecl::Init::kZeros: return 0.0f;
    case ParameterDecl::Init::kNormal: return float(0.02 * normal(key, uint64_t(element)));
    case ParameterDecl::Init::kScaledNormal: return float(0.02 / std::sqrt(2.0 * double(num_layers)) * normal(key, uint64_t(element)));
    case ParameterDecl::Init::kUniform: return float((2 * uniform(key, uint64_t(element)) - 1) / std::sqrt(double(of.columns)));
  }
  return 0.0f;
}

int64_t num_blocks(const Layout& layout) {
  return std::count_if(layout.units.begin(), layout.units.end(), [](const UnitLayout& u) { return u.kind == UnitKind::kBlock; });
}

constexpr int64_t kPieceNumel = 1 << 20;  // of what is frozen, made at once

}  // namespace

float initial_value(uint64_t seed, std::string_view parameter, ParameterDecl::Init init, int64_t element, int64_t num_layers) {
  return value(hash_name(seed, parameter), {init, num_layers, 1}, element);
}

float initial_value(uint64_t seed, const Parameter& parameter, int64_t element, int64_t num_layers) {
  return value(hash_name(seed, parameter.name), first_values(parameter, num_layers), element);
}

void initialize_shard(const Layout& layout, const Coordinates& at, uint64_t seed, std::span<float> shard) {
  CHECK(int64_t(shard.size()) == layout.shard_numel, "shard {} layout {}", shard.size(), layout.shard_numel);
  std::fill(shard.begin(), shard.end(), 0.0f);
  const int64_t num_layers = num_blocks(layout);
  for (const UnitLayout& unit : layout.units) {
    if (unit.is_frozen) continue;
    const ElementRange owned = owned_range(unit, shard_index(layout, unit, at));
    for (const Parameter& p : unit.parameters) {
      const uint64_t key = hash_name(seed, p.name);
      const FirstValues first = first_values(p, num_layers);
      const ElementRange part = owned_part(layout, unit, p, at);
      const int64_t begin = part.begin, end = part.end;
      parallel_ranges(end - begin, kBytesOfWork, [&](int64_t from, int64_t to) {
        for (int64_t i = begin + from; i < begin + to; ++i) {
          const int64_t element = full_element(p, at.tp, i - p.offset);
          if (element >= 0) shard[size_t(unit.shard_offset + i - owned.begin)] = value(key, first, element);
        }
      });
    }
  }
}

void initialize_frozen(const Layout& layout, const Coordinates& at, uint64_t seed, FrozenPart part, const StoreFrozen& store) {
  const int64_t num_layers = num_blocks(layout);
  std::vector<float> piece;
  for (const UnitLayout& unit : layout.units) {
    if (!unit.is_frozen || unit.is_quantized) continue;
    const ElementRange owned = owned_range(unit, shard_index(layout, unit, at));
    for (const Parameter& p : unit.parameters) {
      if (part == FrozenPart::kAdapters && !is_adapter_name(p.name)) continue;
      const uint64_t key = hash_name(seed, p.name);
      const FirstValues first = first_values(p, num_layers);
      const auto [first_element, last] = owned_part(layout, unit, p, at);
      for (int64_t begin = first_element; begin < last; begin += kPieceNumel) {
        piece.assign(size_t(std::min(kPieceNumel, last - begin)), 0.0f);
        parallel_ranges(int64_t(piece.size()), kBytesOfWork, [&](int64_t from, int64_t to) {
          for (int64_t i = from; i < to; ++i) {
            const int64_t element = full_element(p, at.tp, begin + i - p.offset);
            if (element >= 0) piece[size_t(i)] = value(key, first, element);
          }
        });
        store.values(unit.shard_offset + begin - owned.begin, piece);
      }
    }
  }
  if (part == FrozenPart::kAdapters) return;
  const auto rows_of = [&](const Parameter& p) -> FillRows {
    return [&, key = hash_name(seed, p.name), first = first_values(p, num_layers)](int64_t row, int64_t rows, float* to) {
      const int64_t width = p.full_shape[1];
      parallel_ranges(rows * width, kBytesOfWork, [&](int64_t from, int64_t end) {
        for (int64_t i = from; i < end; ++i) to[i] = value(key, first, row * width + i);
      });
      return Diagnostics{};
    };
  };
  (void)store_records(layout, at, rows_of, store);  // nothing is read, so nothing fails
}

}  // namespace distsetup
