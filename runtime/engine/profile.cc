#include "runtime/engine/profile.h"

#include <fmt/format.h>

#include "base/clock.h"

namespace distsetup {

Profile::Profile(Device& device) : device_(device) {
  device_.synchronize();
  first_timer_ = device_.start_timer(Stream::kCompute);
  device_.stop_timer(Stream::kCompute, first_timer_);
  first_s_ = now_s();
}

int Profile::begin(const Instruction& i, std::string_view program_op) {
  std::string what(name(i.op));
  if (i.unit >= 0) what += fmt::format(" {}", i.unit);
  if (!program_op.empty()) what += fmt::format("/{} micro-batch {}", program_op, i.micro_batch);
  const int timer = device_.start_timer(i.stream);
  ops_.push_back({{std::move(what), i.stream, now_s() - first_s_, 0}, timer});
  return int(ops_.size()) - 1;
}

void Profile::end(int op) {
  Open& open = ops_[size_t(op)];
  device_.stop_timer(open.op.stream, open.timer);
  open.op.seconds = now_s() - first_s_ - open.op.begin_s;
}

std::vector<ProfiledOp> Profile::finish() {
  device_.synchronize();
  std::vector<ProfiledOp> done;
  for (Open& open : ops_) {
    if (open.timer >= 0) {
      open.op.begin_s = device_.timer_begin_s(open.timer, first_timer_);
      open.op.seconds = device_.timer_s(open.timer);
    }
    done.push_back(std::move(open.op));
  }
  ops_.clear();
  return done;
}

}  // namespace distsetup
