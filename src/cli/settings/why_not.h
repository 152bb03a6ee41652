// `distsetup plan --why-not "zero1 tp=8"`: the plan that somebody has in mind, beside the one that was made.
#pragma once
#include <string>

#include "cli/settings/run_source.h"

namespace distsetup {

// What becomes of the run with these words pinned, and the rule that decided against it. Words: KEY=VALUE by the key's path or any of
// its flags, "tp8" for "tp=8", and bare values of what is searched ("zero1", "full"). Errors: words that are none of these.
Result<std::string> explain_why_not(const Arguments& arguments, const Session& session, const PlanSource& made,
                                    const std::string& words);

}  // namespace distsetup
