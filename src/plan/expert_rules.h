// The rows of the kernel table (kernel_table.h) of experts. A token's k rows are among T·k rows that lie expert by expert, the tokens
// of each in order, whatever is routed where: every size is known beforehand, only where one expert's rows end is not.
//   route         each token's experts and their weights
//   sort_experts  order[i]: which of the T·k choices (token · k + place) is row i; place: the other way round; starts[e]: the
//                 first row of expert e, starts[E] = T·k
//   permute       rows of tokens -> rows of experts; unpermute is its adjoint, and the other way round
//   grouped_linear, ..._weighted   what each expert makes of its rows; the weights come in before the second product, so that what an
//                 expert has made need not be kept
//   unpermute     each token's rows added up, in the order of experts
// With a capacity an expert takes no more than so many rows, the first of its tokens: there are "Tc" rows at most, place is -1 for a
// choice that has none, order for a row that has no choice, and what lies there is never read. A dropped choice has no gradient.
// The loss that spreads tokens evenly (Fedus et al., arXiv 2101.03961, as Transformers computes it, over all layers at once) has the
// run buffer router_sums: how often each expert was chosen, and the sum of its probabilities, of a micro-batch. The z-loss (Zoph et
// al., arXiv 2202.08906, equation 5) is each layer's own: the mean over tokens of the square of log Σ exp of its logits.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/geometry.h"
#include "plan/kernel_table.h"
#include "plan/program.h"
#include "plan/program_builder.h"

namespace distsetup {

inline constexpr std::string_view kRouterSums = "router_sums", kRouterScale = "router_scale";

inline constexpr int64_t kMostExpertsPerToken = 64;

const std::vector<KernelRule>& expert_rules();

// Rows that each of E experts takes of so many choices, at most (Geometry::expert_capacity), and all of them together.
int64_t capacity_rows(double capacity, int64_t choices, int64_t num_experts);
int64_t sorted_rows(double capacity, int64_t choices, int64_t num_experts);
// The attributes of ops on rows of experts of which some may be dropped; and from them, how many choices a token has.
Op with_capacity(Op op, const Geometry& geometry);
inline int64_t choices_of_token(const OpAttributes& attributes, int64_t rows, int64_t tokens) {
  return attributes.capacity > 0 ? attributes.chosen : rows / tokens;
}

// The op sort_experts that an order, a place or starts come from, also where ranks told each other of them. Fails in `b` where there
// is none.
const Op& sorted_by(std::string index, ProgramBuilder& b);
// How many rows this rank's tokens send to experts: a size expression.
std::string rows_of_tokens(const std::string& index, ProgramBuilder& b);

// Does the program have experts?
bool has_experts(const Program& program);
// Is it a router's product, which an op of `forward` chooses by?
bool scores_experts(const Op& product, const std::vector<Op>& forward);

}  // namespace distsetup
