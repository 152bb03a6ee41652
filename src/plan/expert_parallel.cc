#include "plan/expert_parallel.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "model/count.h"
#include "plan/expert_rules.h"
#include "plan/optimizer.h"
#include "plan/reference.h"
#include "plan/sinks_biases.h"

namespace distsetup {
namespace {

using Builder = ProgramBuilder;

constexpr std::string_view kWeighted = "_weighted";
constexpr const char* kMostRows = "Te";

// --- what the ranks tell each other

// starts [E + 1] -> those of all ranks, one after the other
void declare_all_starts(const Op& op, Builder& b) { b.declare(op.writes[0], {"ep", "E+1"}, b.dtype(op.reads[0])); }
// -> starts of this rank's experts
void declare_own_starts(const Op& op, Builder& b) { b.declare(op.writes[0], {"E/ep+1"}, b.dtype(op.reads[0])); }

// router_sums -> those of all ranks of tp or cp -> router_sums, of the tokens of all
void declare_all_routes(const Op& op, Builder& b) {
  b.declare(op.writes[0], {op.group == Group::kCp ? "cp" : "tp", "2", "E"}, Dtype::kF64);
}
void declare_run_buffer(const Op& op, Builder& b) { (void)b.shape(op.writes[0]); }

// --- rows, starts of all ranks -> rows

void declare_dispatched(const Op& op, Builder& b) {
  b.declare(op.writes[0], {kMostRows, b.shape(op.reads[0])[1]}, b.dtype(op.reads[0]));
}
void declare_collected(const Op& op, Builder& b) {
  b.declare(op.writes[0], {rows_of_tokens(op.reads[1], b), b.shape(op.reads[0])[1]}, b.dtype(op.reads[0]));
}
void travel_back(const Op& op, std::string_view kernel, Builder& b) {
  if (!b.gradient(op.reads[0]).empty()) b.fail("op '" + op.name + "' reads rows of experts that another op reads too");
  Op back =
      adjoint_op(op, "_b", OpKind::kAllToAll, std::string(kernel), {b.incoming(op.writes[0]), op.reads[1]}, {b.target(op.reads[0])});
  back.group = op.group;
  b.backward(std::move(back));
}
void dispatch_adjoint(const Op& op, Builder& b) { travel_back(op, kCollectRows, b); }
void collect_adjoint(const Op& op, Builder& b) { travel_back(op, kDispatchRows, b); }

// --- weights

// weights [T, k], order -> those of each row
void declare_sorted_weights(const Op& op, Builder& b) { b.declare(op.writes[0], {b.shape(op.reads[1])[0], "1"}, Dtype::kF32); }
void sorted_weights_adjoint(const Op& op, Builder& b) {
  b.backward(adjoint_op(op, "_b", OpKind::kCopy, "unsort_weights", {b.incoming(op.writes[0]), op.reads[1]}, {b.target(op.reads[0])}));
}
// gate and up, weights of rows, starts of the own experts -> m
void declare_weighted_rows(const Op& op, Builder& b) {
  const std::vector<std::string> in = b.shape(op.reads[0]);
  b.declare(op.writes[0], {in[0], "(" + in[1] + ")/2"});
}
void weighted_rows_adjoint(const Op& op, Builder& b) {
  const std::string dm = b.incoming(op.writes[0]);
  b.backward(adjoint_op(op, "_b", OpKind::kElementwise, op.kernel + "_backward", {dm, op.reads[0], op.reads[1], op.reads[2]},
                        {b.target(op.reads[0]), b.target(op.reads[1])}, {{0, 1}}));
}

// --- ops of one rank as those of several

Op op_of(const Op& of, std::string_view suffix, std::string_view kernel, std::vector<std::string> reads, std::string write) {
  Op op;
  op.name = of.name + std::string(suffix);
  op.kernel = kernel;
  op.reads = std::move(reads);
  op.writes = {std::move(write)};
  op.attributes = of.attributes;
  return op;
}
Op over_ep(Op op) {
  op.group = Group::kEp;
  return op;
}

std::string all_starts(const std::string& starts) { return starts + "_all"; }
std::string own_starts(const std::string& starts) { return starts + "_own"; }

// The starts that were found with this order or place of rows.
std::string starts_beside(const std::string& index, Builder& b) { return sorted_by(index, b).writes[2]; }

void add_sort(Op op, Builder& b) {
  const std::string starts = op.writes[2];
  const Op of = op;
  b.add(std::move(op));
  b.add(over_ep(op_of(of, "_gather", "gather_starts", {starts}, all_starts(starts))));
  b.add(op_of(of, "_own", "own_starts", {all_starts(starts)}, own_starts(starts)));
}
void add_permute(Op op, Builder& b) {
  const std::string rows = op.writes[0], starts = starts_beside(op.reads[1], b);
  const Op dispatch = over_ep(op_of(op, "_dispatch", kDispatchRows, {rows + "_sent", all_starts(starts)}, rows));
  op.writes[0] += "_sent";
  b.add(std::move(op));
  b.add(dispatch);
}
void add_weighted(Op op, Builder& b) {
  const std::string weights = op.reads[1], order = op.reads[2], starts = starts_beside(order, b);
  b.add(op_of(op, "_sort", "sort_weights", {weights, order}, weights + "_sent"));
  b.add(over_ep(op_of(op, "_dispatch", kDispatchRows, {weights + "_sent", all_starts(starts)}, weights + "_rows")));
  op.kernel += "_rows";
  op.reads[1] = weights + "_rows", op.reads[2] = own_starts(starts);
  b.add(std::move(op));
}
void add_unpermute(Op op, Builder& b) {
  const std::string rows = op.reads[0], starts = starts_beside(op.reads[1], b);
  b.add(over_ep(op_of(op, "_collect", kCollectRows, {rows, all_starts(starts)}, rows + "_back")));
  op.reads[0] = rows + "_back";
  b.add(std::move(op));
}

bool has_weights(const Op& op) { return op.kernel.ends_with(kWeighted) && op.reads.size() == 3; }

}  // namespace

const std::vector<KernelRule>& expert_parallel_rules() {
  using enum OpKind;
  static const std::vector<KernelRule> rules = {
      {"gather_starts", kAllGather, 1, 1, {}, declare_all_starts, nullptr, no_adjoint},
      {"own_starts", kElementwise, 1, 1, {}, declare_own_starts, nullptr, no_adjoint},
      {"gather_routes", kAllGather, 1, 1, {}, declare_all_routes, nullptr, no_adjoint},
      {"sum_routes", kElementwise, 1, 1, {}, declare_run_buffer, nullptr, no_adjoint},
      {kDispatchRows, kAllToAll, 2, 1, {}, declare_dispatched, nullptr, dispatch_adjoint},
      {kCollectRows, kAllToAll, 2, 1, {}, declare_collected, nullptr, collect_adjoint},
      {"sort_weights", kCopy, 2, 1, {}, declare_sorted_weights, nullptr, sorted_weights_adjoint},
      {"swiglu_weighted_rows", kElementwise, 3, 1, {}, declare_weighted_rows, nullptr, weighted_rows_adjoint},
      {"geglu_weighted_rows", kElementwise, 3, 1, {}, declare_weighted_rows, nullptr, weighted_rows_adjoint},
      {"geglu_tanh_weighted_rows", kElementwise, 3, 1, {}, declare_weighted_rows, nullptr, weighted_rows_adjoint},
      {"clipped_swiglu_weighted_rows", kElementwise, 3, 1, {}, declare_weighted_rows, nullptr, weighted_rows_adjoint}};
  return rules;
}

bool has_expert_rows(const Op& op) {
  return op.kernel == "sort_experts" || op.kernel == "permute" || op.kernel == "grouped_linear" || op.kernel == kGroupedBias ||
         op.kernel.starts_with("unpermute") || has_weights(op);
}

void add_over_experts(Op op, ProgramBuilder& b) {
  if (op.kernel == "sort_experts") return add_sort(std::move(op), b);
  if (op.kernel == "permute") return add_permute(std::move(op), b);
  if (has_weights(op)) return add_weighted(std::move(op), b);
  if (op.kernel.starts_with("unpermute")) return add_unpermute(std::move(op), b);
  op.reads.back() = own_starts(op.reads.back());
  b.add(std::move(op));
}

int64_t most_expert_rows(const Geometry& g, int64_t tokens, int ep) {
  if (g.num_experts == 0) return 0;
  const int64_t own = g.num_experts / ep, choices = tokens * g.experts_per_token;
  return ep * std::min(tokens * std::min(g.experts_per_token, own), own * capacity_rows(g.expert_capacity, choices, g.num_experts));
}

std::string expert_split_problem(const Geometry& g, const ProgramSplit& split) {
  const bool has_copy = split.preference && keeps_reference(*split.preference);
  if (split.tp > 1 && g.num_experts > 0 && has_copy)
    return fmt::format("a frozen copy of its experts as the reference of pairs with tensor parallelism over {} ranks", split.tp);
  if (split.ep == 1) return "";
  if (g.num_experts == 0) return fmt::format("it has no experts, and ep is {}", split.ep);
  if (g.num_experts % split.ep != 0)
    return fmt::format("{} experts over ep {} are {} for each rank and {} left over", g.num_experts, split.ep,
                       g.num_experts / split.ep, g.num_experts % split.ep);
  if (has_copy) return fmt::format("a frozen copy of its experts, which {} ranks share, as the reference of pairs", split.ep);
  return "";
}

Diagnostics check_expert_parallel(const Plan& p) {
  Diagnostics out;
  const Mesh& m = p.mesh;
  const bool over_tensor_ranks = m.tp > 1 && p.model.num_experts > 0;
  if (m.ep == 1 && !over_tensor_ranks) return out;
  const auto refuse = [&](bool condition, std::string_view code, std::string message, std::string help) {
    if (condition) out.push_back(error(code, {}, std::move(message), std::move(help)));
  };
  const int ranks = m.dp_shard * m.cp * m.tp;
  const std::string product = m.tp > 1 ? fmt::format("dp_shard {} × cp {} × tp {} = {}", m.dp_shard, m.cp, m.tp, ranks)
                                       : fmt::format("dp_shard {} × cp {} = {}", m.dp_shard, m.cp, ranks);
  const bool shards_nothing = p.strategy.sharding == Sharding::kDdp;
  refuse(shards_nothing && ranks != m.ep, code::kMeshInvalid,
         fmt::format("with ddp the ranks of {} share experts alone, and ep is {}", product, m.ep),
         fmt::format("--ep {}, or --sharding zero1", ranks));
  refuse(!shards_nothing && ranks % m.ep != 0, code::kMeshInvalid, fmt::format("ep {} does not divide {} ranks", m.ep, product),
         fmt::format("--ep 1, or a multiple of {} as dp_shard", m.ep));
  refuse(!keeps_elements(p.train.optimizer) && m.ep > 1, code::kUnsupportedFeature,
         fmt::format("{} sees whole matrices, and ep {} leaves each rank other ones: the native trainer does not run it with ep",
                     p.train.optimizer, m.ep),
         "--ep 1, or --optimizer adamw");
  return out;
}

int64_t expert_parameters(const Geometry& g) {
  if (g.num_experts == 0) return 0;
  int64_t layers = 0;
  for (int64_t layer = 0; layer < g.num_layers; ++layer) layers += is_expert_layer(g, layer) ? 1 : 0;
  return layers * g.num_experts * (g.gated_mlp ? 3 : 2) * g.expert_width() * g.expert_feed_forward;
}

}  // namespace distsetup
