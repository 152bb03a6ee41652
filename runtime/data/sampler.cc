// See sampler.h.
#include "runtime/data/sampler.h"

#include <utility>

#include "base/check.h"

namespace distsetup {
namespace {

struct Share {
  int64_t micro_batch, data_parallel, data_index, sequence_length;
};

// rows: windows of each row of a whole global batch, a multiple of data_parallel · micro_batch long.
Batch deal(const Corpus& corpus, const std::vector<Window>& table, const std::vector<std::vector<uint32_t>>& rows,
           const Share& share) {
  const int64_t per_round = share.data_parallel * share.micro_batch;
  CHECK(static_cast<int64_t>(rows.size()) % per_round == 0, "{} rows, {} a round", rows.size(), per_round);
  const int64_t rounds = static_cast<int64_t>(rows.size()) / per_round, each = corpus.sequences_per_window;
  const auto length = static_cast<size_t>(share.sequence_length);
  Batch batch;
  batch.ids.resize(static_cast<size_t>(rounds * share.micro_batch * each) * length);
  batch.targets.resize(batch.ids.size());
  if (corpus.packing == Packing::kOn) batch.positions.resize(batch.ids.size());
  std::vector<Window> windows;
  for (size_t i = 0; i < rows.size(); ++i) {
    windows.clear();
    for (const uint32_t w : rows[i]) windows.push_back(table[w]);
    for (const Window& w : windows) batch.global_valid_tokens += w.valid_tokens;
    for (const Window& w : windows) batch.num_terms += each == 1 ? w.valid_tokens : 1;
    batch.sequences.insert(batch.sequences.end(), rows[i].begin(), rows[i].end());
    if (rows[i].empty()) batch.sequences.push_back(-1);
    const int64_t place = static_cast<int64_t>(i) % share.micro_batch,
                  owner = static_cast<int64_t>(i) / share.micro_batch % share.data_parallel;
    if (owner != share.data_index) continue;
    batch.own.insert(batch.own.end(), rows[i].begin(), rows[i].end());
    if (rows[i].empty()) batch.own.push_back(-1);
    for (int64_t n = 0; n < each; ++n) {
      const int64_t sequence = (static_cast<int64_t>(i) / per_round * share.micro_batch + place) * each + n;
      const size_t at = static_cast<size_t>(sequence) * length;
      const auto part = [&](std::vector<int64_t>& all) {
        return all.empty() ? std::span<int64_t>() : std::span(all).subspan(at, length);
      };
      fill_row(corpus, n == 0 ? windows : rejected_windows(corpus, windows),
               {part(batch.ids), part(batch.targets), part(batch.positions)});
    }
  }
  return batch;
}

}  // namespace

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
  CHECK(cursor.epoch >= 0 && cursor.position >= 0, "epoch {} position {}", cursor.epoch, cursor.position);
  rows_ = training_rows(corpus_, seed_, cursor.epoch);
  epoch_ = cursor.epoch;
  CHECK(cursor.position <= rows_.size(), "epoch {} position {} of {}", cursor.epoch, cursor.position, rows_.size());
  cursor_ = cursor;
}

std::vector<uint32_t> Sampler::next_row() {
  if (epoch_ == cursor_.epoch && cursor_.position == rows_.size()) {
    ++cursor_.epoch;
    cursor_.position = 0;
  }
  if (epoch_ != cursor_.epoch) {
    rows_ = training_rows(corpus_, seed_, cursor_.epoch);
    epoch_ = cursor_.epoch;
  }
  ++cursor_.sequences;
  const std::span<const uint32_t> row = rows_.row(cursor_.position++);
  return {row.begin(), row.end()};
}

Batch Sampler::next() {
  std::vector<std::vector<uint32_t>> rows;
  for (int64_t i = 0; i < micro_batch_ * accumulation_ * data_parallel_; ++i) rows.push_back(next_row());
  Batch batch = deal(corpus_, corpus_.training, rows, {micro_batch_, data_parallel_, data_index_, corpus_.sequence_length});
  cursor_.tokens += batch.global_valid_tokens;
  return batch;
}

Batch batch_in_order(const Corpus& corpus, const std::vector<Window>& table, int64_t first, int64_t count, const Plan& plan,
                     int rank) {
  const int64_t per_round = plan.mesh.data_parallel() * plan.micro_batch;
  std::vector<std::vector<uint32_t>> rows(static_cast<size_t>((count + per_round - 1) / per_round * per_round));
  for (int64_t i = 0; i < count; ++i) rows[static_cast<size_t>(i)] = {static_cast<uint32_t>(first + i)};
  return deal(corpus, table, rows, {plan.micro_batch, plan.mesh.data_parallel(), data_index(plan.mesh, rank), corpus.sequence_length});
}

Batch held_out_batch(const Corpus& corpus, const Plan& plan, int rank) {
  return batch_in_order(corpus, corpus.held_out, 0, static_cast<int64_t>(corpus.held_out.size()), plan, rank);
}

}  // namespace distsetup
