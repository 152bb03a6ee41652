// Sequences of random token ids as a prepared set: to try a run out, or to measure it, without data. Nothing can be learned from them:
// the loss stays near ln(vocabulary).
#pragma once
#include <cstdint>
#include <string>

#include "base/diagnostic.h"
#include "data/prepared_set.h"

namespace distsetup {

struct SyntheticSet {
  int64_t samples = 0;          // those held out counted
  int64_t sequence_length = 0;  // targets of each: it has one token more
  int64_t vocabulary_size = 0;  // ids are below it
  int64_t held_out_every = 0;   // the last of every so many is held out; 0: none
};
// The same ids each time. Errors: what cannot be written.
Result<SetDescription> write_synthetic_set(const SyntheticSet& set, const std::string& folder);

}  // namespace distsetup
