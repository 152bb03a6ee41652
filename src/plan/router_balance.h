// Balancing without a loss (DeepSeek V3, arXiv 2412.19437, section 2.1.2): each step moves an expert's correction, which takes part in
// the choice alone, down where it had more tokens than an equal share and up where it had fewer. Backward leaves the tokens above the
// share where the correction's gradient would be, so that the reductions of gradients add them up over ranks and micro-batches.
#pragma once
#include <vector>

#include "plan/layout.h"

namespace distsetup {

// Where a rank's flat shard has corrections, of one unit or (-1) of all.
std::vector<ElementRange> balance_ranges(const Layout& layout, const Coordinates& at, int of_unit);

// master -= rate · sign(above), element by element.
void move_corrections(const std::vector<ElementRange>& ranges, double rate, const float* above, float* master);

}  // namespace distsetup
