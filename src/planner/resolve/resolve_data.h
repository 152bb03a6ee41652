// What the data's tokens are to the model that reads them.
#pragma once
#include "planner/resolve/resolving.h"

namespace distsetup {

// Errors: text that is read as bytes, for weights with a tokenizer of their own; nothing to train on within a sequence. Warnings: a
// set that was prepared with another tokenizer, samples that are cut.
void check_data_tokens(Resolving& r);

}  // namespace distsetup
