// Rows into tokens on several threads.
#pragma once
#include <memory>
#include <vector>

#include "text/prepare/row_samples.h"

namespace distsetup {

class TokenizingThreads {
 public:
  explicit TokenizingThreads(const PrepareRequest& request);  // which outlives this

  size_t size() const { return tokenizers_.size(); }
  // Of each row, in their order.
  std::vector<Result<RowSamples>> samples_of(const std::vector<SourceRow>& rows);

 private:
  std::vector<std::unique_ptr<RowTokenizer>> tokenizers_;  // one for each thread: each remembers the words that it has seen
};

}  // namespace distsetup
