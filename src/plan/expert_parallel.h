// Expert parallelism (Lepikhin et al., arXiv 2006.16668): ep ranks share the experts of each layer, the first E / ep of them on the
// first rank, and rows travel to the rank that has their expert and back. A family's file is written for one rank; what its ops
// become:
//   sort_experts    and every rank tells the others how many rows of each expert it has (gather_starts): from then on each knows how
//                   many go where, and where the rows of its own experts lie among those that come (own_starts)
//   permute         then dispatch_rows: T k rows of this rank's tokens -> at most Te rows of this rank's experts, expert by expert, of
//                   each those of the first rank first
//   ..._weighted    the weights travel as the rows do, then ..._weighted_rows
//   grouped_linear  with the experts that the rank has
//   unpermute       after collect_rows, the way back
// With tensor parallelism a rank's tokens are its part of those that norms see, and ranks of tp are among those that share experts.
// No row is dropped, unless experts have a capacity. Memory is that of the most rows that can come: Te = ep T min(k, E / ep), all
// tokens of all ranks to the experts of one, or what these take. What lies behind the rows that came is never read.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "plan/kernel_table.h"
#include "plan/native_program.h"
#include "plan/program_builder.h"

namespace distsetup {

const std::vector<KernelRule>& expert_parallel_rules();

// An op on rows of experts: add_over_experts() adds it, and what it needs, as each of ep > 1 ranks runs it.
bool has_expert_rows(const Op& op);
void add_over_experts(Op op, ProgramBuilder& program);

// The symbol Te: rows that can come to the experts of a rank, of ranks with so many tokens each.
int64_t most_expert_rows(const Geometry& geometry, int64_t tokens, int ep);
// Why the experts cannot be split, with numbers; "": they can, or are not.
std::string expert_split_problem(const Geometry& geometry, const ProgramSplit& split);
// What the bundled trainer refuses of a plan with expert parallelism, or with experts and tensor parallelism, each by name.
Diagnostics check_expert_parallel(const Plan& plan);

int64_t expert_parameters(const Geometry& geometry);  // of all layers together

}  // namespace distsetup
