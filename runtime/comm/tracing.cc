// Communicators without a network: Self (one rank, everything is done), Fake (any rank of any mesh, for tests of what is called), and
// Tracing, which writes down and passes on.
#include "runtime/comm/tracing.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace distsetup {
namespace {

class DoneWork : public Work {
 public:
  void wait() override {}
};

class LocalCommunicator : public Communicator {
 public:
  LocalCommunicator(const Mesh& mesh, int rank) : mesh_(mesh), groups_(mesh, rank), rank_(rank) {}
  int rank() const override { return rank_; }
  int world() const override { return mesh_.world(); }
  int size(Group group) const override { return groups_.size(group); }
  int index(Group group) const override { return groups_.index(group); }
  std::unique_ptr<Work> all_gather(Group group, void* buffer, int64_t chunk_bytes) override {
    char* base = static_cast<char*>(buffer);
    for (int p = 0; p < size(group); ++p) {
      if (p != index(group)) std::memcpy(base + p * chunk_bytes, base + index(group) * chunk_bytes, size_t(chunk_bytes));
    }
    return std::make_unique<DoneWork>();
  }
  std::unique_ptr<Work> exchange(Group group, const void*, void* received, int64_t chunk_bytes) override {
    if (size(group) > 1) std::memset(received, 0, size_t((size(group) - 1) * chunk_bytes));
    return std::make_unique<DoneWork>();
  }
  std::unique_ptr<Work> shift(Group, const void*, void* to, int64_t num_bytes) override {
    std::memset(to, 0, size_t(num_bytes));
    return std::make_unique<DoneWork>();
  }
  std::unique_ptr<Work> all_to_all(Group group, const void*, void* to, int64_t chunk_bytes) override {
    for (int p = 0; p < size(group); ++p)
      if (p != index(group)) std::memset(static_cast<char*>(to) + p * chunk_bytes, 0, size_t(chunk_bytes));
    return std::make_unique<DoneWork>();
  }
  std::unique_ptr<Work> exchange_pieces(const char*, Group, std::span<const RowPiece>, std::span<const RowPiece> received,
                                        int) override {
    for (const RowPiece& piece : received) std::memset(piece.data, 0, size_t(piece.num_bytes));
    return std::make_unique<DoneWork>();
  }
  std::unique_ptr<Work> all_reduce_sum(Group, float*, int64_t) override { return std::make_unique<DoneWork>(); }
  std::unique_ptr<Work> all_reduce_sum(Group, double*, int64_t) override { return std::make_unique<DoneWork>(); }
  std::unique_ptr<Work> send(Flow, int, const void*, int64_t) override { return std::make_unique<DoneWork>(); }
  std::unique_ptr<Work> receive(Flow, int, void* data, int64_t num_bytes) override {
    std::memset(data, 0, size_t(num_bytes));
    return std::make_unique<DoneWork>();
  }
  void broadcast(void*, int64_t, int) override {}
  void control_sum(double*, int64_t) override {}
  void barrier() override {}

 private:
  Mesh mesh_;
  const RankGroups groups_;
  int rank_ = 0;
};

class RecordedWork : public Work {
 public:
  RecordedWork(std::unique_ptr<Work> inner, std::shared_ptr<std::vector<CommunicationRecord>> records, size_t index)
      : inner_(std::move(inner)), records_(std::move(records)), index_(index) {}
  void wait() override {
    inner_->wait();
    if (index_ < records_->size()) (*records_)[index_].waited = true;
  }

