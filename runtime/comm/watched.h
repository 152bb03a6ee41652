// A communicator that passes everything on and can be asked, from another thread, what it waits in and how many operations each of its
// channels has begun. Ranks of a group begin the same operations in the same order: whoever has begun fewer has not come yet.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/passing.h"
#include "runtime/engine/progress.h"

namespace distsetup {

class WatchedCommunicator : public PassingCommunicator {
 public:
  WatchedCommunicator(Communicator& inner, Progress& progress) : PassingCommunicator(inner), progress_(progress) {}

  struct Waiting {
    const char* operation = nullptr;  // "AllReduce"; null: it waits for nobody
    Channel channel = Channel::kControl;
    Group group = Group::kSelf;
    int64_t sequence = 0;  // of this operation on that channel of the group, the first is 1
  };
  Waiting waiting() const;
  int64_t num_begun(Channel channel, Group group) const {
    return begun_[size_t(channel)][size_t(group)].load(std::memory_order_relaxed);
  }

  std::unique_ptr<Work> all_gather(Group group, void* buffer, int64_t chunk_bytes) override;
  std::unique_ptr<Work> exchange(Group group, const void* full, void* received, int64_t chunk_bytes) override;
  std::unique_ptr<Work> all_to_all(Group group, const void* from, void* to, int64_t chunk_bytes) override;
  std::unique_ptr<Work> exchange_pieces(const char* operation, Group group, std::span<const RowPiece> sent,
                                        std::span<const RowPiece> received, int num_rounds) override;
  std::unique_ptr<Work> shift(Group group, const void* from, void* to, int64_t num_bytes) override;
  std::unique_ptr<Work> all_reduce_sum(Group group, float* data, int64_t count) override;
  std::unique_ptr<Work> all_reduce_sum(Group group, double* data, int64_t count) override;
  std::unique_ptr<Work> send(Flow flow, int stage, const void* data, int64_t num_bytes) override;
  std::unique_ptr<Work> receive(Flow flow, int stage, void* data, int64_t num_bytes) override;
  void broadcast(void* data, int64_t num_bytes, int root) override;
  void control_sum(double* data, int64_t count) override;
  void barrier() override;

 private:
  friend class WatchedWork;
  Waiting begin(const char* operation, Channel channel, Group group);
  std::unique_ptr<Work> watched(const Waiting& what, std::unique_ptr<Work> work);
  void enter(const Waiting& what);
  void leave();

  Progress& progress_;
  std::array<std::array<std::atomic<int64_t>, kNumGroups>, kNumChannels> begun_ = {};
  std::atomic<const char*> operation_ = nullptr;
  std::atomic<int64_t> place_ = 0;  // channel, group and sequence of it, in one word
};

}  // namespace distsetup
