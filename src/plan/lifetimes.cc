#include "plan/lifetimes.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "plan/arena.h"

namespace distsetup {
namespace {

class Lifetimes {
 public:
  explicit Lifetimes(Schedule& s) : s_(s), by_instruction_(s.buffers.size()) {}

  void run() {
    lifetimes();
    overlays();
    live();
  }

 private:
  void lifetimes() {
    for (const Instruction& i : s_.instructions) {
      for (const int b : i.allocates) {
        const bool when_written = i.op == InstructionOp::kBackward && s_.buffers[b].unit == i.unit;
        if (!when_written && s_.buffers[b].lifetime != BufferLifetime::kRun) s_.buffers[b].first_step = i.first_step;
      }
      for (const int b : i.frees) {
        s_.buffers[b].last_step = i.first_step + i.num_steps - 1;
        by_instruction_[b] = true;
      }
    }
    for (int n = 0; n < static_cast<int>(s_.steps.size()); ++n) {
      const auto touch = [&](const View& v) {
        Buffer& b = s_.buffers[v.buffer];
        if (b.lifetime == BufferLifetime::kRun) return;
        if (b.first_step < 0) b.first_step = n;
        if (!by_instruction_[v.buffer]) b.last_step = n;
      };
      for (const View& v : s_.steps[n].reads) touch(v);
      for (const View& v : s_.steps[n].writes) touch(v);
    }
  }

  void overlays() {
    for (int n = 0; n < static_cast<int>(s_.steps.size()); ++n) {
      const Step& step = s_.steps[n];
      if (!step.program_op) continue;
      for (const Overlay& over : step.program_op->over) {
        const int w = step.writes[over.write].buffer, r = step.reads[over.read].buffer;
        Buffer& to = s_.buffers[w];
        if (to.lifetime != BufferLifetime::kSpan || s_.buffers[r].lifetime != BufferLifetime::kSpan) continue;
        if (!is_tensor(to) || !is_tensor(s_.buffers[r]) || to.overlay_of >= 0) continue;  // over an earlier operand
        if (by_instruction_[w] || by_instruction_[r]) continue;
        Buffer& from = s_.buffers[root_buffer(s_.buffers, r)];
        if (to.first_step != n || from.last_step != n || aligned(from.bytes) != aligned(to.bytes)) continue;
        to.overlay_of = root_buffer(s_.buffers, r);
        from.last_step = to.last_step;
      }
    }
  }

  void live() {
    std::vector<int64_t> change(s_.steps.size() + 1, 0);
    for (const Buffer& b : s_.buffers) {
      if (b.lifetime == BufferLifetime::kRun || b.overlay_of >= 0 || !is_on_device(b)) continue;
      CHECK(b.first_step >= 0 && b.last_step >= b.first_step, "buffer {} steps {}..{}", b.name, b.first_step, b.last_step);
      change[b.first_step] += aligned(b.bytes);
      change[b.last_step + 1] -= aligned(b.bytes);
    }
    s_.live_bytes.assign(s_.steps.size(), 0);
    int64_t now = 0;
    for (size_t n = 0; n < s_.steps.size(); ++n) {
      now += change[n];
      s_.live_bytes[n] = now;
      if (now > s_.live_peak_bytes) s_.live_peak_bytes = now, s_.live_peak_step = static_cast<int>(n);
    }
  }

  Schedule& s_;
  std::vector<bool> by_instruction_;  // of each buffer: does an instruction free it, and not its last touch?
};

}  // namespace

void set_lifetimes(Schedule& schedule) { Lifetimes(schedule).run(); }

}  // namespace distsetup
