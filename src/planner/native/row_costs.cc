#include "planner/native/row_costs.h"

#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "plan/carried_routes.h"
#include "plan/live.h"

namespace distsetup {
namespace {

struct Kept {
  int64_t rest = 0, x = 0;
};

// As a stage's list lays it out (plan/compile_pipeline.cc).
Kept kept_of(const ProgramVariant& v, bool is_head, const Symbols& symbols, Dtype compute) {
  Kept out;
  for (int t = 0; t < static_cast<int>(v.tensors.size()); ++t) {
    if (!is_kept_by_stage(v, t, is_head)) continue;
    (t == v.x ? out.x : out.rest) += aligned(bytes_of(*v.tensors[static_cast<size_t>(t)].decl, symbols, compute));
  }
  return out;
}

// All that may lie in buffers of a stage, wherever in it the unit is.
std::set<int> held_by_stage(const ProgramVariant& v, bool is_head) {
  std::set<int> held = {v.x, v.y, v.dy, v.dx};
  for (int t = 0; t < static_cast<int>(v.tensors.size()); ++t)
    if (is_kept_by_stage(v, t, is_head)) held.insert(t);
  held.erase(-1);
  return held;
}

// LiveWalk (plan/live.h) over all units forward, then the head and the last block backward.
void take_live(RowCosts& row, const WholeList& whole, const std::vector<UnitCost>& costs) {
  const auto live = [&](int u) -> const VariantProfile& {
    return costs[static_cast<size_t>(whole.unit_program[static_cast<size_t>(u)])].live;
  };
  int64_t now = 0;
  const auto around = [&](const PassProfile& pass) { return now - pass.entry_bytes; };
  const auto late = [&](const PassProfile& pass) { return pass.late_peak_bytes > 0 ? around(pass) + pass.late_peak_bytes : 0; };
  for (int u = 0; u < row.head(); ++u) now += live(u).forward.exit_bytes - live(u).forward.entry_bytes;
  const VariantProfile &head = live(row.head()), &block = live(row.head() - 1);
  row.head_forward_peak = around(head.forward) + head.forward.peak_bytes;
  now = around(head.forward) + head.forward.exit_bytes;
  row.head_backward_peak = around(head.backward) + head.backward.peak_bytes;
  row.head_late_peak = late(head.backward);
  now = around(head.backward) + head.backward.exit_bytes;
  row.block_backward_peak = around(block.backward) + block.backward.peak_bytes;
  row.block_late_peak = late(block.backward);
  if (row.head() < 3) return;
  now = around(block.backward) + block.backward.exit_bytes;
  const VariantProfile& next = live(row.head() - 2);
  row.next_backward_peak = around(next.backward) + next.backward.peak_bytes;
  row.next_late_peak = late(next.backward);
}

class RowWriter {
 public:
  RowWriter(const WholeList& whole, const std::vector<UnitCost>& costs) : whole_(whole), costs_(costs) {}

  RowCosts run(const Symbols& symbols) {
    const int units = static_cast<int>(whole_.unit_program.size());
    row_.forward_s = row_.backward_s = {0};
    row_.numel = row_.expert_numel = row_.kept_bytes = {0};
    for (int u = 0; u < units; ++u) add(u, u + 1 == units, symbols);
    count(units);
    for (size_t program = 0; program < costs_.size(); ++program) {
      const UnitCost& c = costs_[program];
      const int64_t n = whole_.programs[program].num_units;
      row_.kept_whole += n * (c.live.forward.exit_bytes - c.live.forward.entry_bytes);
      row_.seconds += static_cast<double>(n) * (c.time.forward_s + c.time.backward_s);
    }
    take_live(row_, whole_, costs_);
    return std::move(row_);
  }

 private:
  void add(int u, bool is_head, const Symbols& symbols) {
    const int program = whole_.unit_program[static_cast<size_t>(u)];
    const int64_t numel = whole_.unit_numel[static_cast<size_t>(u)];
    const int64_t experts = whole_.unit_expert_numel[static_cast<size_t>(u)];
    const UnitCost& cost = costs_[static_cast<size_t>(program)];
    const auto [kind, fresh] = kinds_.try_emplace({program, numel, experts}, static_cast<int>(row_.kinds.size()));
    if (fresh) {
      const ProgramVariant& v = *whole_.programs[static_cast<size_t>(program)].variant;
      kept_.push_back(kept_of(v, is_head, symbols, whole_.compute));
      const PassProfile stage = profile(v, symbols, whole_.compute, held_by_stage(v, is_head)).backward;
      row_.kinds.push_back({cost.time.forward_s,
                            cost.time.backward_s,
                            static_cast<double>(numel),
                            static_cast<double>(experts),
                            stage.peak_bytes,
                            stage.late_peak_bytes,
                            {}});
      if (u == 0)
        row_.message_bytes = aligned(bytes_of(*v.tensors[static_cast<size_t>(v.y)].decl, symbols, whole_.compute)) +
                             carried_routes_bytes(*v.program, symbols);
    }
    row_.kind_of.push_back(kind->second);
    row_.forward_s.push_back(row_.forward_s.back() + cost.time.forward_s);
    row_.backward_s.push_back(row_.backward_s.back() + cost.time.backward_s);
    row_.numel.push_back(row_.numel.back() + numel);
    row_.expert_numel.push_back(row_.expert_numel.back() + experts);
    const Kept& kept = kept_[static_cast<size_t>(kind->second)];
    row_.kept_bytes.push_back(row_.kept_bytes.back() + kept.rest + kept.x);
    row_.x_bytes.push_back(kept.x);
  }

  void count(int units) {
    std::map<std::pair<int, int>, int> known;
    std::vector<int> pair_at;  // per lower unit
    for (int u = 0; u + 1 < units; ++u) {
      const std::pair<int, int> pair = {row_.kind_of[static_cast<size_t>(u)], row_.kind_of[static_cast<size_t>(u + 1)]};
      const auto [at, fresh] = known.try_emplace(pair, static_cast<int>(row_.pairs.size()));
      if (fresh) row_.pairs.push_back({pair.first, pair.second, {}});
      pair_at.push_back(at->second);
    }
    const auto sums = [](const std::vector<int>& of, int what) {
      std::vector<int> before = {0};
      for (const int i : of) before.push_back(before.back() + (i == what ? 1 : 0));
      return before;
    };
    for (size_t k = 0; k < row_.kinds.size(); ++k) row_.kinds[k].before = sums(row_.kind_of, static_cast<int>(k));
    for (size_t p = 0; p < row_.pairs.size(); ++p) row_.pairs[p].before = sums(pair_at, static_cast<int>(p));
  }

  const WholeList& whole_;
  const std::vector<UnitCost>& costs_;
  std::map<std::tuple<int, int64_t, int64_t>, int> kinds_;  // program, parameters, experts'
  std::vector<Kept> kept_;                                  // per kind
  RowCosts row_;
};

}  // namespace

RowCosts row_costs(const WholeList& whole, const std::vector<UnitCost>& costs, const Symbols& symbols) {
  return RowWriter(whole, costs).run(symbols);
}

}  // namespace distsetup
