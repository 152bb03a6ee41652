#include "plan/memory_rules.h"

#include <fmt/format.h>

#include <iterator>
#include <map>

namespace distsetup {

std::vector<std::string> check_memory(const Schedule& s) {
  std::vector<std::string> out;
  if (s.steps.empty()) return out;
  const auto require = [&out]<class... A>(bool holds, fmt::format_string<A...> text, A&&... args) {
    if (!holds) out.push_back(fmt::format(text, std::forward<A>(args)...));
  };
  std::vector<std::vector<int>> born(s.steps.size() + 1), dead(s.steps.size() + 1);
  for (int b = 0; b < static_cast<int>(s.buffers.size()); ++b) {
    const Buffer& buffer = s.buffers[b];
    if (buffer.lifetime == BufferLifetime::kRun || buffer.overlay_of >= 0) continue;
    const int64_t arena_bytes = is_on_device(buffer) ? s.arena_bytes : s.host_arena_bytes;
    require(buffer.offset_bytes >= 0 && buffer.offset_bytes % kBufferAlignment == 0 &&
                buffer.offset_bytes + aligned(buffer.bytes) <= arena_bytes,
            "'{}' at {} + {} is not inside the arena of {}", buffer.name, buffer.offset_bytes, buffer.bytes, arena_bytes);
    born[buffer.first_step].push_back(b);
    dead[buffer.last_step + 1].push_back(b);
  }
  std::map<int64_t, int> of_device, of_host;  // live ones by offset
  std::vector<bool> written(s.buffers.size());
  for (size_t n = 0; n < s.steps.size(); ++n) {
    const auto live_beside = [&](int b) -> std::map<int64_t, int>& { return is_on_device(s.buffers[b]) ? of_device : of_host; };
    for (const int b : dead[n]) live_beside(b).erase(s.buffers[b].offset_bytes);
    for (const int b : born[n]) {
      const int64_t from = s.buffers[b].offset_bytes, to = from + aligned(s.buffers[b].bytes);
      if (from == to) continue;
      std::map<int64_t, int>& live = live_beside(b);
      auto next = live.lower_bound(from);
      require(next == live.end() || next->first >= to, "'{}' overlaps '{}'", s.buffers[b].name,
              s.buffers[next == live.end() ? b : next->second].name);
      if (next != live.begin()) {
        const Buffer& before = s.buffers[std::prev(next)->second];
        require(before.offset_bytes + aligned(before.bytes) <= from, "'{}' overlaps '{}'", s.buffers[b].name, before.name);
      }
      live[from] = b;
    }
    const Step& t = s.steps[n];
    const auto inside = [&](const View& v, bool write) {
      const Buffer& b = s.buffers[v.buffer];
      const int64_t chunks = group_size(s.layout->mesh, v.own_of);
      require(v.offset_bytes >= 0 && v.offset_bytes + chunks * num_bytes(v) <= b.bytes, "step {} {} reaches outside '{}'", n, t.op,
              b.name);
      if (b.lifetime == BufferLifetime::kRun) return;
      const Buffer& root = s.buffers[root_buffer(s.buffers, v.buffer)];
      const int step = static_cast<int>(n);
      require(b.first_step <= step && step <= root.last_step, "step {} {} touches '{}' outside its life {}..{}", n, t.op, b.name,
              b.first_step, root.last_step);
      if (write)
        written[v.buffer] = true;
      else
        require(written[v.buffer], "step {} {} reads '{}' before it is written", n, t.op, b.name);
    };
    const bool in_place_gather = s.instructions[t.instruction].op == InstructionOp::kAllGather;
    for (const View& v : t.reads) inside(v, in_place_gather);
    for (const View& v : t.writes) inside(v, true);
  }
  return out;
}

}  // namespace distsetup
