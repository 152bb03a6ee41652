// `distsetup emit --coverage`: every plan field × every target: emitted, refused, or not applicable and why.
#pragma once
#include "cli/line/flags.h"

namespace distsetup {

int show_coverage(const Arguments& arguments, const Terminal& terminal);

}  // namespace distsetup
