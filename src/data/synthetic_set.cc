#include "data/synthetic_set.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/splitmix.h"
#include "data/set_writer.h"

namespace distsetup {

Result<SetDescription> write_synthetic_set(const SyntheticSet& set, const std::string& folder) {
  CHECK(set.samples > 0 && set.sequence_length > 0 && set.vocabulary_size > 0, "{} {} {}", set.samples, set.sequence_length,
        set.vocabulary_size);
  Result<SetWriter> writer = SetWriter::create(folder);
  if (!writer.ok()) return writer.diagnostics;
  NewSample sample;
  sample.ids.resize(static_cast<size_t>(set.sequence_length) + 1);
  sample.spans = {{0, static_cast<uint32_t>(sample.ids.size())}};
  uint64_t state = 0;
  for (int64_t i = 0; i < set.samples; ++i) {
    for (uint32_t& id : sample.ids)
      id = static_cast<uint32_t>(splitmix(state += kSplitMixStep) % static_cast<uint64_t>(set.vocabulary_size));
    const bool held_out = set.held_out_every > 0 && i % set.held_out_every == set.held_out_every - 1;
    Diagnostics said = writer->add(sample, held_out ? SetSplit::kHeldOut : SetSplit::kTraining);
    if (has_error(said)) return said;
  }
  SetDescription description;
  description.tokenizer = fmt::format("random ids below {}", set.vocabulary_size);
  description.vocabulary_size = set.vocabulary_size;
  return writer->finish(std::move(description));
}

}  // namespace distsetup
