#include "plan/check_job.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "base/check.h"
#include "plan/contributions.h"
#include "plan/expand.h"
#include "plan/invariants.h"
#include "plan/ordering.h"
#include "plan/pipeline_rules.h"
#include "plan/schedule_text.h"

namespace distsetup {
namespace {

constexpr int kMostRanks = 512, kCutAxis = 4;
constexpr int64_t kMostRounds = 2;  // of a repeated segment: the others are the same
// A message between two stages: complete when both have reached it.
struct Transfer {
  int64_t bytes = -1;
  int behind = -1, micro_batch = -1;  // the unit that it lies behind
  bool is_sent = false, is_received = false;
  uint64_t value = 0;
  int waiting = -1;  // rank that goes on when it is complete
  int target = -1;   // slot of the receiver
};

class Job {
 public:
  Job(const Mesh& mesh, const std::vector<const Schedule*>& by_rank) : mesh_(mesh), data_(mesh, by_rank), transfers_(by_rank.size()) {}

  std::vector<std::string> run() {
    std::deque<int> runnable;
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) runnable.push_back(r);
    while (!runnable.empty() && data_.complaints.size() < Contributions::kMostMessages && !torn_) {
      const int r = runnable.front();
      runnable.pop_front();
      for (const int freed : advance(r)) runnable.push_back(freed);
    }
    if (!torn_) stuck();
    for (int r = 0; r < static_cast<int>(ranks_.size()) && !torn_; ++r) data_.end(r);
    return std::move(data_.complaints);
  }

 private:
  template <class... A>
  void require(bool holds, int rank, fmt::format_string<A...> text, A&&... args) {
    data_.require(holds, rank, text, std::forward<A>(args)...);
  }
  static int index(const JobRank& r) { return Contributions::index(r); }
  static const Instruction& head(const JobRank& r) { return Contributions::head(r); }

  static uint64_t exchanged(const JobRank& r) { return r.list->exchanges[index(r)]; }

  static void skip_empty(JobRank& r) {
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
    JobRank& r = ranks_[rank];
    for (skip_empty(r); !r.done; skip_empty(r)) {
      const Instruction& i = head(r);
      if (!transfers_done(rank, i)) return {};
      if (is_transfer(i.op)) {
        const int other = transfer(rank, i);
        ++r.at;
        if (other < 0) continue;
        return {rank, other};
      }
      if (group_size(mesh_, group_of(r, i)) > 1) return arrive(rank, i);
      data_.begin(r, i);
      data_.local(rank, i);
      ++r.at;
    }
    return {};
  }

  // --- transfers between stages: a channel for each pair of ranks and direction, in the order in which both issue them

  // Starts one. Returns the rank that waited for it to be complete, -1: none did.
  int transfer(int rank, const Instruction& i) {
    JobRank& r = ranks_[rank];
    Coordinates at = coordinates(mesh_, rank);
    at.pp = peer_stage(r.list->s, i.stream);
    const int peer = rank_of(mesh_, at);
    const bool sends = i.op == InstructionOp::kSend;
    const bool is_forward = carries_activations(i.stream);
    std::deque<std::shared_ptr<Transfer>>& open = channels_[{sends ? rank : peer, sends ? peer : rank, is_forward}];
    auto found = std::find_if(open.begin(), open.end(), [&](const auto& t) { return !(sends ? t->is_sent : t->is_received); });
    if (found == open.end()) found = open.insert(open.end(), std::make_shared<Transfer>());
    const std::shared_ptr<Transfer> t = *found;
    const int behind = sends == is_forward ? i.unit : i.unit - 1;
    const bool is_same = t->bytes < 0 || (t->bytes == i.bytes && t->behind == behind && t->micro_batch == i.micro_batch);
    require(is_same, rank, "moves {} bytes behind unit {}, rank {} moves {} behind unit {} of micro-batch {}", i.bytes, behind, peer,
            t->bytes, t->behind, t->micro_batch);
    t->bytes = i.bytes, t->behind = behind, t->micro_batch = i.micro_batch;
    (sends ? t->is_sent : t->is_received) = true;
    const int slot = r.list->slot(i.uses[0], 0);
    if (sends)
      t->value = r.value[slot];
    else
      t->target = slot;
    transfers_[rank][i.signals] = t;
    if (!sends) receives_.insert({rank, i.signals});
    if (!t->is_sent || !t->is_received) return -1;
    open.pop_front();
    return t->waiting;
  }

