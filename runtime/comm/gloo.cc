// The communicator over Gloo. Gathers and exchanges are send and receive pairs straight between the callers' buffers: two to three
// times faster than Gloo's reduce-scatter (which is a full all-reduce), and each pair knows its peer, so that a lost rank can be
// named. One process group per channel and group. Tags count operations: ranks that disagree on the order time out instead of mixing
// data. Left out: reductions in bf16 (the receiver sums in fp32), averages (right on some versions only).
#include "runtime/comm/gloo.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <map>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "base/check.h"
#include "runtime/comm/gloo_work.h"
#include "runtime/comm/rendezvous.h"
#include "runtime/comm/yielding_trylock.h"

namespace distsetup {
namespace {

using std::chrono::milliseconds, std::chrono::seconds;
using ProcessGroup = c10::intrusive_ptr<c10d::ProcessGroupGloo>;

at::Tensor bytes_at(const void* data, int64_t num_bytes) {
  return at::from_blob(const_cast<void*>(data), {num_bytes}, at::TensorOptions().dtype(at::kByte));
}

class GlooCommunicator : public Communicator {
 public:
  GlooCommunicator(const Mesh& mesh, const Rendezvous& r) : mesh_(mesh), groups_(mesh, r.rank), rank_(r.rank) {
    failures_->store = meet(r);
    failures_->rank = r.rank;
    failures_->world = r.world;
    failures_->in_rank_0 = !r.agent_store;
    failures_->timeout_s = r.collective_timeout_s;
    const char* named = std::getenv("GLOO_SOCKET_IFNAME");
    const std::string interface = !r.interface.empty() ? r.interface : (named ? named : "");
    device_ = !interface.empty()
                  ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                  : c10d::ProcessGroupGloo::createDeviceForHostname(local_address_towards(r.master_address, r.master_port));
    constexpr Group kShards = Group::kDpShard | Group::kCp;
    constexpr Group kGathers[] = {Group::kTp,          Group::kCp, Group::kDpShard, kShards, Group::kDpShard | Group::kTp,
                                  kShards | Group::kTp};
    std::vector<Group> groups = {Group::kDpReplicate, Group::kDpReplicate | Group::kCp, Group::kData, Group::kData | Group::kCp,
                                 Group::kWorld};
    groups.insert(groups.begin(), std::begin(kGathers), std::end(kGathers));
    if (mesh.ep > 1) groups.insert(groups.end(), {Group::kEp, Group::kExpertData});
    if (mesh.pp > 1) {
      groups.insert(groups.end(), {Group::kPp, Group::kTied, loss_group(mesh)});
      for (const Group shards : {Group::kDpShard, kShards, Group::kDpShard | Group::kTp, kShards | Group::kTp})
        groups.push_back(shards | Group::kPp);
    }
    for (const Group group : groups) {
      const std::vector<int>& members = groups_.members(group);
      if (members.size() < 2) continue;
      for (const Channel channel : {Channel::kGather, Channel::kReduce, Channel::kControl, Channel::kStages}) {
        if (channel == Channel::kControl && group != Group::kWorld) continue;
        if (channel == Channel::kStages && group != Group::kPp) continue;
        const bool gathers =
            is_expert_group(group) || std::find(std::begin(kGathers), std::end(kGathers), group) != std::end(kGathers);
        if (channel == Channel::kGather && !gathers) continue;
        connections_[size_t(channel)][size_t(group)] = &connect(channel, members, r);
      }
    }
    if (world() > 1) failures_->closed = [this](const std::vector<int>& peers, int tries) { return closed_connections(peers, tries); };
    // A rank has its end of a connection before its peer has the other: one that left now would break what the peer still makes.
    GlooCommunicator::barrier();
  }

  ~GlooCommunicator() override {
    take_leave();
    // Gloo lets go of a peer when its loop wakes up next, after 10 ms at most, one peer after the other: all groups at the same time.
    probes_.clear();
    std::vector<std::jthread> closing;
    for (auto& [name, connection] : by_name_) closing.emplace_back([&group = connection.group] { group.reset(); });
  }

  int rank() const override { return rank_; }
  int world() const override { return mesh_.world(); }
  int size(Group group) const override { return groups_.size(group); }
  int index(Group group) const override { return groups_.index(group); }

