// Which rows make up each optimizer step. The order of training is one infinite list, for each epoch the rows of all windows in an
// order that depends on (seed, epoch) alone, or that of the set (src/data/epoch_order.h, packing.h); step s takes the next
// global_batch entries. Where a row is computed depends on the mesh, which rows a step has does not: any mesh can go on where another
// stopped. A batch that begins in one epoch ends in the next.
#pragma once
#include <cstdint>
#include <vector>

#include "plan/mesh.h"
#include "plan/plan.h"
#include "runtime/data/corpus.h"
#include "weights/manifest.h"

namespace distsetup {

// A rank's share of one optimizer step (or of an evaluation), micro-batches one after another: element
// (m · micro_batch + j) · sequence_length + t is position t of sequence j of micro-batch m. A preference pair is two sequences, chosen
// and rejected, one after the other.
struct Batch {
  std::vector<int64_t> ids, targets;
  std::vector<int64_t> positions;   // of packed rows: each token's place in its window
  int64_t global_valid_tokens = 0;  // of all ranks; every rank computes it from the window table alone
  int64_t num_terms = 0;            // what the loss is a mean of: those tokens, or preference pairs
  std::vector<int64_t> sequences;   // windows of the whole global batch, in order; -1: a row without any
  std::vector<int64_t> own;         // those of this rank, in order; -1 = a sequence without targets
};

class Sampler {
 public:
  // Sequence i of a global batch goes to micro-batch m, data index r, place j with i = m · (data_parallel · micro_batch) + r ·
  // micro_batch + j.
  Sampler(const Corpus& corpus, const Plan& plan, int rank);
  Batch next();
  const Cursor& cursor() const { return cursor_; }
  void seek(const Cursor& cursor);  // CHECKs that it lies inside this corpus

 private:
  std::vector<uint32_t> next_row();  // its windows
  const Corpus& corpus_;
  int64_t micro_batch_, accumulation_, data_parallel_, data_index_, seed_;
  Cursor cursor_;
  int64_t epoch_ = -1;  // of rows_
  PackedRows rows_;
};

// `count` windows of a table in order, each in a row, dealt out as a global batch is; filled up with sequences without targets to
// whole micro-batches.
Batch batch_in_order(const Corpus& corpus, const std::vector<Window>& table, int64_t first, int64_t count, const Plan& plan, int rank);
// The held-out rows, all of them.
Batch held_out_batch(const Corpus& corpus, const Plan& plan, int rank);

}  // namespace distsetup
