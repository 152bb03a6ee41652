// How tests break the lists of a job, on one rank or on all.
#pragma once
#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "plan/check_job.h"
#include "plan/expand.h"
#include "plan/invariants.h"
#include "support/broken_lists.h"

#include <catch2/catch.hpp>

namespace distsetup {

// Ways to break one instruction of a list. Each says false where it would change nothing.
enum class Break { kDrop, kDouble, kSwap, kGroup, kWait, kUnit, kAccumulate };
inline constexpr int kNumBreaks = 7;

// `expanded`: the same list with its steps, to tell what depends on what.
inline bool apply(Break how, Schedule& s, const Schedule& expanded, int at, const Plan& plan) {
  Instruction& i = s.instructions[at];
  switch (how) {
    case Break::kDouble:
      if (i.op == InstructionOp::kZero || i.op == InstructionOp::kWait) return false;  // the same again
      drop_or_double(s, at, false);
      return true;
    case Break::kDrop: drop_or_double(s, at, true); return true;
    case Break::kSwap: {
      if (at + 1 >= static_cast<int>(s.instructions.size())) return false;
      Instruction& next = s.instructions[at + 1];
      // Two collectives of one group in another order are the same to every rank when all ranks swap them.
      if (!depends_on(expanded, expanded.instructions[at], expanded.instructions[at + 1])) return false;
      std::swap(i, next);
      return true;
    }
    case Break::kGroup:
      if (i.group == Group::kSelf) return false;
      for (const Group other : {Group::kEp, Group::kExpertData, Group::kDpShard, Group::kDpReplicate, Group::kData, Group::kSelf}) {
        if (is_expert_group(other) && plan.mesh.ep == 1) continue;
        if (group_members(plan.mesh, other, 0) == group_members(plan.mesh, i.group, 0)) continue;
        i.group = other;
        return true;
      }
      return false;
    case Break::kWait:
      if (i.waits.empty()) return false;
      i.waits.pop_back();
      return true;
    case Break::kUnit:
      if (i.unit < 0 || i.op == InstructionOp::kWait) return false;
      i.unit = i.unit > 0 ? i.unit - 1 : i.unit + 1;
      return true;
    case Break::kAccumulate:
      if (i.op != InstructionOp::kAccumulate) return false;
      i.accumulate = !i.accumulate;
      return true;
  }
  return false;
}

// `bad` runs on all ranks of its stage, or on the first of them alone.
inline bool is_caught(const Plan& plan, const Schedule& bad, bool on_one_rank) {
  std::vector<Schedule> good;
  for (int stage = 0; stage < plan.mesh.pp; ++stage) good.push_back(compile_expanded(plan, Phase::kStep, stage));
  std::vector<const Schedule*> by_rank;
  bool is_placed = false;
  for (int r = 0; r < plan.mesh.world(); ++r) {
    const int stage = coordinates(plan.mesh, r).pp;
    const bool is_bad = stage == bad.layout->stage && !(on_one_rank && is_placed);
    is_placed = is_placed || is_bad;
    by_rank.push_back(is_bad ? &bad : &good[static_cast<size_t>(stage)]);
  }
  return !check_job(plan, by_rank).empty();
}

// By the rules of its own list, while it is expanded (only what obeys those rules can be), or by those of the job.
inline bool is_caught_anywhere(const Plan& plan, const Schedule& bad, bool on_one_rank) {
  if (!check_invariants(plan, bad).empty()) return true;
  try {
    Schedule expanded = bad;
    expand(expanded);
    return is_caught(plan, expanded, on_one_rank);
  } catch (const std::exception&) {
    return true;
  }
}

// Lets one rank exchange something else in each exchange of its programs, in three ways: with others, not at all, less. Each has to be
// caught. Returns how many exchanges there are.
inline int changed_exchanges(const Plan& plan, Group one, Group other) {
  const Schedule good = compile_expanded(plan, Phase::kStep);
  int exchanges = 0;
  for (size_t n = 0; n < good.steps.size(); ++n) {
    if (good.steps[n].program_op == nullptr || !is_communication(good.steps[n].program_op->kind)) continue;
    ++exchanges;
    for (const int how : {0, 1, 2}) {
      Schedule bad = good;
      Step& step = bad.steps[n];
      Op changed = *step.program_op;
      if (how == 0) changed.group = changed.group == one ? other : one;
      if (how == 1) changed.kind = OpKind::kCopy;
      if (how == 2) step.reads.front().shape[0] /= 2;
      step.program_op = &changed;
      INFO(changed.name << " in way " << how);
      CHECK(is_caught(plan, bad, /*on_one_rank=*/true));
    }
  }
  return exchanges;
}

}  // namespace distsetup