  std::unique_ptr<Work> all_gather(Group group, void* buffer, int64_t chunk_bytes) override {
    const int n = size(group), at = index(group);
    char* base = static_cast<char*>(buffer);
    return pairs(
        "AllGather", Channel::kGather, group, chunk_bytes, [&](int) { return base + at * chunk_bytes; },
        [&](int k) { return base + (at + k) % n * chunk_bytes; });
  }

  std::unique_ptr<Work> exchange(Group group, const void* full, void* received, int64_t chunk_bytes) override {
    const int n = size(group), at = index(group);
    char *from = static_cast<char*>(const_cast<void*>(full)), *to = static_cast<char*>(received);
    return pairs(
        "ReduceScatter", Channel::kReduce, group, chunk_bytes, [&](int k) { return from + (at + k) % n * chunk_bytes; },
        [&](int k) { return to + (k - 1) * chunk_bytes; });
  }

  std::unique_ptr<Work> all_to_all(Group group, const void* from, void* to, int64_t chunk_bytes) override {
    const int n = size(group), at = index(group);
    char *source = static_cast<char*>(const_cast<void*>(from)), *target = static_cast<char*>(to);
    return pairs(
        "AllToAll", Channel::kReduce, group, chunk_bytes, [&](int k) { return source + (at + k) % n * chunk_bytes; },
        [&](int k) { return target + (at + k) % n * chunk_bytes; });
  }
  std::unique_ptr<Work> exchange_pieces(const char* operation, Group group, std::span<const RowPiece> sent,
                                        std::span<const RowPiece> received, int num_rounds) override {
    auto work = std::make_unique<PendingWork>(operation, failures_);
    Connection& connected = connection(Channel::kReduce, group);
    const int64_t first = std::exchange(connected.num_operations, connected.num_operations + num_rounds) + 1;
    const auto tag = [first](const RowPiece& piece) { return int((first + piece.round) & 0x3fffffff); };
    const auto start_all = [&](std::span<const RowPiece> pieces, bool sends) {
      for (const RowPiece& piece : pieces) {
        if (piece.num_bytes == 0) continue;
        start(*work, operation, {groups_.members(group)[size_t(piece.member)]}, [&] {
          std::vector<at::Tensor> bytes{bytes_at(piece.data, piece.num_bytes)};
          return sends ? connected.group->send(bytes, piece.member, tag(piece))
                       : connected.group->recv(bytes, piece.member, tag(piece));
        });
      }
    };
    start_all(received, false);
    start_all(sent, true);
    return work;
  }
  std::unique_ptr<Work> shift(Group group, const void* from, void* to, int64_t num_bytes) override {
    const int n = size(group), next = (index(group) + 1) % n, previous = (index(group) + n - 1) % n;
    auto work = std::make_unique<PendingWork>("Shift", failures_);
    Connection& connected = connection(Channel::kGather, group);
    const int tag = int(++connected.num_operations & 0x3fffffff);
    start(*work, "Shift", {groups_.members(group)[size_t(previous)]}, [&] {
      std::vector<at::Tensor> in{bytes_at(to, num_bytes)};
      return connected.group->recv(in, previous, tag);
    });
    start(*work, "Shift", {groups_.members(group)[size_t(next)]}, [&] {
      std::vector<at::Tensor> out{bytes_at(from, num_bytes)};
      return connected.group->send(out, next, tag);
    });
    return work;
  }
  std::unique_ptr<Work> send(Flow flow, int stage, const void* data, int64_t num_bytes) override {
    std::vector<at::Tensor> tensors{bytes_at(data, num_bytes)};
    const int tag = message_tag(flow, stage, sent_);
    return run("Send", {stage_rank(stage)}, [&] { return connection(Channel::kStages, Group::kPp).group->send(tensors, stage, tag); });
  }
  std::unique_ptr<Work> receive(Flow flow, int stage, void* data, int64_t num_bytes) override {
    std::vector<at::Tensor> tensors{bytes_at(data, num_bytes)};
    const int tag = message_tag(flow, stage, received_);
    return run("Recv", {stage_rank(stage)}, [&] { return connection(Channel::kStages, Group::kPp).group->recv(tensors, stage, tag); });
  }