  // What the instruction waits for is complete; what it waited to receive is there.
  bool transfers_done(int rank, const Instruction& i) {
    JobRank& r = ranks_[rank];
    for (const int event : i.waits) {
      const auto found = transfers_[rank].find(event);
      if (found == transfers_[rank].end()) continue;
      Transfer& t = *found->second;
      if (!t.is_sent || !t.is_received) {
        t.waiting = rank;
        return false;
      }
    }
    for (const int event : i.waits) {
      const auto found = transfers_[rank].find(event);
      if (found == transfers_[rank].end()) continue;
      if (receives_.erase({rank, event}) > 0) r.value[found->second->target] = found->second->value;
      transfers_[rank].erase(found);
    }
    return true;
  }

  // --- meeting

  // A program that exchanges data on its way is one meeting of the ranks that run it together.
  static Group group_of(const JobRank& r, const Instruction& i) {
    return is_program(i.op) ? exchange_group(variant_of(r.list->s, i)) : i.group;
  }

  struct Meeting {
    std::vector<int> arrived;
    std::vector<int> members;
  };

  std::vector<int> arrive(int rank, const Instruction& i) {
    const Group over = group_of(ranks_[rank], i);
    const std::vector<int>& group = data_.members(over, rank);
    const bool gathers = i.op == InstructionOp::kAllGather;
    Meeting& m = meetings_[{over, gathers, group.front()}];
    if (m.arrived.empty()) m.members = group;
    if (!m.arrived.empty()) {
      const int first = m.arrived.front();
      const Instruction& other = head(ranks_[first]);
      const bool same = other.op == i.op && other.unit == i.unit && other.bytes == i.bytes && other.dtype == i.dtype &&
                        other.hop == i.hop && other.node_ranks == i.node_ranks && other.program_variant == i.program_variant &&
                        exchanged(ranks_[first]) == exchanged(ranks_[rank]);
      if (!same)
        require(false, rank, "rank {} issues {} in its place", first, format_instruction(ranks_[first].list->s, index(ranks_[first])));
      torn_ |= !same;
      if (torn_) return {};
    }
    m.arrived.push_back(rank);
    if (m.arrived.size() < m.members.size()) return {};
    std::vector<int> all = std::move(m.members);
    m = {};
    for (const int r : all) data_.begin(ranks_[r], head(ranks_[r]));
    if (i.group == Group::kSelf)
      for (const int r : all) data_.local(r, head(ranks_[r]));
    else
      data_.collective(all);
    for (const int r : all) ++ranks_[r].at;
    return all;
  }

  void stuck() {
    for (const auto& [key, open] : channels_) {
      const auto [from, to, is_forward] = key;
      if (open.empty()) continue;
      const bool is_sent = open.front()->is_sent;
      require(false, is_sent ? from : to, "rank {} never {} what {}", is_sent ? to : from, is_sent ? "receives" : "sends",
              is_sent ? "this one sends" : "this one waits for");
      torn_ = true;
      return;
    }
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
  const Mesh mesh_;
  Contributions data_;
  std::vector<JobRank>& ranks_ = data_.ranks;
  std::map<std::tuple<Group, bool, int>, Meeting> meetings_;  // group, is it the gathers' communicator, its first member
  std::map<std::tuple<int, int, bool>, std::deque<std::shared_ptr<Transfer>>> channels_;  // sender, receiver, is it of activations
  std::vector<std::map<int, std::shared_ptr<Transfer>>> transfers_;                       // per rank, by event: not waited for yet
  std::set<std::pair<int, int>> receives_;                                                // rank and event of those that it receives
  bool torn_ = false;  // ranks no longer agree on what they do: what follows would only repeat it
};

std::vector<std::string> check_on(const Mesh& mesh, const Plan& plan, const std::vector<const Schedule*>& by_rank) {
  std::vector<std::string> out;
  const auto add = [&out](std::vector<std::string> more) {
    for (std::string& one : more)
      if (out.size() < Contributions::kMostMessages) out.push_back(std::move(one));
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
  const Plan few = with_few_micro_batches(plan);
  Mesh mesh = plan.mesh;
  if (mesh.world() > kMostRanks) {
    const int most = mesh.pp > 1 ? 2 : kCutAxis;  // every stage is there
    for (int* axis : {&mesh.dp_replicate, &mesh.dp_shard, &mesh.cp, &mesh.tp}) *axis = std::min(*axis, most);
  }
  for (const Phase phase : {Phase::kLoad, Phase::kStep, Phase::kEvaluate, Phase::kSave}) {
    std::vector<Schedule> lists;
    for (int stage = 0; stage < mesh.pp; ++stage) lists.push_back(compile_expanded(few, phase, stage));
    std::vector<const Schedule*> by_rank;
    for (int rank = 0; rank < mesh.world(); ++rank) by_rank.push_back(&lists[coordinates(mesh, rank).pp]);
    std::vector<std::string> broken = check_on(mesh, few, by_rank);
    for (std::string& one : broken) one = fmt::format("{}: {}", name(phase), one);
    if (!broken.empty()) return broken;
  }
  return {};
}

}  // namespace distsetup
