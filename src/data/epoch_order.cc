#include "data/epoch_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/splitmix.h"

namespace distsetup {
namespace {

struct SplitMix64 {
  uint64_t state = 0;
  uint64_t next() { return splitmix(state += kSplitMixStep); }
  // Uniform in [0, bound), without modulo bias.
  uint64_t below(uint64_t bound) {
    const uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
    uint64_t value = next();
    while (value >= limit) value = next();
    return value % bound;
  }
};

// Of a part, apart from the other parts' and from the whole's.
int64_t seed_of_part(int64_t seed, size_t part) {
  return static_cast<int64_t>(splitmix(static_cast<uint64_t>(seed) + kSplitMixStep * (part + 1)));
}

std::vector<uint32_t> pass_order(int64_t num_pieces, int64_t seed, int64_t pass, PieceOrder order) {
  if (order == PieceOrder::kShuffled) return epoch_permutation(num_pieces, seed, pass);
  std::vector<uint32_t> stored(static_cast<size_t>(num_pieces));
  std::iota(stored.begin(), stored.end(), 0u);
  return stored;
}

// A part's pieces without end, from the `taken`-th on.
class PartStream {
 public:
  PartStream(const MixturePart& part, int64_t seed, int64_t taken, PieceOrder order)
      : part_(part), seed_(seed), taken_(taken), piece_order_(order) {}
  uint32_t next() {
    const auto size = static_cast<int64_t>(part_.pieces.size());
    if (order_.empty() || taken_ / size != pass_) {
      pass_ = taken_ / size;
      order_ = pass_order(size, seed_, pass_, piece_order_);
    }
    return part_.pieces[order_[static_cast<size_t>(taken_++ % size)]];
  }

 private:
  const MixturePart& part_;
  int64_t seed_ = 0, taken_ = 0, pass_ = 0;
  PieceOrder piece_order_ = PieceOrder::kShuffled;
  std::vector<uint32_t> order_;
};

}  // namespace

std::vector<uint32_t> epoch_permutation(int64_t num_pieces, int64_t seed, int64_t epoch) {
  CHECK(num_pieces > 0 && num_pieces <= UINT32_MAX && epoch >= 0, "{} pieces, epoch {}", num_pieces, epoch);
  SplitMix64 seeds = {static_cast<uint64_t>(seed)};
  SplitMix64 random = {seeds.next() ^ (static_cast<uint64_t>(epoch) * 0xd1342543de82ef95u)};
  random.next();
  std::vector<uint32_t> order(static_cast<size_t>(num_pieces));
  std::iota(order.begin(), order.end(), 0u);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

std::vector<uint32_t> blend(std::span<const double> weights, int64_t count) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  CHECK(sum > 0, "weights add up to {}", sum);
  std::vector<int64_t> taken(weights.size());
  std::vector<uint32_t> parts;
  parts.reserve(static_cast<size_t>(count));
  for (int64_t n = 0; n < count; ++n) {
    size_t next = 0;
    double largest = 0;
    for (size_t p = 0; p < weights.size(); ++p) {
      const double deficit = weights[p] / sum * static_cast<double>(std::max<int64_t>(n, 1)) - static_cast<double>(taken[p]);
      if (p > 0 && deficit <= largest) continue;
      next = p;
      largest = deficit;
    }
    ++taken[next];
    parts.push_back(static_cast<uint32_t>(next));
  }
  return parts;
}

std::vector<uint32_t> epoch_order(int64_t num_pieces, const std::vector<MixturePart>& mixture, int64_t seed, int64_t epoch,
                                  PieceOrder piece_order) {
  if (mixture.empty()) return pass_order(num_pieces, seed, epoch, piece_order);
  std::vector<double> weights;
  for (const MixturePart& part : mixture) weights.push_back(part.weight);
  std::vector<uint32_t> order = blend(weights, num_pieces);
  std::vector<PartStream> streams;
  for (size_t p = 0; p < mixture.size(); ++p)
    streams.emplace_back(mixture[p], seed_of_part(seed, p), epoch * std::count(order.begin(), order.end(), p), piece_order);
  for (uint32_t& next : order) next = streams[next].next();
  return order;
}

}  // namespace distsetup
