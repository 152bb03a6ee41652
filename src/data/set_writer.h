// Writes a prepared data set, sample by sample. All or nothing: a folder beside the target is filled and renamed when it is whole.
#pragma once
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "base/digest.h"
#include "data/prepared_set.h"

namespace distsetup {

struct NewSample {
  std::vector<uint32_t> ids;
  std::vector<TrainedSpan> spans;  // in order, apart from each other
  TooLong too_long = TooLong::kContinues;
  uint32_t source = 0;
};

class SetWriter {
 public:
  // `folder` must not exist, or be empty.
  static Result<SetWriter> create(const std::string& folder);
  SetWriter(SetWriter&&) = default;
  ~SetWriter();  // of a set that was not finished: nothing is left

  Diagnostics add(const NewSample& sample, SetSplit split);
  const SplitCounts& counts(SetSplit split) const { return splits_[static_cast<size_t>(split)].counts; }  // so far
  // Fills in counts, lengths and files, writes dataset.json, gives the folder its name. Returns what was written.
  Result<SetDescription> finish(SetDescription description);

 private:
  // A file that is appended to, and digested on the way.
  struct Output {
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> file{nullptr, nullptr};
    std::string name;
    int64_t bytes = 0;
    Sha256 digest;
  };
  struct SplitFiles {
    Output tokens, samples, spans;
    SplitCounts counts;
  };

  SetWriter() = default;
  Diagnostics open(Output& output, const std::string& name);
  Diagnostics append(Output& output, const void* data, size_t bytes);
  Diagnostics close(Output& output);
  Diagnostics failed(const std::string& name, int number) const;

  std::string folder_, partial_;  // partial_ "": finished, or moved from
  SplitFiles splits_[2];
  std::vector<int64_t> lengths_;
  int64_t longest_ = 0;
};

}  // namespace distsetup
