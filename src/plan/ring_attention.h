// Ring attention (arXiv 2310.01889) as ops: keys and values of the own tokens go round the c ranks that share sequences, a neighbour
// at a time, and each rank attends with its queries to what has come:
//   forward    ring_shift kv -> kv_1 (starts), ring_attention_first(q, kv), ring_wait kv_1, ring_shift kv_1 -> kv_2,
//              ring_attention(q, kv_1), …, ring_attention_last(q, kv_(c-1)) -> att, lse
//   backward   the same way round again; the gradients of keys and values travel with them in fp32, each rank adds its part, and after
//              c shifts they are home, where the part of the own queries is added last.
// While a shift is under way attention runs beside it; of the gradients each shift is waited for. Between steps the weighted sum of
// values and its log-sum-exp are kept in fp32. Every rank runs this one list: which keys its queries see follows from positions, that
// is from the rank's index and the op's attribute ring_step, how many ranks before this one the keys are from. No rank ever has more
// than two pieces of keys and values, where `allgather` has all c of them. Leaves out: gradients that travel while the rank computes.
#pragma once
#include <vector>

#include "plan/kernel_table.h"

namespace distsetup {

// Adds attention() or attention_split() over `ranks` ranks, at least 2. Problems are the builder's.
void add_ring(const Op& attention, int ranks, bool packed, ProgramBuilder& program);

std::vector<KernelRule> ring_rules();

}  // namespace distsetup
