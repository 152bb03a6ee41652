// Values for the fields that a table's conditions ask about, such that most of a file's keys are what the table writes. Exact: the few
// fields that tie a group together (hubs: which engine, which sharding) take their values one by one, and under each the rest falls
// into small groups of its own, whose combinations are all tried.
#pragma once
#include <vector>

#include "codegen/read/key_reading.h"

namespace distsetup {

// A field that the file settles: some value of it would account for fewer keys. `evidence`: a key that another value would lose.
struct SettledField {
  size_t variable = 0;
  const FoundKey* evidence = nullptr;
  bool is_guess = false;  // another value accounts for as many
};

// Leaves the best values in explainer.chosen(); of several, the first in the order of the domains.
std::vector<SettledField> search_values(Explainer& explainer);

}  // namespace distsetup
