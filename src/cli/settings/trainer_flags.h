// Flags of a training script behind `--` (`distsetup plan -- --from-scratch --batch-size 4`), as distsetup-train passes them on: those
// that a table of templates/ knows are settings over the files and below all else, all others are flags of the command itself.
#pragma once
#include "cli/settings/layers.h"

namespace distsetup {

// The command line with its own flags from behind `--` in their places. Errors: a flag that neither the table nor the command knows.
Result<Arguments> with_trainer_flags(const Arguments& arguments, const Session& session);

// What the script's flags say, over the files and below all else, and what the script assumes. Every flag acts, or a warning says by
// name that it is not supported here. Errors: values that the script refuses, flags that do not go together.
Layer script_layer(const Session& session);

}  // namespace distsetup