  std::unique_ptr<Work> all_reduce_sum(Group group, float* data, int64_t count) override {
    return sum(Channel::kReduce, group, at::from_blob(data, {count}, at::TensorOptions().dtype(at::kFloat)));
  }
  std::unique_ptr<Work> all_reduce_sum(Group group, double* data, int64_t count) override {
    return sum(Channel::kReduce, group, at::from_blob(data, {count}, at::TensorOptions().dtype(at::kDouble)));
  }
  void control_sum(double* data, int64_t count) override {
    sum(Channel::kControl, Group::kWorld, at::from_blob(data, {count}, at::TensorOptions().dtype(at::kDouble)))->wait();
  }

  void broadcast(void* data, int64_t num_bytes, int root) override {
    if (world() < 2) return;
    std::vector<at::Tensor> tensors{bytes_at(data, num_bytes)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    std::vector<int> peers = rank_ == root ? others(Group::kWorld) : std::vector<int>{root};
    run("Broadcast", peers, [&] { return connection(Channel::kControl, Group::kWorld).group->broadcast(tensors, options); })->wait();
  }
  void barrier() override {
    double one = 1;  // a sum: its wait() names the operation and the time limit like every other
    if (world() > 1) control_sum(&one, 1);
  }

  void store_set(const std::string& name, const std::string& value) override {
    failures_->store->set(name, std::vector<uint8_t>(value.begin(), value.end()));
  }
  std::string store_get(const std::string& name) override {
    try {
      const std::vector<uint8_t> value = failures_->store->get(name);
      return {value.begin(), value.end()};
    } catch (const std::exception& e) {
      throw CommunicationError(-1, fmt::format("rank {} waited for '{}' in the store: {}", rank_, name, first_line(e.what())));
    }
  }
  std::string reported_failure() override { return distsetup::reported_failure(*failures_); }
  std::string report_failure(const std::string& report) override { return distsetup::report_failure(*failures_, report); }
  void outlast_readers() override { distsetup::outlast_readers(*failures_); }

 private:
  struct Connection {
    ProcessGroup group;
    int64_t num_operations = 0;
  };

  // The others may still need the store, and what this rank has reported in it.
  void take_leave() {
    failures_->closed = nullptr;
    if (failures_->failed) {
      distsetup::outlast_readers(*failures_);
      return;
    }
    try {
      failures_->store->set(fmt::format("bye/{}", rank_), std::vector<uint8_t>{'1'});
      if (rank_ == 0) {  // the store lives here: stay until all have said goodbye
        std::vector<std::string> keys;
        for (int p = 0; p < world(); ++p) keys.push_back(fmt::format("bye/{}", p));
        failures_->store->wait(keys, seconds(30));
      }
    } catch (const std::exception&) {
      // Whoever is missing reports its own end.
    }
  }

  int stage_rank(int stage) const { return groups_.members(Group::kPp)[size_t(stage)]; }

  // Counts messages to or from a stage in each flow: both ends count alike.
  static int message_tag(Flow flow, int stage, std::map<std::pair<Flow, int>, int64_t>& counts) {
    return int((counts[{flow, stage}]++ * 2 + (flow == Flow::kGradients ? 1 : 0)) & 0x3fffffff);
  }

  // Groups of the same ranks share one connection for each channel.
  Connection& connect(Channel channel, const std::vector<int>& members, const Rendezvous& r) {
    const std::string name = fmt::format("{}/{}", int(channel), fmt::join(members, ","));
    if (const auto known = by_name_.find(name); known != by_name_.end()) return known->second;
    auto options = c10d::ProcessGroupGloo::Options::create(seconds(r.collective_timeout_s));
    options->threads = 1;
    options->devices.push_back(device_);
    const int at = int(std::find(members.begin(), members.end(), rank_) - members.begin());
    try {
      auto store = c10::make_intrusive<c10d::PrefixStore>("group/" + name, failures_->store);
      by_name_[name].group = c10::make_intrusive<c10d::ProcessGroupGloo>(store, at, int(members.size()), options);
    } catch (const std::exception& e) {
      std::vector<int> peers = members;
      peers.erase(peers.begin() + at);
      failures_->raise("connecting", peers, e);
    }
    return by_name_[name];
  }

  Connection& connection(Channel channel, Group group) {
    Connection* const found = connections_[size_t(channel)][size_t(group)];
    CHECK(found != nullptr, "no connection of channel {} over {}", int(channel), name(group));
    return *found;
  }

  std::vector<int> others(Group group) const {
    std::vector<int> members = groups_.members(group);
    members.erase(members.begin() + groups_.index(group));
    return members;
  }

  // A sum does not say whose connection broke. Sending to a rank that is gone fails at once on its control connection; a send to one
  // that lives is left lying: this rank is about to give up.
  std::vector<int> closed_connections(const std::vector<int>& peers, int tries) {
    std::vector<int> closed;
    for (int attempt = 0; attempt < tries && closed.empty(); ++attempt) {
      if (attempt > 0) std::this_thread::sleep_for(milliseconds(25));
      for (const int peer : peers) {
        try {
          std::vector<at::Tensor> tensors{bytes_at(&probe_byte_, 1)};
          probes_.push_back(connection(Channel::kControl, Group::kWorld).group->send(tensors, peer, 0x7fffffff));
        } catch (const std::exception&) {
          closed.push_back(peer);
        }
      }
    }
    return closed;
  }

  template <class Issue>
  std::unique_ptr<PendingWork> run(const std::string& op, const std::vector<int>& peers, const Issue& issue) {
    auto work = std::make_unique<PendingWork>(op, failures_);
    start(*work, op, peers, issue);
    return work;
  }
  template <class Issue>
  void start(PendingWork& work, const std::string& op, const std::vector<int>& peers, const Issue& issue) {
    try {
      work.add(issue(), peers);
    } catch (const std::exception& e) {
      failures_->raise(op, peers, e);
    }
  }

  // k = 1 .. size - 1: sends source(k) to member (index + k) mod size and receives into target(k) from that same member.
  template <class Source, class Target>
  std::unique_ptr<Work> pairs(const std::string& op, Channel channel, Group group, int64_t chunk_bytes, const Source& source,
                              const Target& target) {
    auto work = std::make_unique<PendingWork>(op, failures_);
    const int n = size(group), at = index(group);
    if (n < 2) return work;
    const std::vector<int>& members = groups_.members(group);
    Connection& connected = connection(channel, group);
    const int tag = int(++connected.num_operations & 0x3fffffff);
    for (int k = 1; k < n; ++k) {
      const int member = (at + k) % n, peer = members[member];
      try {
        std::vector<at::Tensor> in{bytes_at(target(k), chunk_bytes)}, out{bytes_at(source(k), chunk_bytes)};
        work->add(connected.group->recv(in, member, tag), {peer});
        work->add(connected.group->send(out, member, tag), {peer});
      } catch (const std::exception& e) {
        failures_->raise(op, {peer}, e);
      }
    }
    return work;
  }

  std::unique_ptr<Work> sum(Channel channel, Group group, const at::Tensor& tensor) {
    if (size(group) < 2) return std::make_unique<PendingWork>("AllReduce", failures_);
    std::vector<at::Tensor> tensors{tensor};
    return run("AllReduce", others(group), [&] { return connection(channel, group).group->allreduce(tensors); });
  }

  Mesh mesh_;
  const RankGroups groups_;
  int rank_ = 0;
  std::shared_ptr<Failures> failures_ = std::make_shared<Failures>();
  std::shared_ptr<::gloo::transport::Device> device_;
  std::map<std::string, Connection> by_name_;
  std::array<std::array<Connection*, kNumGroups>, kNumChannels> connections_{};  // by channel and group: what an operation looks up
  std::map<std::pair<Flow, int>, int64_t> sent_, received_;                      // messages, by flow and stage
  char probe_byte_ = 0;
  std::vector<GlooWork> probes_;
};

}  // namespace

std::unique_ptr<Communicator> make_gloo_communicator(const Mesh& mesh, const Rendezvous& rendezvous) {
  // libtorch records its last 2000 collectives, one list per process, not guarded against groups used by several threads (2.11). The
  // trace is ours (tracing.h). A value that is set is kept.
  [[maybe_unused]] static const int recorder_off = setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/0);
  // Gloo writes to a connection with write(2): where the peer has closed it, that would end this process without a word.
  [[maybe_unused]] static const auto pipes_off = std::signal(SIGPIPE, SIG_IGN);
  num_yields();  // so that the program has yielding_trylock.cc in it
  return std::make_unique<GlooCommunicator>(mesh, rendezvous);
}

}  // namespace distsetup
