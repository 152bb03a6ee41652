// `distsetup init --site`: what this machine says about the cluster, as site.yaml.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "cli/line/flags.h"

namespace distsetup {

// Keys of site.yaml with their values, as far as they can be seen from here: partition and how GPUs are requested (sinfo), longest
// job, modules of this shell, the interface of the default route, a node-local scratch folder. Changes nothing and asks nothing.
std::vector<std::pair<std::string, std::vector<std::string>>> detect_site();

// Writes --output (site.yaml unless given; refused when it exists with other content, unless --force). On a terminal the partition and
// the account are asked for, with what was seen as the answer.
int run_init_site(const Arguments& arguments, const Terminal& terminal);

}  // namespace distsetup