 private:
  std::unique_ptr<Work> inner_;
  std::shared_ptr<std::vector<CommunicationRecord>> records_;
  size_t index_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator(const Mesh& mesh) {
  CHECK(mesh.world() == 1, "world {}", mesh.world());
  return std::make_unique<LocalCommunicator>(mesh, 0);
}

std::unique_ptr<Communicator> make_fake_communicator(const Mesh& mesh, int rank) {
  CHECK(rank >= 0 && rank < mesh.world(), "rank {} of {}", rank, mesh.world());
  return std::make_unique<LocalCommunicator>(mesh, rank);
}

std::unique_ptr<Work> TracingCommunicator::record(std::string op, Group group, Channel channel, int64_t bytes,
                                                  std::unique_ptr<Work> work) {
  const size_t index = records_->size();
  records_->push_back({std::move(op), group, channel, bytes, num_operations_[size_t(channel)]++, false});
  return std::make_unique<RecordedWork>(std::move(work), records_, index);
}
std::unique_ptr<Work> TracingCommunicator::all_gather(Group group, void* buffer, int64_t chunk_bytes) {
  return record("AllGather", group, Channel::kGather, chunk_bytes * size(group), inner_.all_gather(group, buffer, chunk_bytes));
}
std::unique_ptr<Work> TracingCommunicator::exchange(Group group, const void* full, void* received, int64_t chunk_bytes) {
  return record("ReduceScatter", group, Channel::kReduce, chunk_bytes * size(group),
                inner_.exchange(group, full, received, chunk_bytes));
}
std::unique_ptr<Work> TracingCommunicator::all_to_all(Group group, const void* from, void* to, int64_t chunk_bytes) {
  return record("AllToAll", group, Channel::kReduce, chunk_bytes * size(group), inner_.all_to_all(group, from, to, chunk_bytes));
}
std::unique_ptr<Work> TracingCommunicator::exchange_pieces(const char* operation, Group group, std::span<const RowPiece> sent,
                                                           std::span<const RowPiece> received, int num_rounds) {
  int64_t bytes = 0;
  for (const RowPiece& piece : sent) bytes += piece.num_bytes;
  return record(operation, group, Channel::kReduce, bytes, inner_.exchange_pieces(operation, group, sent, received, num_rounds));
}
std::unique_ptr<Work> TracingCommunicator::shift(Group group, const void* from, void* to, int64_t num_bytes) {
  return record("Shift", group, Channel::kGather, num_bytes, inner_.shift(group, from, to, num_bytes));
}
std::unique_ptr<Work> TracingCommunicator::all_reduce_sum(Group group, float* data, int64_t count) {
  return record("AllReduce", group, Channel::kReduce, count * int64_t(sizeof(float)), inner_.all_reduce_sum(group, data, count));
}
std::unique_ptr<Work> TracingCommunicator::all_reduce_sum(Group group, double* data, int64_t count) {
  return record("AllReduce", group, Channel::kReduce, count * int64_t(sizeof(double)), inner_.all_reduce_sum(group, data, count));
}
std::unique_ptr<Work> TracingCommunicator::send(Flow flow, int stage, const void* data, int64_t num_bytes) {
  return record("Send", Group::kPp, Channel::kStages, num_bytes, inner_.send(flow, stage, data, num_bytes));
}
std::unique_ptr<Work> TracingCommunicator::receive(Flow flow, int stage, void* data, int64_t num_bytes) {
  return record("Recv", Group::kPp, Channel::kStages, num_bytes, inner_.receive(flow, stage, data, num_bytes));
}
void TracingCommunicator::broadcast(void* data, int64_t num_bytes, int root) {
  record("Broadcast", Group::kWorld, Channel::kControl, num_bytes, std::make_unique<DoneWork>())->wait();
  inner_.broadcast(data, num_bytes, root);
}
void TracingCommunicator::control_sum(double* data, int64_t count) {
  record("ControlSum", Group::kWorld, Channel::kControl, count * int64_t(sizeof(double)), std::make_unique<DoneWork>())->wait();
  inner_.control_sum(data, count);
}
void TracingCommunicator::barrier() {
  record("Barrier", Group::kWorld, Channel::kControl, 0, std::make_unique<DoneWork>())->wait();
  inner_.barrier();
}

}  // namespace distsetup
