// Rows that hold several documents, which do not see each other. Two run buffers say where they lie, filled for each micro-batch:
//   positions   [T]: each token's place in its document
//   cu_seqlens  [cp T + 1]: where documents begin in the tokens of whole sequences, one document after the other; behind the last one
//               all entries are the number of tokens. Padding at the end of a sequence is a document of its own.
// Attention goes document by document, and rotary and learned positions start again with each. All other kernels take tokens one by
// one and stay as they are. With ulysses a rank attends over whole sequences, as one rank alone does; with ring and allgather each
// query looks up where its document begins, for which the CPU has kernels.
#pragma once
#include <string>
#include <vector>

#include "plan/kernel_table.h"
#include "plan/plan.h"
#include "plan/program.h"

namespace distsetup {

inline constexpr std::string_view kDocumentPositions = "positions", kDocumentStarts = "cu_seqlens";

// The op as it runs on packed rows: another kernel that reads the buffers too, or the op itself where documents do not matter to it.
Op over_documents(Op op);

const std::vector<KernelRule>& packed_rules();

// Why the plan cannot be packed, and what to do; "": it can, or is not packed.
struct PackingProblem {
  std::string message, help;
};
PackingProblem packing_problem(const Plan& plan);

}  // namespace distsetup
