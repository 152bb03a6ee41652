#include "plan/check_job.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "base/check.h"
#include "base/splitmix.h"
#include "plan/expand.h"
#include "plan/invariants.h"
#include "plan/job_list.h"
#include "plan/ordering.h"
#include "plan/schedule_text.h"

namespace distsetup {
namespace {

constexpr size_t kMostMessages = 20;
constexpr int kMostRanks = 512, kCutAxis = 4;
constexpr int64_t kMostRounds = 2;  // of a repeated segment: the others are the same

// A number that stands for one contribution.
uint64_t token(uint64_t kind, uint64_t a, uint64_t b = 0, uint64_t c = 0, uint64_t d = 0) {
  uint64_t x = 0;
  for (const uint64_t part : {kind, a, b, c, d}) x = splitmix(x + part + kSplitMixStep);
  return x;
}
enum TokenKind : uint64_t { kGradientToken, kLossToken, kNormToken, kStaleToken };

// One rank on its way through its list.
struct Rank {
  const JobList* list = nullptr;
  size_t segment = 0;
  int64_t round = 0;
  int at = 0;  // instruction, inside the segment
  int64_t micro_batches = 0;
  int version = 0;              // of the master: optimizer steps taken
  std::vector<uint64_t> value;  // per slot: what is summed in it; at first what an earlier step left
  std::vector<uint64_t> inbox;  // per buffer: what a reduce-scatter received
  std::vector<int> own, whole;  // per slot: version of the own chunk, of all chunks; -1: not filled
  bool done = false;
};

class Job {
 public:
  Job(const Mesh& mesh, const std::vector<const Schedule*>& by_rank) : mesh_(mesh), ranks_(by_rank.size()) {
    for (size_t r = 0; r < by_rank.size(); ++r) {
      auto& list = lists_[by_rank[r]];
      if (list == nullptr) list = std::make_unique<JobList>(*by_rank[r]);
      ranks_[r].list = list.get();
      for (int slot = 0; slot < list->num_slots; ++slot) ranks_[r].value.push_back(token(kStaleToken, r, slot));
      ranks_[r].inbox.resize(by_rank[r]->buffers.size());
      const int start = by_rank[r]->phase == Phase::kLoad ? -1 : 0;
      ranks_[r].own.assign(list->num_slots, start);
      ranks_[r].whole.assign(list->num_slots, start);
    }
  }

  std::vector<std::string> run() {
    std::deque<int> runnable;
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) runnable.push_back(r);
    while (!runnable.empty() && out_.size() < kMostMessages && !torn_) {
      const int r = runnable.front();
      runnable.pop_front();
      for (const int freed : advance(r)) runnable.push_back(freed);
    }
    if (!torn_) stuck();
    for (int r = 0; r < static_cast<int>(ranks_.size()) && !torn_; ++r) end(r);
    return std::move(out_);
  }

 private:
  template <class... A>
  void require(bool holds, int rank, fmt::format_string<A...> text, A&&... args) {
    if (holds || out_.size() >= kMostMessages) return;
    const Rank& r = ranks_[rank];
    const std::string where = r.done ? "at the end" : format_instruction(r.list->s, index(r));
    out_.push_back(fmt::format("rank {}, {}: {}", rank, where, fmt::format(text, std::forward<A>(args)...)));
  }

  static int index(const Rank& r) { return r.list->s.segments[r.segment].first_instruction + r.at; }
  static uint64_t exchanged(const Rank& r) { return r.list->exchanges[index(r)]; }
  static const Instruction& head(const Rank& r) { return r.list->s.instructions[index(r)]; }

  static void skip_empty(Rank& r) {
    const std::vector<Segment>& segments = r.list->s.segments;
    while (r.segment < segments.size() && r.at >= segments[r.segment].num_instructions) {
      r.at = 0;
      if (++r.round < std::min(segments[r.segment].repeat, kMostRounds)) continue;
      r.round = 0;
      ++r.segment;
    }
    r.done = r.segment >= segments.size();
  }

