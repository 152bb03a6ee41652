// What of a run came from the files of other tools, and what nobody said.
#pragma once
#include <string>

#include "base/diagnostic.h"
#include "planner/spec/spec.h"

namespace distsetup {

// A note for whoever reads the numbers of a plan: the settings that `files` (a name for the user) say, those that their tool takes
// unasked, and the ones a plan depends on that neither the files nor `stronger` (flags, variables, the run file) say.
Diagnostic tell_file_origins(const std::string& files, const Spec& given, const Spec& assumed, const Spec& stronger);

}  // namespace distsetup
