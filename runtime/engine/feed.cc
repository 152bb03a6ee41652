#include "runtime/engine/feed.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace distsetup {

int64_t micro_batch_tokens(const OpContext& x) { return x.cp * x.T; }

void check_tokens(const Tokens& tokens, int64_t num_micro_batches, const OpContext& x, bool needs_reference) {
  const int64_t each = micro_batch_tokens(x), expected = num_micro_batches * each;
  const auto outside = [&](std::span<const int64_t> v, int64_t lowest) {
    return std::any_of(v.begin(), v.end(), [&](int64_t t) { return t < lowest || t >= x.vocabulary; });
  };
  if (int64_t(tokens.ids.size()) != expected || int64_t(tokens.targets.size()) != expected) {
    throw std::invalid_argument(fmt::format("{} ids and {} targets, expected {} micro-batches of {} tokens", tokens.ids.size(),
                                            tokens.targets.size(), num_micro_batches, each));
  }
  if (needs_reference && int64_t(tokens.reference_logps.size()) != num_micro_batches * x.B)
    throw std::invalid_argument(fmt::format("{} log-probabilities of the reference, expected those of {} sequences",
                                            tokens.reference_logps.size(), num_micro_batches * x.B));
  if (outside(tokens.ids, 0) || outside(tokens.targets, -1))
    throw std::invalid_argument(fmt::format("a token outside the vocabulary of {}", x.vocabulary));
}

void feed(const Tokens& tokens, int64_t micro_batch, const OpContext& x, const RankMemory& memory, Device& device,
          std::vector<int64_t>& own) {
  const Positions positions = positions_of(x);
  for (const auto& [name, all] : {std::pair{"ids", tokens.ids}, {"targets", tokens.targets}}) {
    const int64_t* from = all.data() + micro_batch * micro_batch_tokens(x);
    if (x.cp > 1) {
      own.resize(size_t(x.T));
      for (int64_t t = 0; t < x.T; ++t) own[size_t(t)] = from[t / x.S * x.cp * x.S + positions.at(t % x.S)];
      from = own.data();
    }
    device.copy_to_device(memory.run(name), from, x.T * 8);
  }
  if (memory.has_run("reference_logps"))
    device.copy_to_device(memory.run("reference_logps"), tokens.reference_logps.data() + micro_batch * x.B, x.B * 4);
}

}  // namespace distsetup
