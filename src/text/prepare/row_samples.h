// One row as what is trained on: a sample, the two of a preference pair, or a reason why it is of no use. prepare.h says what becomes
// of each kind of row.
#pragma once
#include <string>
#include <vector>

#include "data/set_writer.h"
#include "data/source_rows.h"
#include "text/prepare/prepare.h"

namespace distsetup {

struct RowSamples {
  std::vector<NewSample> together;  // of a pair: chosen, rejected
  std::string reason;               // why there is none; "": there is
};

// Belongs to one thread.
class RowTokenizer {
 public:
  explicit RowTokenizer(const PrepareRequest& request) : request_(request), encoder_(*request.tokenizer) {}

  // Errors stop everything: a conversation, and no template.
  Result<RowSamples> samples_of(const SourceRow& row);

 private:
  const PrepareRequest& request_;  // outlives this
  Encoder encoder_;
};

bool is_pair(const SourceRow& row);

}  // namespace distsetup
