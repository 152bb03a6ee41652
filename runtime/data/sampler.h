// Which sequences make up each optimizer step. The order of training is one infinite list, a permutation of all windows per epoch that
// depends on (seed, epoch) alone; step s takes the next global_batch entries. Where a sequence is computed depends on the mesh, which
// sequences a step has does not: any mesh can go on where another stopped. A batch that begins in one epoch ends in the next.
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
  int64_t global_valid_tokens = 0;  // of all ranks; every rank computes it from the window table alone
  int64_t num_terms = 0;            // what the loss is a mean of: those tokens, or preference pairs
  std::vector<int64_t> sequences;   // windows of the whole global batch, in order
  std::vector<int64_t> own;         // those of this rank, in order; -1 = a sequence without targets
};

// Fisher-Yates with splitmix64 seeded from (seed, epoch): the same on every platform.
std::vector<uint32_t> epoch_permutation(int64_t num_windows, int64_t seed, int64_t epoch);

class Sampler {
 public:
  // Sequence i of a global batch goes to micro-batch m, data index r, place j with i = m · (data_parallel · micro_batch) + r ·
  // micro_batch + j.
  Sampler(const Corpus& corpus, const Plan& plan, int rank);
  Batch next();
  const Cursor& cursor() const { return cursor_; }
  void seek(const Cursor& cursor);  // CHECKs that it lies inside this corpus

 private:
  int64_t next_window();
  const Corpus& corpus_;
  int64_t micro_batch_, accumulation_, data_parallel_, data_index_, seed_;
  Cursor cursor_;
  int64_t permuted_epoch_ = -1;
  std::vector<uint32_t> permutation_;
};

// `count` windows of a table in order, dealt out as a global batch is; filled up with sequences without targets to whole
// micro-batches.
Batch batch_in_order(const Corpus& corpus, const std::vector<Window>& table, int64_t first, int64_t count, const Plan& plan, int rank);
// The held-out windows, all of them.
Batch held_out_batch(const Corpus& corpus, const Plan& plan, int rank);

}  // namespace distsetup
