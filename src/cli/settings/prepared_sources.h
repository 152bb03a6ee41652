// A run that names its sources trains on their token ids, one that asks for synthetic data on random ones. Those are made once and
// kept (data.cache), in a folder whose name says what they were made of: the same sources, tokenizer and template find it again, also
// from other ranks and runs, without being read. What counts of a file is its path, its size and when it was changed, not its bytes;
// what a template writes of today's date does not count.
#pragma once
#include "cli/line/flags.h"
#include "model/presets.h"
#include "planner/spec/spec.h"

namespace distsetup {

// The settings with data.paths in place of data.sources or data.synthetic, where there are any and the bundled trainer runs them;
// other trainers read their own data, which a warning says. Says where the token ids are, and which rows were dropped. On a terminal
// it counts rows. Errors: sources beside data.paths, settings of sources without any; no tokenizer; what prepare() refuses.
Result<Spec> with_prepared_sources(const Arguments& arguments, const Presets& presets, const Spec& spec);

}  // namespace distsetup