  // Runs a rank up to its next collective. Returns the ranks that can go on: all members, when it was the last to arrive.
  std::vector<int> advance(int rank) {
    Rank& r = ranks_[rank];
    for (skip_empty(r); !r.done; skip_empty(r)) {
      const Instruction& i = head(r);
      if (group_size(mesh_, group_of(r, i)) > 1) return arrive(rank, i);
      begin(r, i);
      local(rank, i);
      ++r.at;
    }
    return {};
  }

  // --- meeting

  // A program that exchanges data on its way is one meeting of the ranks that run it together.
  static Group group_of(const Rank& r, const Instruction& i) {
    const bool is_program = i.op == InstructionOp::kForward || i.op == InstructionOp::kBackward;
    return is_program ? exchange_group(*r.list->s.variants[r.list->s.unit_variant[i.unit]]) : i.group;
  }

  struct Meeting {
    std::vector<int> arrived;
    std::vector<int> members;
  };

  const std::vector<int>& members(Group group, int rank) {
    auto& known = groups_[{group, rank}];
    if (known.empty()) known = group_members(mesh_, group, rank);
    return known;
  }

  std::vector<int> arrive(int rank, const Instruction& i) {
    const Group over = group_of(ranks_[rank], i);
    const std::vector<int>& group = members(over, rank);
    const bool gathers = i.op == InstructionOp::kAllGather;
    Meeting& m = meetings_[{over, gathers, group.front()}];
    if (m.arrived.empty()) m.members = group;
    if (!m.arrived.empty()) {
      const int first = m.arrived.front();
      const Instruction& other = head(ranks_[first]);
      const bool same = other.op == i.op && other.unit == i.unit && other.bytes == i.bytes && other.dtype == i.dtype &&
                        other.program_variant == i.program_variant && exchanged(ranks_[first]) == exchanged(ranks_[rank]);
      if (!same)
        require(false, rank, "rank {} issues {} in its place", first, format_instruction(ranks_[first].list->s, index(ranks_[first])));
      torn_ |= !same;
      if (torn_) return {};
    }
    m.arrived.push_back(rank);
    if (m.arrived.size() < m.members.size()) return {};
    std::vector<int> all = std::move(m.members);
    m = {};
    for (const int r : all) begin(ranks_[r], head(ranks_[r]));
    if (i.group == Group::kSelf)
      for (const int r : all) local(r, head(ranks_[r]));
    else
      collective(all);
    for (const int r : all) ++ranks_[r].at;
    return all;
  }

  void stuck() {
    for (const auto& [key, m] : meetings_) {
      if (m.arrived.empty()) continue;
      for (const int missing : m.members) {
        if (std::find(m.arrived.begin(), m.arrived.end(), missing) != m.arrived.end()) continue;
        require(false, m.arrived.front(), "waits for ever: rank {} is {}", missing,
                ranks_[missing].done ? "at its end" : "at " + format_instruction(ranks_[missing].list->s, index(ranks_[missing])));
        torn_ = true;
        return;
      }
    }
  }

  // --- what instructions do to contributions

  void begin(Rank& r, const Instruction& i) {
    for (const int b : i.allocates) {
      if (r.list->s.buffers[b].lifetime == BufferLifetime::kRun) continue;
      const int slot = r.list->first_slot[b];
      r.value[slot] = token(kStaleToken, slot);
      r.own[slot] = r.whole[slot] = -1;
    }
  }

