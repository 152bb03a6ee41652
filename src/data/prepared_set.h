// A prepared data set: texts as token ids on disk, ready to be trained on. `distsetup data prepare` writes one, the planner counts its
// tokens, the trainer reads it. A folder:
//
//   dataset.json                      what it was made from and with, counts, digests; written last: without it there is no set
//   training.tokens, held_out.tokens  the ids of all samples, one after the other, 32 bits each
//   training.samples, held_out.…      a SampleRecord for each sample
//   training.spans, held_out.…        pairs of 32-bit numbers: tokens [begin, end) of a sample that are trained, as targets
//
// Numbers are little-endian. A sample is a document, a conversation, or one half of a preference pair: of a set of pairs sample 2 i
// was chosen and sample 2 i + 1 rejected; their spans begin at the same token, where their common prompt ends. held_out.* may be
// missing. Leaves out: images, sounds, ids beyond 32 bits.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.h"

namespace distsetup {

inline constexpr std::string_view kSetDescriptionFile = "dataset.json";

// What happens to tokens beyond a training sequence.
enum class TooLong : uint32_t {
  kContinues = 0,  // they are the next sequence: a text
  kIsCut = 1       // they are left out: an answer without its question teaches nothing
};

// As it lies in the file, 32 bytes.
struct SampleRecord {
  uint64_t first_token = 0, first_span = 0;  // in the split's files; spans are counted in pairs
  uint32_t num_tokens = 0, num_spans = 0;
  TooLong too_long = TooLong::kContinues;
  uint32_t source = 0;  // of SetDescription::sources
};
static_assert(sizeof(SampleRecord) == 32);

struct TrainedSpan {
  uint32_t begin = 0, end = 0;
  bool operator==(const TrainedSpan&) const = default;
};
static_assert(sizeof(TrainedSpan) == 8);

enum class SetSplit { kTraining, kHeldOut };
std::string_view name(SetSplit split);  // "training", "held_out"

struct SetFile {
  std::string path;  // below the set's folder
  int64_t bytes = 0;
  std::string sha256;
};
struct SplitCounts {
  int64_t samples = 0, tokens = 0, trained_tokens = 0;
};
struct SetSource {
  std::string path, sha256, format;
  int64_t rows = 0;                        // read from it
  std::map<std::string, int64_t> dropped;  // rows by reason
};
// Some of the sources, which follow each other, and how much of training comes from them (epoch_order.h).
struct SetPart {
  std::string path;  // as it was given: a file, or a folder of them
  double weight = 0;
  int64_t num_sources = 0;
};
struct SetDescription {
  std::string tokenizer, tokenizer_digest;  // file name, SHA-256
  std::string template_digest;              // "": no chat template was needed
  int64_t vocabulary_size = 0;              // ids are below it
  bool holds_pairs = false;                 // every two samples are a preference pair
  int64_t longest = 0;                      // tokens of the longest sample
  SplitCounts training, held_out;
  std::vector<SetSource> sources;
  std::vector<SetPart> mixture;  // of all sources; empty: every sample once an epoch
  std::vector<int64_t> lengths;  // samples with up to 2^i tokens and more than 2^(i-1)
  std::vector<SetFile> files;
};

bool is_prepared_set(const std::string& folder);
// Errors: no such file, not JSON, another format or version, a key missing or of another type.
Result<SetDescription> read_set_description(const std::string& folder);

// One split, mapped into memory. Reading a token may fault where a disk fails: verify the files' digests first.
class PreparedSplit {
 public:
  // Errors: a file missing, or of a size that the table does not bear out; a sample or a span that reaches beyond its file.
  static Result<PreparedSplit> open(const std::string& folder, SetSplit split);

  int64_t size() const { return static_cast<int64_t>(samples_.size()); }
  const SampleRecord& sample(int64_t i) const { return samples_[static_cast<size_t>(i)]; }
  std::span<const uint32_t> tokens(int64_t i) const;
  std::span<const TrainedSpan> spans(int64_t i) const;

 private:
  std::vector<std::shared_ptr<const void>> mappings_;
  std::span<const uint32_t> tokens_;
  std::span<const SampleRecord> samples_;
  std::span<const TrainedSpan> spans_;
};

// Targets of tokens (begin, end] that are trained.
int64_t num_trained(std::span<const TrainedSpan> spans, int64_t begin, int64_t end);

}  // namespace distsetup
