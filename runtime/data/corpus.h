// What is trained on: the plan's files as documents, documents as windows of sequence_length + 1 tokens. Files of text are documents
// of bytes; in a prepared data set (src/data/prepared_set.h) each sample is a document, of which some targets may not be trained. A
// window never crosses documents; of preference pairs a window stands for both, each a sequence of its own. The last window of a
// document is shorter: its missing positions are padded and ignored by the loss (target -1), so ranks differ in valid tokens and the
// loss is a mean over tokens, not over ranks.
// A row of sequence_length positions holds one window, or several where the plan packs: they do not see each other.
// Every byte trained on was digested first: a file that is missing or not the one the plan names is an error, never replaced by
// others. Files of text lie in host memory, prepared sets are mapped; of these one rank of a machine reads all for their digests, the
// others look at sizes and at the digest of dataset.json.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "data/pieces.h"
#include "data/prepared_set.h"
#include "plan/plan.h"

namespace distsetup {

inline constexpr int64_t kByteVocabulary = 256;
inline constexpr int64_t kIgnoredTarget = -1;  // as the loss kernels skip it
inline constexpr int64_t kPaddingToken = 0;    // its prediction is ignored; attention is causal, so nothing before it sees it

struct Window {
  int32_t document = 0;      // of a pair: the chosen one; the next one was rejected
  int64_t begin = 0;         // token of the document that is its first input
  int32_t valid_tokens = 0;  // targets that are trained; of text sequence_length except in a document's last window
  int32_t length = 0;        // targets, trained or not: positions that it takes
};

struct Corpus {
  int64_t sequence_length = 0;
  int64_t sequences_per_window = 1;          // 2: each window stands for a preference pair
  std::vector<std::string> documents;        // of bytes: one per file, in the plan's order
  std::optional<PreparedSplit> prepared[2];  // else, by SetSplit: documents are the training samples, then those held out
  std::vector<Window> training, held_out;
  Packing packing = Packing::kOff;
  PieceOrder order = PieceOrder::kShuffled;
  std::vector<MixturePart> mixture;                  // of the training windows; empty: each once an epoch
  int64_t training_tokens = 0, held_out_tokens = 0;  // valid targets
  std::string digest;  // of what the order of training sequences depends on: tokenizer, sequence length, training files
};

// Reads and verifies every file of plan.data. `plan_directory`: what a relative plan.data.root is relative to ("" = working
// directory). Errors (kData): no files, a file missing, of another size, of another digest, nothing to train on, ids that the
// vocabulary does not have.
enum class Verify { kDigests, kSizes };  // of the large files of a prepared set
Result<Corpus> read_corpus(const Plan& plan, const std::string& plan_directory, Verify verify = Verify::kDigests);

// Rows of an epoch, as numbers of training windows; those held out, filled in the same way.
PackedRows training_rows(const Corpus& corpus, int64_t seed, int64_t epoch);
PackedRows held_out_rows(const Corpus& corpus);

// Of pairs, of which these are the chosen ones.
std::vector<Window> rejected_windows(const Corpus& corpus, const std::vector<Window>& chosen);

// One row: ids[t] is the input at position t, targets[t] the token after it or kIgnoredTarget, positions[t] its place in its window.
// Padding counts as a window of its own. All have sequence_length elements; positions may be empty.
struct RowSpans {
  std::span<int64_t> ids, targets, positions;
};
void fill_row(const Corpus& corpus, std::span<const Window> windows, const RowSpans& row);
// Of one window.
void fill_sequence(const Corpus& corpus, const Window& window, std::span<int64_t> ids, std::span<int64_t> targets);

}  // namespace distsetup
