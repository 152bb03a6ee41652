// How tests break lists: an instruction more or less, and which instructions may not change places.
#pragma once
#include <algorithm>
#include <vector>

#include "plan/schedule.h"

namespace distsetup {

// Takes instruction `at` away, or doubles it; its segment and those behind it follow.
inline void drop_or_double(Schedule& s, int at, bool drops) {
  Segment* home = nullptr;
  for (Segment& g : s.segments)
    if (at >= g.first_instruction && at < g.first_instruction + g.num_instructions) home = &g;
  if (drops)
    s.instructions.erase(s.instructions.begin() + at);
  else
    s.instructions.insert(s.instructions.begin() + at, Instruction(s.instructions[static_cast<size_t>(at)]));
  const int change = drops ? -1 : 1;
  home->num_instructions += change;
  for (Segment& g : s.segments)
    if (&g > home) g.first_instruction += change;
  const int last = static_cast<int>(s.instructions.size()) - 1;
  for (Step& step : s.steps)  // those of one that is gone stay in the list, and nobody takes them
    step.instruction = std::min(step.instruction + (step.instruction > at ? change : 0), last);
}

struct TouchedBytes {
  int buffer = -1;  // root
  int64_t begin = 0, end = 0;
};
inline std::vector<TouchedBytes> touched_bytes(const Schedule& s, const Instruction& i, bool writes_only) {
  std::vector<TouchedBytes> out;
  const auto add = [&](const View& v) {
    // A rank's own chunk: any of them.
    const int64_t chunks = group_size(s.layout->mesh, v.own_of);
    out.push_back({root_buffer(s.buffers, v.buffer), v.offset_bytes, v.offset_bytes + chunks * num_bytes(v)});
  };
  for (int n = i.first_step; n < i.first_step + i.num_steps; ++n) {
    for (const View& v : s.steps[static_cast<size_t>(n)].writes) add(v);
    if (writes_only) continue;
    for (const View& v : s.steps[static_cast<size_t>(n)].reads) add(v);
  }
  return out;
}

// Of an expanded list: does `b` wait for `a`, or does one write what the other touches?
inline bool depends_on(const Schedule& s, const Instruction& a, const Instruction& b) {
  const auto overlap = [](const std::vector<TouchedBytes>& x, const std::vector<TouchedBytes>& y) {
    return std::any_of(x.begin(), x.end(), [&](const TouchedBytes& r) {
      return std::any_of(y.begin(), y.end(),
                         [&](const TouchedBytes& q) { return r.buffer == q.buffer && r.begin < q.end && q.begin < r.end; });
    });
  };
  if (a.signals >= 0 && std::count(b.waits.begin(), b.waits.end(), a.signals) > 0) return true;
  return overlap(touched_bytes(s, a, true), touched_bytes(s, b, false)) ||
         overlap(touched_bytes(s, b, true), touched_bytes(s, a, false));
}

}  // namespace distsetup
