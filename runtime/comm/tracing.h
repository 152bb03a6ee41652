// Two communicators for tests and reports. Tracing: passes everything on and writes down what was asked, in order. Fake: no network;
// pretends to be one rank of any mesh: gathers see copies of the own chunk, sums and exchanges see others that contribute zero, stages
// receive zeros.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/passing.h"

namespace distsetup {

struct CommunicationRecord {
  std::string
      op;  // "AllGather", "ReduceScatter", "AllReduce", "Send", "Recv", "Broadcast", "ControlSum", "Barrier": a schedule's words
  Group group = Group::kSelf;
  Channel channel = Channel::kControl;
  int64_t bytes = 0;  // of the full (gathered) message
  int event = -1;     // count of the operation on its channel
  bool waited = false;
  bool operator==(const CommunicationRecord&) const = default;
};

class TracingCommunicator : public PassingCommunicator {
 public:
  explicit TracingCommunicator(Communicator& inner) : PassingCommunicator(inner) {}
  const std::vector<CommunicationRecord>& records() const { return *records_; }
  void clear() { records_->clear(); }

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
  std::unique_ptr<Work> record(std::string op, Group group, Channel channel, int64_t bytes, std::unique_ptr<Work> work);
  std::shared_ptr<std::vector<CommunicationRecord>> records_ = std::make_shared<std::vector<CommunicationRecord>>();
  std::array<int, kNumChannels> num_operations_{};
};

std::unique_ptr<Communicator> make_fake_communicator(const Mesh& mesh, int rank);

// world 1: everything is local and done at once. CHECKs that the mesh has one rank.
std::unique_ptr<Communicator> make_self_communicator(const Mesh& mesh);

}  // namespace distsetup
