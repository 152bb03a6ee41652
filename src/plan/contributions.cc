#include "plan/contributions.h"

#include <algorithm>

#include "base/splitmix.h"
#include "plan/node_reduction.h"

namespace distsetup {
namespace {

// A number that stands for one contribution.
uint64_t token(uint64_t kind, uint64_t a, uint64_t b = 0, uint64_t c = 0, uint64_t d = 0) {
  uint64_t x = 0;
  for (const uint64_t part : {kind, a, b, c, d}) x = splitmix(x + part + kSplitMixStep);
  return x;
}
enum TokenKind : uint64_t {
  kGradientToken,
  kLossToken,
  kNormToken,
  kStaleToken,
  kForwardToken,
  kBackwardToken,
  kKeptToken,
  kUpdateToken,
  kReferenceToken,
  kReferenceForwardToken,
  kRoutesToken
};

}  // namespace

Contributions::Contributions(const Mesh& mesh, const std::vector<const Schedule*>& by_rank) : ranks(by_rank.size()), mesh_(mesh) {
  for (size_t r = 0; r < by_rank.size(); ++r) {
    auto& list = lists_[by_rank[r]];
    if (list == nullptr) list = std::make_unique<JobList>(*by_rank[r]);
    ranks[r].list = list.get();
    for (int slot = 0; slot < list->num_slots; ++slot) ranks[r].value.push_back(token(kStaleToken, r, slot));
    ranks[r].inbox.resize(by_rank[r]->buffers.size());
    ranks[r].forwards.resize(by_rank[r]->layout->num_programs);
    ranks[r].backwards = ranks[r].references = ranks[r].forwards;
    const int start = by_rank[r]->phase == Phase::kLoad ? -1 : 0;
    ranks[r].own.assign(list->num_slots, start);
    ranks[r].whole.assign(list->num_slots, start);
  }
}

const std::vector<int>& Contributions::members(Group group, int rank) {
  auto& known = groups_[{group, rank}];
  if (known.empty()) known = group_members(mesh_, group, rank);
  return known;
}

// --- what instructions do to contributions

void Contributions::begin(JobRank& r, const Instruction& i) {
  for (const int b : i.allocates) {
    if (r.list->s.buffers[b].lifetime == BufferLifetime::kRun) continue;
    const int slot = r.list->first_slot[b];
    r.value[slot] = token(kStaleToken, slot);
    r.own[slot] = r.whole[slot] = -1;
  }
}

void Contributions::local(int rank, const Instruction& i) {
  JobRank& r = ranks[rank];
  if (belongs_to_update(r.list->s, i)) return update_part(rank, i);
  switch (i.op) {
    case InstructionOp::kCast: {
      const int slot = r.list->slot(i.uses[1], i.unit), from = r.list->slot(i.uses[0], i.unit);
      const bool is_raised = r.list->s.buffers[i.uses[0]].name == kDeviceShard;  // copied up before
      r.own[slot] = is_raised ? r.own[from] : i.stream == Stream::kHost && !has_stepped(r, i.unit) ? r.start : r.version;
      r.whole[slot] = r.list->s.layout->units[i.unit].shard_ranks == 1 ? r.own[slot] : -1;
      break;
    }
    case InstructionOp::kCopyToHost:
      if (i.uses.size() == 2) r.value[r.list->slot(i.uses[1], i.unit)] = r.value[r.list->slot(i.uses[0], i.unit)];
      break;
    case InstructionOp::kCopyToDevice: copy_to_device(r, i); break;
    case InstructionOp::kForward:
    case InstructionOp::kBackward: compute(rank, i); break;
    case InstructionOp::kAccumulate: accumulate(r, i); break;
    case InstructionOp::kZero:
      for (const int b : i.uses) r.value[r.list->slot(b, 0)] = 0;
      break;
    case InstructionOp::kGradNorm: norm(rank, i); break;
    case InstructionOp::kOptimizerStep: optimizer(rank, i); break;
    default: break;
  }
}

void Contributions::compute(int rank, const Instruction& i) {
  JobRank& r = ranks[rank];
  const bool is_forward = i.op == InstructionOp::kForward;
  const int64_t m = (is_reference(i) ? r.references : is_forward ? r.forwards : r.backwards)[i.unit]++;
  check_flow(rank, i, m);
  const JobList::Touched& touched = r.list->programs[index(r)];
  for (const int slot : touched.parameters) {
    require(r.whole[slot] >= 0, rank, "computes with parameters that have not been gathered");
    require(r.whole[slot] < 0 || r.whole[slot] == r.version, rank, "computes with parameters of {} optimizer steps ago",
            r.version - r.whole[slot]);
  }
  check_reference(rank, i, touched, m);
  if (touched.adds_loss) r.value[r.list->slot(r.list->loss, 0)] += token(kLossToken, rank, m, is_forward ? 0 : 1);
  for (const JobList::Touched::Write& w : touched.gradients) {
    uint64_t& value = r.value[w.slot];
    if (w.fresh) value = 0;
    // Rows of all ranks that share a layer's experts have come to this one's.
    const bool of_experts = r.list->s.layout->units[w.unit].kind == UnitKind::kExperts;
    for (const int from : members(of_experts ? Group::kEp : Group::kSelf, rank))
      value += token(kGradientToken, from, m, i.unit, w.unit);
  }
}

// The loss reads what the reference made of the same micro-batch, in a forward that went through all units.
void Contributions::check_reference(int rank, const Instruction& i, const JobList::Touched& touched, int64_t m) {
  JobRank& r = ranks[rank];
  if (!runs_reference(r.list->s)) return;
  const bool is_first_here = i.unit == 0 || i.stage.x >= 0;  // what comes from another stage is check_flow's
  require(!is_reference(i) || is_first_here || r.references[i.unit - 1] == m + 1, rank,
          "the reference has not run the unit before in this micro-batch");
  if (!touched.writes_logps && !touched.reads_logps) return;
  uint64_t& logps = r.value[r.list->slot(r.list->reference_logps, 0)];
  const uint64_t expected = token(kReferenceToken, rank, m);
  require(!touched.reads_logps || logps == expected, rank,
          "the loss reads other log-probabilities than the reference's of its micro-batch");
  if (touched.writes_logps) logps = expected;
}

// The same on all stages that a rank talks to.
int Contributions::line_of(int rank) const {
  Coordinates at = coordinates(mesh_, rank);
  at.pp = 0;
  return rank_of(mesh_, at);
}

// Of a pipeline: what comes from another stage, and what forward kept, are of this micro-batch.
void Contributions::check_flow(int rank, const Instruction& i, int64_t m) {
  const StageTensors& t = i.stage;
  JobRank& r = ranks[rank];
  if (t == StageTensors{} && r.list->router_sums < 0) return;
  const int line = line_of(rank);
  const auto value = [&](int buffer, int unit) -> uint64_t& { return r.value[r.list->slot(buffer, unit)]; };
  const TokenKind forward = is_reference(i) ? kReferenceForwardToken : kForwardToken;
  // What the routers up to a unit have chosen, where a message has it.
  const auto carried = [&](bool has, int unit) { return has ? token(kRoutesToken, line, m, static_cast<uint64_t>(unit)) : 0; };
  const int last = r.list->s.layout->num_programs - 1;
  // Backward reads the rows of the message again, not what came behind them.
  const bool is_message = t.x >= 0 && r.list->router_sums >= 0 && r.list->s.buffers[t.x].lifetime == BufferLifetime::kStep;
  const bool has_routes = i.op == InstructionOp::kForward ? t.routes_in == t.x : is_message;
  require(t.x < 0 || value(t.x, 0) == token(forward, line, m, i.unit - 1, carried(has_routes, i.unit - 1)), rank,
          "reads another x than unit {} sent", i.unit - 1);
  require(t.dy < 0 || value(t.dy, 0) == token(kBackwardToken, line, m, i.unit + 1, carried(t.routes_in == t.dy, last)), rank,
          "reads another dy than unit {} sent", i.unit + 1);
  const uint64_t routes = check_routes(rank, i, m);
  if (t.y >= 0) value(t.y, 0) = token(forward, line, m, i.unit, t.routes_out == t.y ? routes : 0);
  if (t.dx >= 0) value(t.dx, 0) = token(kBackwardToken, line, m, i.unit, t.routes_out == t.dx ? routes : 0);
  if (t.kept < 0) return;
  const uint64_t kept = token(kKeptToken, line, m, i.unit);
  require(i.op == InstructionOp::kForward || value(t.kept, i.unit) == kept, rank, "reads what another micro-batch kept");
  if (i.op == InstructionOp::kForward) value(t.kept, i.unit) = kept;
}

// Of the load-balancing loss: forward adds what a unit's routers choose to what those of all units before have chosen, and backward
// reads that of all units. Returns what is there after the instruction.
uint64_t Contributions::check_routes(int rank, const Instruction& i, int64_t m) {
  JobRank& r = ranks[rank];
  if (r.list->router_sums < 0 || is_reference(i)) return 0;
  const int line = line_of(rank), last = r.list->s.layout->num_programs - 1;
  const auto up_to = [&](int unit) { return token(kRoutesToken, line, m, static_cast<uint64_t>(unit)); };
  const bool is_forward = i.op == InstructionOp::kForward;
  const uint64_t expected = up_to(is_forward ? i.unit - 1 : last);
  uint64_t& sums = r.value[r.list->slot(r.list->router_sums, 0)];
  if (i.stage.routes_in >= 0) sums = expected;
  require((is_forward && i.unit == 0) || sums == expected, rank, "does not have what the routers of {} have chosen",
          is_forward ? "the units before" : "all units");
  return sums = is_forward ? up_to(i.unit) : expected;
}

// The norm, an activation, or a unit's parameters.
void Contributions::copy_to_device(JobRank& r, const Instruction& i) {
  const int from = r.list->slot(i.uses[0], std::max(i.unit, 0)), to = r.list->slot(i.uses[1], std::max(i.unit, 0));
  if (i.unit < 0 || moves_activation(r.list->s, i)) return void(r.value[to] = r.value[from]);
  r.own[to] = holds_frozen(r.list->s.buffers[i.uses[0]]) ? r.version : r.own[from];
  r.whole[to] = r.list->s.layout->units[i.unit].shard_ranks == 1 ? r.own[to] : -1;
}

// Two buffers: a whole unit into another. Three: own and received chunks into the rank's shard.
void Contributions::accumulate(JobRank& r, const Instruction& i) {
  uint64_t& to = r.value[r.list->slot(i.uses.back(), i.unit)];
  if (!i.accumulate) to = 0;
  to += r.value[r.list->slot(i.uses[0], i.unit)];
  if (i.uses.size() == 3) to += r.inbox[i.uses[1]];
}

void Contributions::collective(const std::vector<int>& all) {
  const auto slot_of = [&](int rank) {
    const JobRank& r = ranks[rank];
    return r.list->slot(head(r).uses[0], std::max(head(r).unit, 0));
  };
  const InstructionOp op = head(ranks[all.front()]).op;
  if (op == InstructionOp::kAllGather) {
    const int version = ranks[all.front()].own[slot_of(all.front())];
    for (const int rank : all) {
      const int own = ranks[rank].own[slot_of(rank)];
      require(own >= 0, rank, "gathers before the own chunk is filled");
      require(own == version, rank, "gathers a chunk of another optimizer step than rank {}", all.front());
      ranks[rank].whole[slot_of(rank)] = version;
    }
    return;
  }
  const auto sum_of = [&](const std::vector<int>& some) {
    uint64_t sum = 0;
    for (const int rank : some) sum += ranks[rank].value[slot_of(rank)];
    return sum;
  };
  if (op == InstructionOp::kReduceScatter && head(ranks[all.front()]).hop != Hop::kOnly) {
    for (size_t n = 0; n < all.size(); ++n) {
      JobRank& r = ranks[all[n]];
      std::vector<int> met;
      for (const int member : hop_members(head(r).hop, static_cast<int>(all.size()), static_cast<int>(n), head(r).node_ranks))
        met.push_back(all[static_cast<size_t>(member)]);
      r.inbox[head(r).allocates[0]] = sum_of(met) - r.value[slot_of(all[n])];
    }
    return;
  }
  const uint64_t sum = sum_of(all);
  for (const int rank : all) {
    JobRank& r = ranks[rank];
    if (op == InstructionOp::kReduceScatter)
      r.inbox[head(r).allocates[0]] = sum - r.value[slot_of(rank)];
    else
      r.value[slot_of(rank)] = sum;
  }
}

// --- what must have come together

// Every rank that sees other tokens than this one, and this one; of a pipeline on all stages.
const std::vector<int>& Contributions::peers(int rank) { return members(loss_group(mesh_), rank); }
// Every rank that has a part in the gradient of a unit. Of the shared one and of experts, tensor-parallel ranks too: each has it of
// its own tokens.
const std::vector<int>& Contributions::contributors(int rank, int unit) {
  const UnitKind kind = ranks[rank].list->s.layout->units[unit].kind;
  const bool of_own_tokens = kind == UnitKind::kShared || kind == UnitKind::kExperts;
  return members(of_own_tokens ? token_group(mesh_) | Group::kTp : token_group(mesh_), rank);
}

uint64_t Contributions::expected_gradient(int rank, int unit) {
  const Schedule& s = ranks[rank].list->s;
  uint64_t sum = 0;
  for (int writer = 0; writer < s.layout->num_programs; ++writer) {
    if (!ranks[rank].list->backward[writer].gradients.contains(unit)) continue;
    for (const int peer : contributors(rank, unit)) {
      for (int64_t m = 0; m < ranks[rank].backwards[writer]; ++m) sum += token(kGradientToken, peer, m, writer, unit);
    }
  }
  return sum;
}

// A tied embedding's gradient comes from both ends of a pipeline.
uint64_t Contributions::expected_on_all_stages(int rank, int unit) {
  uint64_t sum = expected_gradient(rank, unit);
  if (unit != 0 || !ranks[rank].list->s.layout->sums_tied_over_stages()) return sum;
  for (const int other : members(Group::kTied, rank))
    if (other != rank) sum += expected_gradient(other, unit);
  return sum;
}

void Contributions::check_loss(int rank) {
  const JobRank& r = ranks[rank];
  uint64_t loss = 0;
  for (const int peer : peers(rank)) {
    const JobRank& p = ranks[peer];  // a stage of a pipeline adds what its own units do
    for (size_t u = 0; u < p.list->forward_adds_loss.size(); ++u) {
      const int64_t forwards = p.list->forward_adds_loss[u] ? p.forwards[u] : 0;
      const int64_t backwards = p.list->backward_adds_loss[u] ? p.backwards[u] : 0;
      for (int64_t m = 0; m < forwards; ++m) loss += token(kLossToken, peer, m, 0);
      for (int64_t m = 0; m < backwards; ++m) loss += token(kLossToken, peer, m, 1);
    }
  }
  require(r.value[r.list->slot(r.list->loss, 0)] == loss, rank, "the loss does not hold every rank's every micro-batch exactly once");
}

// So many have run backward; the same for all units when a step is done.
int64_t Contributions::micro_batches(const JobRank& r) { return *std::max_element(r.backwards.begin(), r.backwards.end()); }

uint64_t Contributions::norm_token(int rank) const {
  const Coordinates at = coordinates(mesh_, rank);
  return token(kNormToken, at.dp_shard, at.tp, at.cp, at.pp);
}

void Contributions::norm(int rank, const Instruction& i) {
  JobRank& r = ranks[rank];
  for (int u = 0; u < r.list->num_units; ++u) {
    if (r.list->s.layout->units[u].numel == 0 || r.list->s.layout->units[u].is_frozen) continue;
    // Ranks with the same contributors expect the same sum.
    const auto [known, is_new] = expected_.try_emplace({contributors(rank, u).front(), u, micro_batches(r)}, 0);
    if (is_new) known->second = expected_on_all_stages(rank, u);
    require(r.value[r.list->slot(i.uses[0], u)] == known->second, rank,
            "the gradient of unit {} does not hold every rank's every micro-batch exactly once", u);
  }
  r.value[r.list->slot(i.uses[1], 0)] = norm_token(rank);
}

void Contributions::optimizer(int rank, const Instruction& i) {
  JobRank& r = ranks[rank];
  uint64_t norm = 0;
  for (const int owner : members(r.list->s.layout->state_group, rank)) norm += norm_token(owner);
  require(r.value[r.list->slot(i.uses.back(), 0)] == norm, rank, "the gradient norm does not hold every shard exactly once");
  check_loss(rank);
  for (const int b : i.frees)  // Adafactor's sums
    require(r.value[r.list->slot(b, 0)] == sharded_sum(rank, b, -1), rank, "'{}' does not hold every shard exactly once",
            r.list->s.buffers[b].name);
  if (r.stepped.empty()) ++r.version;
  r.stepped.insert(i.unit);
}

// What all ranks that share a parameter give to a part of the update.
uint64_t Contributions::sharded_sum(int rank, uint64_t kind, int unit) {
  uint64_t sum = 0;
  for (const int peer : members(ranks[rank].list->s.layout->shard_group, rank))
    sum += token(kUpdateToken, peer, kind, static_cast<uint64_t>(unit));
  return sum;
}

void Contributions::update_part(int rank, const Instruction& i) {
  JobRank& r = ranks[rank];
  const auto unit = static_cast<uint64_t>(i.unit);
  const auto slot = [&](int b) { return r.list->slot(b, std::max(i.unit, 0)); };
  switch (i.op) {
    case InstructionOp::kFactorSums: r.value[slot(i.uses[2])] = token(kUpdateToken, rank, i.uses[2], unit); break;
    case InstructionOp::kFactorMeans:
      require(r.value[slot(i.uses[2])] == sharded_sum(rank, i.uses[2], i.unit), rank, "sums of rows and columns lack a shard");
      r.value[slot(i.uses[4])] = token(kUpdateToken, rank, i.uses[4], unit);
      break;
    case InstructionOp::kMomentum:
      r.own[slot(i.uses[3])] = r.version;
      r.whole[slot(i.uses[3])] = r.list->s.layout->units[i.unit].shard_ranks == 1 ? r.version : -1;
      break;
    case InstructionOp::kOrthogonalize:
      require(r.whole[slot(i.uses[0])] == r.version, rank, "orthogonalises matrices that have not been gathered");
      r.value[slot(i.uses[0])] = token(kUpdateToken, rank, 0, unit);
      break;
    case InstructionOp::kAccumulate: {
      const uint64_t all = r.value[slot(i.uses[0])] + (i.uses.size() == 3 ? r.inbox[i.uses[1]] : 0);
      require(all == sharded_sum(rank, 0, i.unit), rank, "takes matrices of unit {} that not every owner has sent", i.unit);
      if (r.list->s.buffers[i.uses.back()].lifetime == BufferLifetime::kSpan) r.value[slot(i.uses.back())] = all;
      break;
    }
    default: break;  // collectives are not local, but for a group of one
  }
}

void Contributions::end(int rank) {
  const JobRank& r = ranks[rank];
  const JobList& list = *r.list;
  if (list.s.phase == Phase::kStep) require(r.version == 1, rank, "{} optimizer steps were taken, expected one", r.version);
  for (int b = 0; b < static_cast<int>(list.s.buffers.size()); ++b) {
    if (list.s.buffers[b].name != kDeviceShard || list.s.phase == Phase::kSave) continue;
    for (int u = 0; u < list.num_units; ++u) {
      const UnitLayout& unit = list.s.layout->units[u];
      require(unit.is_frozen || unit.numel == 0 || r.own[list.slot(b, u)] == r.version || list.replica[u] >= 0, rank,
              "the parameters of unit {} on the device are not those after the optimizer", u);
    }
  }
  for (int u = 0; list.s.phase != Phase::kSave && u < list.num_units; ++u)
    require(list.replica[u] < 0 || r.whole[list.slot(list.replica[u], u)] == r.version, rank,
            "the replica of unit {} is not the one after the optimizer", u);
  if (list.s.phase == Phase::kEvaluate) check_loss(rank);
}

}  // namespace distsetup
