// `distsetup-service jobs VERB …`: what `distsetup jobs` becomes. `distsetup` has checked the flags and knows no HTTP; this has the
// rest.
#pragma once
#include <string>
#include <vector>

namespace distsetup {

// `words`: the verb, flags as --name=value, then "--" and what stands alone. The exit code.
int run_jobs_client(const std::vector<std::string>& words);

}  // namespace distsetup
