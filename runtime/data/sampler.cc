// See sampler.h.
#include "runtime/data/sampler.h"

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

struct Share {
  int64_t micro_batch, data_parallel, data_index, sequence_length;
};

// windows: a whole global batch, a multiple of data_parallel · micro_batch long; -1 = a sequence without targets.
Batch deal(const Corpus& corpus, const std::vector<Window>& table, std::vector<int64_t> windows, const Share& share) {
  const int64_t per_round = share.data_parallel * share.micro_batch;
  CHECK(static_cast<int64_t>(windows.size()) % per_round == 0, "{} sequences, {} a round", windows.size(), per_round);
  const int64_t rounds = static_cast<int64_t>(windows.size()) / per_round, each = corpus.sequences_per_window,
                length = share.sequence_length;
  Batch batch;
  batch.ids.resize(static_cast<size_t>(rounds * share.micro_batch * each * length));
  batch.targets.resize(batch.ids.size());
  for (size_t i = 0; i < windows.size(); ++i) {
    const Window window = windows[i] < 0 ? Window{} : table[static_cast<size_t>(windows[i])];
    batch.global_valid_tokens += window.valid_tokens;
    batch.num_terms += each == 1 ? window.valid_tokens : windows[i] >= 0;
    const int64_t place = static_cast<int64_t>(i) % share.micro_batch,
                  owner = static_cast<int64_t>(i) / share.micro_batch % share.data_parallel;
    if (owner != share.data_index) continue;
    batch.own.push_back(windows[i]);
    for (int64_t n = 0; n < each; ++n) {
      const int64_t sequence = (static_cast<int64_t>(i) / per_round * share.micro_batch + place) * each + n;
      const auto at = static_cast<size_t>(sequence * length);
      Window one = window;
      one.document += static_cast<int32_t>(n);
      fill_sequence(corpus, one, std::span(batch.ids).subspan(at, static_cast<size_t>(length)),
                    std::span(batch.targets).subspan(at, static_cast<size_t>(length)));
    }
  }
  batch.sequences = std::move(windows);
  return batch;
}

}  // namespace

std::vector<uint32_t> epoch_permutation(int64_t num_windows, int64_t seed, int64_t epoch) {
  CHECK(num_windows > 0 && num_windows <= UINT32_MAX && epoch >= 0, "{} windows, epoch {}", num_windows, epoch);
  SplitMix64 seeds = {static_cast<uint64_t>(seed)};
  SplitMix64 random = {seeds.next() ^ (static_cast<uint64_t>(epoch) * 0xd1342543de82ef95u)};
  random.next();
  std::vector<uint32_t> order(static_cast<size_t>(num_windows));
  std::iota(order.begin(), order.end(), 0u);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

Sampler::Sampler(const Corpus& corpus, const Plan& plan, int rank)
    : corpus_(corpus),
      micro_batch_(plan.micro_batch),
      accumulation_(plan.gradient_accumulation),
      data_parallel_(plan.mesh.data_parallel()),
      data_index_(distsetup::data_index(plan.mesh, rank)),
      seed_(plan.train.seed) {
  CHECK(micro_batch_ * accumulation_ * data_parallel_ == plan.train.global_batch, "{} · {} · {} is not the global batch {}",
        micro_batch_, accumulation_, data_parallel_, plan.train.global_batch);
}

void Sampler::seek(const Cursor& cursor) {
  CHECK(cursor.epoch >= 0 && cursor.position >= 0 && cursor.position <= static_cast<int64_t>(corpus_.training.size()),
        "epoch {} position {} of {}", cursor.epoch, cursor.position, corpus_.training.size());
  cursor_ = cursor;
}

int64_t Sampler::next_window() {
  const int64_t num_windows = static_cast<int64_t>(corpus_.training.size());
  if (cursor_.position == num_windows) {
    ++cursor_.epoch;
    cursor_.position = 0;
  }
  if (permuted_epoch_ != cursor_.epoch) {
    permutation_ = epoch_permutation(num_windows, seed_, cursor_.epoch);
    permuted_epoch_ = cursor_.epoch;
  }
  ++cursor_.sequences;
  return permutation_[static_cast<size_t>(cursor_.position++)];
}

Batch Sampler::next() {
  std::vector<int64_t> windows;
  for (int64_t i = 0; i < micro_batch_ * accumulation_ * data_parallel_; ++i) windows.push_back(next_window());
  Batch batch =
      deal(corpus_, corpus_.training, std::move(windows), {micro_batch_, data_parallel_, data_index_, corpus_.sequence_length});
  cursor_.tokens += batch.global_valid_tokens;
  return batch;
}

Batch batch_in_order(const Corpus& corpus, const std::vector<Window>& table, int64_t first, int64_t count, const Plan& plan,
                     int rank) {
  const int64_t per_round = plan.mesh.data_parallel() * plan.micro_batch;
  std::vector<int64_t> windows(static_cast<size_t>(count));
  std::iota(windows.begin(), windows.end(), first);
  windows.resize(static_cast<size_t>((count + per_round - 1) / per_round * per_round), -1);
  return deal(corpus, table, std::move(windows),
              {plan.micro_batch, plan.mesh.data_parallel(), data_index(plan.mesh, rank), corpus.sequence_length});
}

Batch held_out_batch(const Corpus& corpus, const Plan& plan, int rank) {
  return batch_in_order(corpus, corpus.held_out, 0, static_cast<int64_t>(corpus.held_out.size()), plan, rank);
}

}  // namespace distsetup
