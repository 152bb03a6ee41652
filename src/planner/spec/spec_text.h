// A Spec as text: one sorted line per setting for the inputs digest, and as run.yaml that reads back as the same Spec.
#pragma once
#include <string>

#include "planner/spec/spec.h"

namespace distsetup {

// The spec as text, one `path = value` a line, sorted: part of the inputs digest.
std::string canonical_text(const Spec& spec);
// The spec as run.yaml text that reads back as the same Spec.
std::string to_yaml(const Spec& spec);

}  // namespace distsetup
