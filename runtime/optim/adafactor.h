// Adafactor of torch.optim (Shazeer and Stern, arXiv 1804.04235): of a matrix the means of squares of each row and each column are
// kept, of a vector those of each element. Every rank has them all; sums go over the ranks that share the elements
// (plan/update_writer.h).
#pragma once
#include <memory>

#include "runtime/optim/optimizer.h"

namespace distsetup {

std::unique_ptr<Optimizer> make_adafactor(const TrainPlan& train, const OptimizerMemory& memory, const OptimizerPlace& place,
                                          Device& device);

void adafactor_on_host(AdafactorPass pass, const AdafactorUpdate& update);

}  // namespace distsetup
