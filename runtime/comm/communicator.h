// Communicator: what the executor asks of the network, and nothing more. One object per rank; groups are those of the plan's mesh.
// The idea: raw bytes and group names go in, a Work comes out; the buffers belong to the caller until Work::wait() returns. Every rank
// of a group issues the same operations in the same order per channel; channels never share a connection, so gathers cannot hold up
// reductions. Left out: reductions inside a reduce-scatter (the receiver sums, in ascending rank order, so that sums do not depend on
// arrival), averages (callers scale), anything on device memory other than the backend's own.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "plan/mesh.h"

namespace distsetup {

// Gathers, reductions and messages between stages of training, and everything that is not in a schedule (start, agreement on signals,
// checkpoints).
enum class Channel { kGather, kReduce, kControl, kStages };
inline constexpr int kNumChannels = 4;
// What travels between stages of a pipeline: activations to the next one, gradients to the previous. The two never wait for each
// other.
enum class Flow { kActivations, kGradients };

// An operation under way. Destroying it without wait() is allowed only while giving up. On a device with streams wait() does not block
// the host: order is the streams' (Device::record, wait, follow), and wait() tells only of failures known by then.
class Work {
 public:
  virtual ~Work() = default;
  virtual void wait() = 0;  // throws CommunicationError
};

// A peer is gone, too slow, or never came. `peer` is a rank of the whole job, -1 when it is not known which one.
class CommunicationError : public std::runtime_error {
 public:
  CommunicationError(int peer, const std::string& message) : std::runtime_error(message), peer_(peer) {}
  int peer() const { return peer_; }

 private:
  int peer_ = -1;
};

// A part of a message whose length both ends know. The piece that goes to a member in a round is what that member receives from here
// in that round; a piece without bytes is no message.
struct RowPiece {
  int member = 0, round = 0;
  void* data = nullptr;
  int64_t num_bytes = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int world() const = 0;
  virtual int size(Group group) const = 0;
  virtual int index(Group group) const = 0;  // this rank's place in the group, ascending by rank

  // buffer holds size(group) chunks; chunk index(group) is filled already, the others arrive.
  virtual std::unique_ptr<Work> all_gather(Group group, void* buffer, int64_t chunk_bytes) = 0;
  // The moving half of a reduce-scatter. full holds size(group) chunks; chunk p goes to member p. received gets size - 1 chunks:
  // chunk k - 1 comes from member (index + k) mod size, k = 1 .. size - 1. Padding travels too; nobody may read it.
  virtual std::unique_ptr<Work> exchange(Group group, const void* full, void* received, int64_t chunk_bytes) = 0;
  // from and to hold size(group) chunks, and do not overlap: chunk p of `from` goes to member p, whose chunk index(group) it becomes.
  // A member's own chunk stays where it is: the caller copies it.
  virtual std::unique_ptr<Work> all_to_all(Group group, const void* from, void* to, int64_t chunk_bytes) = 0;
  // Pieces to and from other members, in rounds 0 .. num_rounds - 1, as a part of `operation` ("AllToAll"), which messages name. All
  // members call it, with as many rounds.
  virtual std::unique_ptr<Work> exchange_pieces(const char* operation, Group group, std::span<const RowPiece> sent,
                                                std::span<const RowPiece> received, int num_rounds) = 0;
  // To member (index + 1) mod size, from member (index - 1) mod size. Buffers do not overlap.
  virtual std::unique_ptr<Work> shift(Group group, const void* from, void* to, int64_t num_bytes) = 0;
  // Sums in place; every member ends with the same bits.
  virtual std::unique_ptr<Work> all_reduce_sum(Group group, float* data, int64_t count) = 0;
  virtual std::unique_ptr<Work> all_reduce_sum(Group group, double* data, int64_t count) = 0;
  // A message to or from the rank of another pipeline stage that has this one's place on all other axes. The n-th that one sends in
  // a flow is the n-th that the other receives in it.
  virtual std::unique_ptr<Work> send(Flow flow, int stage, const void* data, int64_t num_bytes) = 0;
  virtual std::unique_ptr<Work> receive(Flow flow, int stage, void* data, int64_t num_bytes) = 0;
  // Between the two the device records (Device::begin_recording): what is issued has not happened when the recording ends. It happens
  // with each replay, after which replayed() is called.
  virtual void begin_recording() {}
  virtual void end_recording() {}
  virtual void replayed() {}
  // Throws CommunicationError when an operation has failed since it was issued. Backends whose Work::wait() tells everything do
  // nothing.
  virtual void check() {}

  // Control, blocking, over all ranks; not part of any schedule.
  virtual void broadcast(void* data, int64_t num_bytes, int root) = 0;
  virtual void control_sum(double* data, int64_t count) = 0;
  virtual void barrier() = 0;

  // Small texts by name, shared by all ranks: how a library's own bootstrap ids travel. get waits until some rank has set the name.
  // Only those that met over a network have them; the others throw std::logic_error.
  virtual void store_set(const std::string&, const std::string&) { throw std::logic_error("a communicator without a store"); }
  virtual std::string store_get(const std::string&) { throw std::logic_error("a communicator without a store"); }
  // What the first failing rank reported, as "peer text" ("2 rank 2 is gone: ..."); empty when none has. report() makes this rank's
  // text that one unless another was earlier, and returns the first. Any thread may call them.
  virtual std::string reported_failure() { return ""; }
  virtual std::string report_failure(const std::string& report) { return report; }
  // Before a process ends because of a failure: the one that keeps that report waits, seconds at most, until the others have read it.
  virtual void outlast_readers() {}
};

// Which rank this process is and where rank 0 listens: MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE and their kin, already read.
struct Rendezvous {
  int rank = 0, world = 1;
  std::string master_address = "127.0.0.1";
  int master_port = 29500;
  bool agent_store = false;  // TORCHELASTIC_USE_AGENT_STORE: torchrun's agent listens, rank 0 is a client too
  std::string run_id;        // keeps two jobs and two attempts apart in one store; the same on all ranks
  std::string plan_digest;   // of plan.json; ranks that have another one than rank 0 are refused
  std::string interface;     // network interface ("lo", "eth0"); empty: the one that master_address is reached by
  int64_t init_timeout_s = 300;
  int64_t collective_timeout_s = 600;
};

}  // namespace distsetup
