#include "runtime/comm/watched.h"

#include <utility>

namespace distsetup {

class WatchedWork : public Work {
 public:
  WatchedWork(WatchedCommunicator& watcher, const WatchedCommunicator::Waiting& what, std::unique_ptr<Work> inner)
      : watcher_(watcher), what_(what), inner_(std::move(inner)) {}
  void wait() override {
    watcher_.enter(what_);
    inner_->wait();
    watcher_.leave();
  }

 private:
  WatchedCommunicator& watcher_;
  const WatchedCommunicator::Waiting what_;
  std::unique_ptr<Work> inner_;
};

WatchedCommunicator::Waiting WatchedCommunicator::waiting() const {
  const int64_t place = place_.load(std::memory_order_relaxed);
  return {operation_.load(std::memory_order_relaxed), static_cast<Channel>(place & 0xff), static_cast<Group>(place >> 8 & 0xff),
          place >> 16};
}

WatchedCommunicator::Waiting WatchedCommunicator::begin(const char* operation, Channel channel, Group group) {
  std::atomic<int64_t>& count = begun_[size_t(channel)][size_t(group)];
  const int64_t sequence = count.load(std::memory_order_relaxed) + 1;
  count.store(sequence, std::memory_order_relaxed);
  return {operation, channel, group, sequence};
}

std::unique_ptr<Work> WatchedCommunicator::watched(const Waiting& what, std::unique_ptr<Work> work) {
  return std::make_unique<WatchedWork>(*this, what, std::move(work));
}

void WatchedCommunicator::enter(const Waiting& what) {
  place_.store(what.sequence << 16 | int64_t(what.group) << 8 | int64_t(what.channel), std::memory_order_relaxed);
  operation_.store(what.operation, std::memory_order_relaxed);
  progress_.go_on();
}

// Not after a failure: what a rank gave up in is what it waited for.
void WatchedCommunicator::leave() {
  operation_.store(nullptr, std::memory_order_relaxed);
  progress_.go_on();
}

std::unique_ptr<Work> WatchedCommunicator::all_gather(Group group, void* buffer, int64_t chunk_bytes) {
  const Waiting what = begin("AllGather", Channel::kGather, group);
  return watched(what, inner_.all_gather(group, buffer, chunk_bytes));
}
std::unique_ptr<Work> WatchedCommunicator::exchange(Group group, const void* full, void* received, int64_t chunk_bytes) {
  const Waiting what = begin("ReduceScatter", Channel::kReduce, group);
  return watched(what, inner_.exchange(group, full, received, chunk_bytes));
}
std::unique_ptr<Work> WatchedCommunicator::all_to_all(Group group, const void* from, void* to, int64_t chunk_bytes) {
  const Waiting what = begin("AllToAll", Channel::kReduce, group);
  return watched(what, inner_.all_to_all(group, from, to, chunk_bytes));
}
std::unique_ptr<Work> WatchedCommunicator::exchange_pieces(const char* operation, Group group, std::span<const RowPiece> sent,
                                                           std::span<const RowPiece> received, int num_rounds) {
  const Waiting what = begin(operation, Channel::kReduce, group);
  return watched(what, inner_.exchange_pieces(operation, group, sent, received, num_rounds));
}
std::unique_ptr<Work> WatchedCommunicator::shift(Group group, const void* from, void* to, int64_t num_bytes) {
  const Waiting what = begin("Shift", Channel::kGather, group);
  return watched(what, inner_.shift(group, from, to, num_bytes));
}
std::unique_ptr<Work> WatchedCommunicator::all_reduce_sum(Group group, float* data, int64_t count) {
  const Waiting what = begin("AllReduce", Channel::kReduce, group);
  return watched(what, inner_.all_reduce_sum(group, data, count));
}
std::unique_ptr<Work> WatchedCommunicator::all_reduce_sum(Group group, double* data, int64_t count) {
  const Waiting what = begin("AllReduce", Channel::kReduce, group);
  return watched(what, inner_.all_reduce_sum(group, data, count));
}
// A stage sends and receives in an order of its own: both ends of a message are not compared.
std::unique_ptr<Work> WatchedCommunicator::send(Flow flow, int stage, const void* data, int64_t num_bytes) {
  const Waiting what = begin("Send", Channel::kStages, Group::kPp);
  return watched(what, inner_.send(flow, stage, data, num_bytes));
}
std::unique_ptr<Work> WatchedCommunicator::receive(Flow flow, int stage, void* data, int64_t num_bytes) {
  const Waiting what = begin("Recv", Channel::kStages, Group::kPp);
  return watched(what, inner_.receive(flow, stage, data, num_bytes));
}
void WatchedCommunicator::broadcast(void* data, int64_t num_bytes, int root) {
  enter(begin("Broadcast", Channel::kControl, Group::kWorld));
  inner_.broadcast(data, num_bytes, root);
  leave();
}
void WatchedCommunicator::control_sum(double* data, int64_t count) {
  enter(begin("ControlSum", Channel::kControl, Group::kWorld));
  inner_.control_sum(data, count);
  leave();
}
void WatchedCommunicator::barrier() {
  enter(begin("Barrier", Channel::kControl, Group::kWorld));
  inner_.barrier();
  leave();
}

}  // namespace distsetup