  void local(int rank, const Instruction& i) {
    Rank& r = ranks_[rank];
    switch (i.op) {
      case InstructionOp::kCast: {
        const int slot = r.list->slot(i.uses[1], i.unit);
        r.own[slot] = r.version;
        r.whole[slot] = r.list->s.layout->units[i.unit].shard_ranks == 1 ? r.version : -1;
        break;
      }
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

  void compute(int rank, const Instruction& i) {
    Rank& r = ranks_[rank];
    if (i.op == InstructionOp::kForward && i.unit == 0) ++r.micro_batches;
    const JobList::Touched& touched = r.list->programs[index(r)];
    for (const int slot : touched.parameters) {
      require(r.whole[slot] >= 0, rank, "computes with parameters that have not been gathered");
      require(r.whole[slot] < 0 || r.whole[slot] == r.version, rank, "computes with parameters of {} optimizer steps ago",
              r.version - r.whole[slot]);
    }
    if (touched.adds_loss) r.value[r.list->slot(r.list->loss, 0)] += token(kLossToken, rank, r.micro_batches - 1);
    for (const JobList::Touched::Write& w : touched.gradients) {
      uint64_t& value = r.value[w.slot];
      if (w.fresh) value = 0;
      value += token(kGradientToken, rank, r.micro_batches - 1, i.unit, w.unit);
    }
  }

  // Two buffers: a whole unit into another. Three: own and received chunks into the rank's shard.
  static void accumulate(Rank& r, const Instruction& i) {
    uint64_t& to = r.value[r.list->slot(i.uses.back(), i.unit)];
    if (!i.accumulate) to = 0;
    to += r.value[r.list->slot(i.uses[0], i.unit)];
    if (i.uses.size() == 3) to += r.inbox[i.uses[1]];
  }

  void collective(const std::vector<int>& all) {
    const auto slot_of = [&](int rank) {
      const Rank& r = ranks_[rank];
      return r.list->slot(head(r).uses[0], std::max(head(r).unit, 0));
    };
    const InstructionOp op = head(ranks_[all.front()]).op;
    if (op == InstructionOp::kAllGather) {
      const int version = ranks_[all.front()].own[slot_of(all.front())];
      for (const int rank : all) {
        const int own = ranks_[rank].own[slot_of(rank)];
        require(own >= 0, rank, "gathers before the own chunk is filled");
        require(own == version, rank, "gathers a chunk of another optimizer step than rank {}", all.front());
        ranks_[rank].whole[slot_of(rank)] = version;
      }
      return;
    }
    uint64_t sum = 0;
    for (const int rank : all) sum += ranks_[rank].value[slot_of(rank)];
    for (const int rank : all) {
      Rank& r = ranks_[rank];
      if (op == InstructionOp::kReduceScatter)
        r.inbox[head(r).allocates[0]] = sum - r.value[slot_of(rank)];
      else
        r.value[slot_of(rank)] = sum;
    }
  }

  // --- what must have come together

  // Every rank that sees other tokens than this one, and this one.
  const std::vector<int>& peers(int rank) { return members(token_group(mesh_), rank); }
  // Every rank that has a part in the gradient of a unit: of the shared one, each of them has it of its own tokens.
  const std::vector<int>& contributors(int rank, int unit) {
    const bool is_shared = unit == ranks_[rank].list->s.layout->shared_unit();
    return members(is_shared ? token_group(mesh_) | Group::kTp : token_group(mesh_), rank);
  }

  uint64_t expected_gradient(int rank, int unit) {
    const Schedule& s = ranks_[rank].list->s;
    uint64_t sum = 0;
    for (int writer = 0; writer < s.layout->num_programs; ++writer) {
      if (!ranks_[rank].list->backward[writer].gradients.contains(unit)) continue;
      for (const int peer : contributors(rank, unit)) {
        for (int64_t m = 0; m < ranks_[rank].micro_batches; ++m) sum += token(kGradientToken, peer, m, writer, unit);
      }
    }
    return sum;
  }

  void check_loss(int rank) {
    const Rank& r = ranks_[rank];
    uint64_t loss = 0;
    for (const int peer : peers(rank)) {
      for (int64_t m = 0; m < r.micro_batches; ++m) loss += token(kLossToken, peer, m);
    }
    require(r.value[r.list->slot(r.list->loss, 0)] == loss, rank,
            "the loss does not hold every rank's every micro-batch exactly once");
  }

  uint64_t norm_token(int rank) const {
    const Coordinates at = coordinates(mesh_, rank);
    return token(kNormToken, at.dp_shard, at.tp, at.cp);
  }

  void norm(int rank, const Instruction& i) {
    Rank& r = ranks_[rank];
    for (int u = 0; u < r.list->num_units; ++u) {
      if (r.list->s.layout->units[u].numel == 0) continue;
      // Ranks with the same contributors expect the same sum.
      const auto [known, is_new] = expected_.try_emplace({contributors(rank, u).front(), u, r.micro_batches}, 0);
      if (is_new) known->second = expected_gradient(rank, u);
      require(r.value[r.list->slot(i.uses[0], u)] == known->second, rank,
              "the gradient of unit {} does not hold every rank's every micro-batch exactly once", u);
    }
    r.value[r.list->slot(i.uses[1], 0)] = norm_token(rank);
  }

  void optimizer(int rank, const Instruction& i) {
    Rank& r = ranks_[rank];
    uint64_t norm = 0;
    for (const int owner : members(r.list->s.layout->state_group, rank)) norm += norm_token(owner);
    require(r.value[r.list->slot(i.uses.back(), 0)] == norm, rank, "the gradient norm does not hold every shard exactly once");
    check_loss(rank);
    ++r.version;
  }

  void end(int rank) {
    const Rank& r = ranks_[rank];
    const JobList& list = *r.list;
    if (list.s.phase == Phase::kStep) require(r.version == 1, rank, "{} optimizer steps were taken, expected one", r.version);
    for (int u = 0; list.s.phase != Phase::kSave && u < list.num_units; ++u)
      require(list.replica[u] < 0 || r.whole[list.slot(list.replica[u], u)] == r.version, rank,
              "the replica of unit {} is not the one after the optimizer", u);
    if (list.s.phase == Phase::kEvaluate) check_loss(rank);
  }

  const Mesh mesh_;
  std::map<const Schedule*, std::unique_ptr<JobList>> lists_;
  std::vector<Rank> ranks_;
  std::map<std::pair<Group, int>, std::vector<int>> groups_;
  std::map<std::tuple<Group, bool, int>, Meeting> meetings_;  // group, is it the gathers' communicator, its first member
  std::map<std::tuple<int, int, int64_t>, uint64_t> expected_;
  bool torn_ = false;  // ranks no longer agree on what they do: what follows would only repeat it
  std::vector<std::string> out_;
};

std::vector<std::string> check_on(const Mesh& mesh, const Plan& plan, const std::vector<const Schedule*>& by_rank) {
  std::vector<std::string> out;
  const auto add = [&out](std::vector<std::string> more) {
    for (std::string& one : more)
      if (out.size() < kMostMessages) out.push_back(std::move(one));
  };
  for (const Schedule* list : std::set<const Schedule*>(by_rank.begin(), by_rank.end())) {
    add(check_invariants(plan, *list));
    add(check_order(*list, coordinates(plan.mesh, 0)));
    if (group_size(plan.mesh, list->layout->state_group) > 1) add(check_order(*list, coordinates(plan.mesh, plan.mesh.world() - 1)));
  }
  if (out.empty()) add(Job(mesh, by_rank).run());
  return out;
}

}  // namespace

std::vector<std::string> check_job(const Plan& plan, const std::vector<const Schedule*>& by_rank) {
  CHECK(static_cast<int>(by_rank.size()) == plan.mesh.world(), "{} lists for {} ranks", by_rank.size(), plan.mesh.world());
  return check_on(plan.mesh, plan, by_rank);
}

std::vector<std::string> check_job(const Plan& plan) {
  Mesh mesh = plan.mesh;
  if (mesh.world() > kMostRanks) {
    for (int* axis : {&mesh.pp, &mesh.dp_replicate, &mesh.dp_shard, &mesh.cp, &mesh.tp}) *axis = std::min(*axis, kCutAxis);
  }
  for (const Phase phase : {Phase::kLoad, Phase::kStep, Phase::kEvaluate, Phase::kSave}) {
    const Schedule list = compile_expanded(plan, phase);
    std::vector<std::string> broken = check_on(mesh, plan, std::vector<const Schedule*>(mesh.world(), &list));
    for (std::string& one : broken) one = fmt::format("{}: {}", name(phase), one);
    if (!broken.empty()) return broken;
  }
  return {};
}

}  // namespace distsetup
