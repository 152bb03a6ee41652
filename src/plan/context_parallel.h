// Context parallelism: c ranks share each sequence. It is cut into 2c chunks, of which rank r has the r-th from the front and the r-th
// from the back: with causal attention all ranks then have as many scores to compute (the "zigzag" of Llama 3, arXiv 2407.21783,
// section 3.3.2). A rank's rows of a sequence are its two chunks, one after the other. Every op sees the rank's own T tokens alone;
// only queries have to meet the keys of the other ranks. How they do is put in here, as ops:
//   allgather   kv_pack qkv -> kv[T], all_gather kv_all[c T], kv_sort kv_seq: the sequences as they are; attention of the own queries
//               with them. Backward: the gradients of all keys, sorted back, reduce_scatter, into the gradient of qkv.
//   ulysses     (DeepSpeed-Ulysses, arXiv 2309.14509) each rank attends with a / c of the heads, over whole sequences: heads_pack
//               qkv -> a part for each rank, all_to_all, heads_sort: the sequences as they are; attention; and the same back for att.
//   ring        (ring_attention.h) keys and values go round the ranks, a neighbour at a time.
#pragma once
#include <string>

#include "plan/native_program.h"
#include "plan/plan.h"
#include "plan/program_builder.h"

namespace distsetup {

bool is_attention(const Op& op);
// A communication op, over cp.
Op over_cp(Op op);
// Adds an op that is_attention(), and what it needs, as each of cp > 1 ranks runs it. Problems are the builder's.
void add_shared_attention(Op op, const ProgramSplit& split, ProgramBuilder& program);

// The load-balancing loss is of the whole sequences of a micro-batch: before `op`, if it is the one that adds it, come what the
// routers of all ranks have counted. Each rank then adds its part to the sum of losses, and has the whole gradient of its own tokens.
void share_balance(Op& op, int cp, ProgramBuilder& program);

// Why the model's attention cannot be shared so on any device; "": it can.
std::string ulysses_problem(const Geometry& geometry, int cp, CpMethod method);

// Why the plan's device has no kernel for attention that ranks share so; "": it has, or nothing is shared.
std::string shared_kernel_problem(const Plan& plan, int cp, CpMethod method);

// Why a sequence cannot be cut, with its numbers; "": it can.
std::string cut_problem(int64_t sequence_length, int cp);

}  // namespace distsetup
