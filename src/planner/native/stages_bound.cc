#include "planner/native/stages_bound.h"

#include <algorithm>

#include "planner/native/pipeline_time.h"

namespace distsetup {

// Of all stages: chunk c of stage s is the part c · pp + s.
std::vector<UnitSpan> parts_of(const Plan& plan) {
  std::vector<UnitSpan> parts;
  int next = 0;
  for (const int64_t layers : layers_per_chunk(plan.model.num_layers, int64_t{plan.mesh.pp} * plan.strategy.virtual_stages)) {
    const int end = next + static_cast<int>(layers) + (next == 0 ? 1 : 0);
    parts.push_back({next, end - 1});
    next = end;
  }
  ++parts.back().last;  // the head
  return parts;
}

StagesBound::StagesBound(const Plan& plan, const RowCosts& row, const std::vector<UnitSpan>& parts, double update_bytes)
    : plan_(plan), row_(row), parts_(parts), passes_(plan, row), update_bytes_(update_bytes) {
  if (plan.mesh.pp == 1) return;
  hop_s_ = message_s(plan, static_cast<double>(row.message_bytes));
  hop_back_s_ = row.is_all ? hop_s_ : 0;  // a gradient goes no further down than something is trained
}

double StagesBound::updates_s(int stage) const {
  double s = 0;
  for (int c = 0; c < plan_.strategy.virtual_stages; ++c)
    s += passes_.update_s(part(stage, c).first, part(stage, c).last, update_bytes_);
  return s;
}

double StagesBound::whole_s() const {
  const auto m = static_cast<double>(plan_.gradient_accumulation);
  const int head = row_.head();
  return m * passes_.forward_s(0, head) + (m - 1) * passes_.backward_s(0, head, false) + passes_.summed_s(0, head) +
         passes_.update_s(0, head, update_bytes_);
}

double StagesBound::seconds() const {
  const int stages = plan_.mesh.pp;
  if (stages == 1) return whole_s();
  double arrives_s = 0, returns_s = 0, most_s = 0;
  for (int s = 0; s < stages; ++s) {
    const UnitSpan& c = part(s, 0);
    const Work work = work_of(s);
    const double update_s = updates_s(s), sent_s = passes_.until_sent_s(c.first, c.last, true);
    most_s = std::max({most_s, arrives_s + work.seconds + update_s, arrives_s + work.until_last_s + sent_s + returns_s});
    arrives_s += sum(row_.forward_s, c) + hop_s_;
    returns_s += hop_back_s_ + (s == 0 ? passes_.summed_s(c.first, c.last, true) + update_s : sent_s);
  }
  if (plan_.strategy.virtual_stages > 1 || !row_.is_all) return most_s;
  return std::max(most_s, by_round_trips_s(round_trip_s()) + updates_s(0));
}

double StagesBound::round_trip_s() const {
  double s = (plan_.mesh.pp - 1) * (hop_s_ + hop_back_s_);
  for (const UnitSpan& c : parts_) s += sum(row_.forward_s, c) + passes_.until_sent_s(c.first, c.last, false);
  return s;
}

int64_t StagesBound::written() const {
  const int64_t rounds = pipeline_rounds(plan_.mesh.pp, plan_.gradient_accumulation), m = plan_.gradient_accumulation;
  if (rounds <= 3) return m;
  return 3 * (plan_.strategy.virtual_stages == 1 ? plan_.mesh.pp : m / rounds);
}

double StagesBound::one_s(int stage) const {
  double s = 0;
  for (int n = 0; n < plan_.strategy.virtual_stages; ++n) {
    const UnitSpan& c = part(stage, n);
    s += forward_s(c) + top_s(c) + passes_.backward_s(c.first, c.last, false);
  }
  return s;
}

double StagesBound::further_s() const {
  double most = plan_.strategy.virtual_stages == 1 ? round_trip_s() / plan_.mesh.pp : 0;
  for (int s = 0; s < plan_.mesh.pp; ++s) most = std::max(most, one_s(s));
  return most;
}

// The first stage has so many micro-batches under way as there are stages: it takes the next when one is back. The last stage takes
// those of a round one after the other. What a simulation does not write out (with_few_micro_batches) goes on at that pace.
double StagesBound::by_round_trips_s(double round_trip_s) const {
  const int64_t stages = plan_.mesh.pp, m = plan_.gradient_accumulation;
  const UnitSpan& top = part(plan_.mesh.pp - 1, 0);
  const double last_s =
      row_.kind(top.last).forward_s + passes_.forward_s(top.first, top.last - 1) + passes_.until_sent_s(top.first, top.last, false);
  const int64_t few = written(), rounds = (few - 1) / stages, rest = (few - 1) % stages;
  return static_cast<double>(rounds + 1) * round_trip_s + static_cast<double>(rest) * last_s +
         static_cast<double>(m - few) * std::max(round_trip_s / static_cast<double>(stages), last_s);
}

StagesBound::Work StagesBound::work_of(int stage) const {
  const auto m = static_cast<double>(plan_.gradient_accumulation);
  Work work;
  for (int n = 0; n < plan_.strategy.virtual_stages; ++n) {
    const UnitSpan& c = part(stage, n);
    const double last_s = top_s(c) + (n == 0 ? passes_.summed_s(c.first, c.last) : passes_.backward_s(c.first, c.last, true));
    work.seconds += m * forward_s(c) + (m - 1) * (top_s(c) + passes_.backward_s(c.first, c.last, false)) + last_s;
    if (n == 0) work.until_last_s -= last_s;
  }
  // The first gathers may come while the stage waits for its first micro-batch.
  if (stage > 0) work.seconds -= forward_s(part(stage, 0)) - forward_after_wait_s(part(stage, 0));
  work.until_last_s += work.seconds;
  return work;
}

namespace {

// What one part does with a micro-batch.
struct PartTimes {
  struct Pass {
    double whole_s = 0, after_wait_s = 0;  // also what comes before it reads what is sent; and after a wait for that
    double done_s(double began_s, double arrives_s) const { return std::max(began_s + whole_s, arrives_s + after_wait_s); }
  };
  Pass forward, backward, last_backward;                // until reductions are done; of the last micro-batch
  double top_s = 0, sent_s = 0, last_sent_s = 0;        // of a backward: before it, until it has sent
  std::vector<double> forward_sent_s, backward_sent_s;  // when, per micro-batch; < 0: not yet
  double forward_free_s = 0, backward_free_s = 0;       // when the stage's link to its neighbour is, kept by its first part
};

struct StageState {
  std::vector<PipelineAction> order;
  size_t next = 0;
  double now_s = 0, before_s = 0;  // when the last action was done, and when it began: then what the next one reads was asked for
};

}  // namespace

double StagesBound::in_order_s() const {
  if (plan_.mesh.pp == 1 || !row_.is_all) return 0;
  const int stages = plan_.mesh.pp, last_part = static_cast<int>(parts_.size()) - 1;
  const int64_t few = written();
  std::vector<PartTimes> times;
  for (const UnitSpan& c : parts_) {
    PartTimes t;
    t.forward = {forward_s(c), forward_after_wait_s(c)};
    t.top_s = top_s(c);
    t.sent_s = passes_.until_sent_s(c.first, c.last, false), t.last_sent_s = passes_.until_sent_s(c.first, c.last, true);
    const bool is_lowest = static_cast<int>(times.size()) < stages;
    const auto last_s = [&](bool after_wait) {
      return is_lowest ? passes_.summed_s(c.first, c.last, after_wait) : passes_.backward_s(c.first, c.last, true, after_wait);
    };
    t.backward = {t.top_s + passes_.backward_s(c.first, c.last, false), passes_.backward_s(c.first, c.last, false, true)};
    t.last_backward = {t.top_s + last_s(false), last_s(true)};
    t.forward_sent_s.assign(static_cast<size_t>(few), -1), t.backward_sent_s = t.forward_sent_s;
    times.push_back(std::move(t));
  }
  std::vector<StageState> states(static_cast<size_t>(stages));
  for (int s = 0; s < stages; ++s)
    states[static_cast<size_t>(s)].order = pipeline_order(stages, plan_.strategy.virtual_stages, few, s);
  const auto run_one = [&](int s) {
    StageState& state = states[static_cast<size_t>(s)];
    const PipelineAction& a = state.order[state.next];
    const int at = a.chunk * stages + s, from = a.is_forward ? at - 1 : at + 1;
    const auto m = static_cast<size_t>(a.micro_batch);
    PartTimes& t = times[static_cast<size_t>(at)];
    double arrives_s = 0;
    if (from >= 0 && from <= last_part) {
      PartTimes& other = times[static_cast<size_t>(from)];
      const double sent_s = (a.is_forward ? other.forward_sent_s : other.backward_sent_s)[m];
      if (sent_s < 0) return false;
      PartTimes& link = times[static_cast<size_t>(s)];
      double& free_s = a.is_forward ? link.forward_free_s : link.backward_free_s;
      arrives_s = free_s = std::max({sent_s, state.before_s, free_s}) + hop_s_;
    }
    const double began_s = state.now_s;
    if (a.is_forward) {
      state.now_s = t.forward_sent_s[m] = t.forward.done_s(began_s, arrives_s);
    } else {
      const bool is_last = a.micro_batch + 1 == few;
      const double ready_s = std::max(began_s + t.top_s, arrives_s);
      t.backward_sent_s[m] = ready_s + (is_last ? t.last_sent_s : t.sent_s);
      state.now_s = (is_last ? t.last_backward : t.backward).done_s(began_s, arrives_s);
    }
    state.before_s = began_s;
    ++state.next;
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int s = 0; s < stages; ++s)
      while (states[static_cast<size_t>(s)].next < states[static_cast<size_t>(s)].order.size() && run_one(s)) moved = true;
  }
  double most = 0;
  for (int s = 0; s < stages; ++s) most = std::max(most, states[static_cast<size_t>(s)].now_s + updates_s(s));
  return most + static_cast<double>(plan_.gradient_accumulation - few) * further_s();
}

}  // namespace distsetup
