// Muon of torch.optim (Jordan et al., kellerjordan.github.io/posts/muon; the rate's factors: Liu et al., arXiv 2502.16982) on the
// matrices of blocks, AdamW on the rest. Orthogonalised is in bf16, as there, what ranks have gathered (plan/update_writer.h).
#pragma once
#include <memory>

#include "runtime/optim/optimizer.h"

namespace distsetup {

std::unique_ptr<Optimizer> make_muon(const TrainPlan& train, const OptimizerMemory& memory, const OptimizerPlace& place,
                                     Device& device);

// Five steps and more of Newton-Schulz on a matrix of bf16, in place. Scratch: two squares of the smaller side, and the matrix again.
void newton_schulz(const MatrixView& matrix, void* gram, void* polynomial, void* next, int64_t steps, const Kernels& kernels);

void muon_momentum_on_host(const MuonMomentum& update);
void decayed_step_on_host(const DecayedStep& update);
void normalize_on_host(void* values, int64_t n);

}  // namespace distsetup
