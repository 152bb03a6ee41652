// See nccl.h. An exchange is a group of ncclSend and ncclRecv: chunks arrive as they are and the receiver sums in fp32 (Accumulate),
// so that a sum does not depend on the number of ranks a reduction tree happens to have, and is the same list as on CPU.
//
// NCCL returns when an operation is on its stream, not when it is done. A thread watches: asynchronous errors of every communicator,
// failures that other ranks reported, and operations that stay unfinished too long. The first failure aborts every communicator (their
// kernels end, a host that waits for the stream goes on) and is thrown by the next call, or by check() after results were read.
//
// Several communicators on one GPU may deadlock when ranks issue them in different orders (NCCL user guide, "Using multiple NCCL
// communicators concurrently"); here every rank of a group walks the same list.
//
// Proven against a stand-in of the library on host memory (tests/runtime/test_nccl.cc): calls, arguments, order, results, failures.
// Never run with more than one GPU. A peer on the same NVLink that dies without a word is found by the time limit or by the launcher.
#include "runtime/comm/nccl.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/check.h"
#include "plan/communicators.h"
#include "runtime/comm/nccl_messages.h"

namespace distsetup {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct NcclChannel {         // one NCCL communicator and what is under way on it
  std::string name;          // "gathers of ranks 0, 1"
  std::vector<int> members;  // ascending
  int index = 0;
  Stream stream = Stream::kCompute;
  nccl::Comm comm = nullptr;
  struct NcclOperation {
    const char* op = "";
    std::function<bool()> done;
    Clock::time_point issued;
  };
  std::deque<NcclOperation> pending;
  bool is_recorded = false;  // replays have operations of it
};

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(const Mesh& mesh, Device& device, std::unique_ptr<Communicator> control, const NcclOptions& options)
      : groups_(mesh, control->rank()),
        device_(device),
        control_(std::move(control)),
        options_(options),
        api_(nccl::load(options.library)) {
    for (const ChannelUse& use : channel_uses(mesh, options.sharding)) add(use.purpose, use.group, use.stream);
    if (mesh.pp > 1) add_stages(mesh.pp);
    connect();
    watchdog_ = std::thread([this] { watch(); });
  }

  ~NcclCommunicator() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    watchdog_.join();
    if (failure_) return;  // aborted
    try {
      device_.synchronize();
      control_->barrier();  // nobody takes another's goodbye for a failure: all have stopped watching
    } catch (const std::exception&) {
      return;  // whoever is missing reports its own end
    }
    for (auto& [key, channel] : channels_) api_.comm_destroy(channel.comm);
  }

  int rank() const override { return control_->rank(); }
  int world() const override { return control_->world(); }
  int size(Group group) const override { return control_->size(group); }
  int index(Group group) const override { return control_->index(group); }

  std::unique_ptr<Work> all_gather(Group group, void* buffer, int64_t chunk_bytes) override {
    return issue("AllGather", Purpose::kGathers, group, [&](NcclChannel& c, nccl::CudaStream stream) {
      char* base = static_cast<char*>(buffer);
      return api_.all_gather(base + c.index * chunk_bytes, base, size_t(chunk_bytes), nccl::kUint8, c.comm, stream);
    });
  }

  std::unique_ptr<Work> exchange(Group group, const void* full, void* received, int64_t chunk_bytes) override {
    return with_each("ReduceScatter", group, full, received, chunk_bytes, [](int k, int) { return k - 1; });
  }
  std::unique_ptr<Work> all_to_all(Group group, const void* from, void* to, int64_t chunk_bytes) override {
    return with_each("AllToAll", group, from, to, chunk_bytes, [](int, int peer) { return peer; });
  }
  std::unique_ptr<Work> shift(Group group, const void* from, void* to, int64_t num_bytes) override {
    return issue("Shift", Purpose::kReductions, group, [&](NcclChannel& c, nccl::CudaStream stream) {
      const int n = int(c.members.size());
      return nccl::together(
          api_, {nccl::send_to((c.index + 1) % n, from, num_bytes), nccl::receive_from((c.index + n - 1) % n, to, num_bytes)}, c.comm,
          stream);
    });
  }
  // Pieces between two members meet in the order of their rounds, which both lists have.
  std::unique_ptr<Work> exchange_pieces(const char* operation, Group group, std::span<const RowPiece> sent,
                                        std::span<const RowPiece> received, int) override {
    return issue(operation, Purpose::kReductions, group, [&](NcclChannel& c, nccl::CudaStream stream) {
      std::vector<nccl::Message> messages;
      for (const RowPiece& p : sent) messages.push_back(nccl::send_to(p.member, p.data, p.num_bytes));
      for (const RowPiece& p : received) messages.push_back(nccl::receive_from(p.member, p.data, p.num_bytes));
      std::erase_if(messages, [](const nccl::Message& m) { return m.num_bytes == 0; });
      return nccl::together(api_, messages, c.comm, stream);
    });
  }

  std::unique_ptr<Work> all_reduce_sum(Group group, float* data, int64_t count) override {
    return issue("AllReduce", Purpose::kReplicas, group, [&](NcclChannel& c, nccl::CudaStream stream) {
      return api_.all_reduce(data, data, size_t(count), nccl::kFloat32, nccl::kSum, c.comm, stream);
    });
  }
  std::unique_ptr<Work> all_reduce_sum(Group group, double* data, int64_t count) override {
    return issue("AllReduce", Purpose::kScalars, group, [&](NcclChannel& c, nccl::CudaStream stream) {
      return api_.all_reduce(data, data, size_t(count), nccl::kFloat64, nccl::kSum, c.comm, stream);
    });
  }

  std::unique_ptr<Work> send(Flow flow, int, const void* data, int64_t num_bytes) override {
    return issue_on("Send", by_flow_[size_t(flow)].send, [&](NcclChannel& c, nccl::CudaStream stream) {
      return api_.send(data, size_t(num_bytes), nccl::kUint8, 1 - c.index, c.comm, stream);
    });
  }
  std::unique_ptr<Work> receive(Flow flow, int, void* data, int64_t num_bytes) override {
    return issue_on("Recv", by_flow_[size_t(flow)].receive, [&](NcclChannel& c, nccl::CudaStream stream) {
      return api_.receive(data, size_t(num_bytes), nccl::kUint8, 1 - c.index, c.comm, stream);
    });
  }

  void begin_recording() override { is_recording_ = true; }
  void end_recording() override { is_recording_ = false; }
  // What a replay does on any communicator is done when the compute stream has come past it.
  void replayed() override {
    const std::function<bool()> done = device_.mark(Stream::kCompute);
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [key, channel] : channels_)
      if (channel.is_recorded) channel.pending.push_back({"a recorded micro-batch", done, Clock::now()});
  }

  void check() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failure_) throw CommunicationError(failure_->peer, failure_->what);
  }

  // Control is on host memory.
  void broadcast(void* data, int64_t num_bytes, int root) override { control_->broadcast(data, num_bytes, root); }
  void control_sum(double* data, int64_t count) override { control_->control_sum(data, count); }
  void barrier() override { control_->barrier(); }
  void store_set(const std::string& name, const std::string& value) override { control_->store_set(name, value); }
  std::string store_get(const std::string& name) override { return control_->store_get(name); }
  std::string reported_failure() override { return control_->reported_failure(); }
  std::string report_failure(const std::string& report) override { return control_->report_failure(report); }
  void outlast_readers() override { control_->outlast_readers(); }

 private:
  struct IssuedWork : Work {
    explicit IssuedWork(NcclCommunicator* o) : owner(o) {}
    void wait() override { owner != nullptr ? owner->check() : void(); }
    NcclCommunicator* owner;
  };
  // k = 1 .. size - 1: sends the chunk of member (index + k) mod size to it, and receives from it into chunk place(k, member).
  template <class Place>
  std::unique_ptr<Work> with_each(const char* op, Group group, const void* from, void* to, int64_t chunk_bytes, const Place& place) {
    return issue(op, Purpose::kReductions, group, [&](NcclChannel& c, nccl::CudaStream stream) {
      std::vector<nccl::Message> messages;
      for (int k = 1; k < int(c.members.size()); ++k) {
        const int peer = (c.index + k) % int(c.members.size());
        messages.push_back(nccl::send_to(peer, static_cast<const char*>(from) + peer * chunk_bytes, chunk_bytes));
        messages.push_back(nccl::receive_from(peer, static_cast<char*>(to) + place(k, peer) * chunk_bytes, chunk_bytes));
      }
      return nccl::together(api_, messages, c.comm, stream);
    });
  }
  struct FailureText {
    int peer = -1;
    std::string what;
  };

  static std::string key(Purpose purpose, Stream stream, const std::vector<int>& members) {
    return fmt::format("{}/{}/{}", kPurposes[int(purpose)], name(stream), fmt::join(members, ","));
  }

  void add(Purpose purpose, Group group, Stream stream) {
    NcclChannel c;
    c.members = groups_.members(group);
    if (c.members.size() < 2) return;
    c.name = fmt::format("{} of ranks {}", kPurposes[int(purpose)], fmt::join(c.members, ", "));
    c.index = groups_.index(group);
    c.stream = stream;
    const std::string k = key(purpose, stream, c.members);
    if (channels_.count(k) == 0) order_.push_back(k);
    by_group_[size_t(purpose)][size_t(group)] = &channels_.emplace(k, std::move(c)).first->second;
  }

  // A communicator of two ranks for each pair of neighbouring stages and flow, so that what one neighbour is late with holds up
  // nothing else. Connected in three rounds of pairs that share no rank: those that begin at an even stage, at an odd one, and the
  // last stage with the first.
  void add_stages(int stages) {
    const std::vector<int>& line = groups_.members(Group::kPp);
    const int here = groups_.index(Group::kPp);
    for (const Flow flow : {Flow::kActivations, Flow::kGradients}) {
      for (const int round : {0, 1, 2}) {
        for (int stage = 0; stage < stages; ++stage) {
          const int next = (stage + 1) % stages;
          if ((next == 0 ? 2 : stage % 2) != round || (next == 0 && !options_.interleaves_stages)) continue;
          if (here == stage) add_pair(flow, line[size_t(stage)], line[size_t(next)], /*is_earlier=*/true);
          if (here == next) add_pair(flow, line[size_t(stage)], line[size_t(next)], /*is_earlier=*/false);
        }
      }
    }
  }

  void add_pair(Flow flow, int from, int to, bool is_earlier) {
    const bool forwards = flow == Flow::kActivations, sends = forwards == is_earlier;
    NcclChannel c;
    c.members = {std::min(from, to), std::max(from, to)};
    c.name = fmt::format("{} of ranks {}, {}", forwards ? "activations" : "gradients", from, to);
    c.index = rank() == c.members[0] ? 0 : 1;
    c.stream = is_earlier ? (sends ? Stream::kToNext : Stream::kFromNext) : (sends ? Stream::kToPrevious : Stream::kFromPrevious);
    const std::string k = fmt::format("{}/{}-{}", forwards ? "activations" : "gradients", from, to);
    order_.push_back(k);
    FlowChannels& channels = by_flow_[size_t(flow)];
    (sends ? channels.send : channels.receive) = &channels_.emplace(k, std::move(c)).first->second;
  }

  // ncclCommInitRank has no time limit of its own: it runs on a thread that is left behind when the limit passes. Groups of one
  // purpose partition the ranks and every rank goes through the purposes in the same order, so none waits for one that waits for it.
  void connect() {
    struct Progress {
      std::mutex mutex;
      std::condition_variable changed;
      size_t num_ready = 0;
      std::vector<nccl::Comm> comms;
      std::string error;
    };
    auto progress = std::make_shared<Progress>();
    struct Job {
      int num_ranks, index;
      nccl::UniqueId id;
    };
    std::vector<Job> jobs;
    for (const std::string& k : order_) {
      const NcclChannel& c = channels_.at(k);
      nccl::UniqueId id{};
      if (c.index == 0) {
        if (const nccl::Status r = api_.get_unique_id(&id); r != nccl::kSuccess)
          throw CommunicationError(-1, fmt::format("NCCL makes no id for {}: {}", c.name, api_.get_error_string(r)));
        control_->store_set("nccl/" + k, std::string(id.internal, sizeof(id.internal)));
      } else {
        const std::string text = control_->store_get("nccl/" + k);
        if (text.size() != sizeof(id.internal))
          throw CommunicationError(
              c.members[0], fmt::format("the NCCL id of {} has {} bytes, expected {}", c.name, text.size(), sizeof(id.internal)));
        std::memcpy(id.internal, text.data(), text.size());
      }
      jobs.push_back({int(c.members.size()), c.index, id});
    }
    progress->comms.resize(jobs.size(), nullptr);
    std::thread([progress, jobs, api = api_, device = &device_] {
      device->make_current();
      for (size_t i = 0; i < jobs.size(); ++i) {
        nccl::Comm comm = nullptr;
        const nccl::Status r = api.comm_init_rank(&comm, jobs[i].num_ranks, jobs[i].id, jobs[i].index);
        const std::lock_guard<std::mutex> lock(progress->mutex);
        if (r != nccl::kSuccess)
          progress->error = api.get_error_string(r);
        else
          progress->comms[i] = comm;
        if (r == nccl::kSuccess) ++progress->num_ready;
        progress->changed.notify_all();
        if (r != nccl::kSuccess) return;
      }
    }).detach();
    std::unique_lock<std::mutex> lock(progress->mutex);
    const bool in_time = progress->changed.wait_for(lock, seconds(options_.init_timeout_s),
                                                    [&] { return progress->num_ready == jobs.size() || !progress->error.empty(); });
    if (progress->num_ready < jobs.size()) {
      const std::string& which = channels_.at(order_[progress->num_ready]).name;
      throw CommunicationError(-1, in_time ? fmt::format("NCCL cannot connect the {}: {}", which, progress->error)
                                           : fmt::format("NCCL did not connect the {} within {} s", which, options_.init_timeout_s));
    }
    for (size_t i = 0; i < jobs.size(); ++i) channels_.at(order_[i]).comm = progress->comms[i];
  }

  template <class Call>
  std::unique_ptr<Work> issue(const char* op, Purpose purpose, Group group, const Call& call) {
    if (size(group) < 2) return std::make_unique<IssuedWork>(nullptr);
    NcclChannel* const found = by_group_[size_t(purpose)][size_t(group)];
    CHECK(found != nullptr, "no communicator for {} over {}", kPurposes[int(purpose)], name(group));
    return issue_on(op, found, call);
  }

  template <class Call>
  std::unique_ptr<Work> issue_on(const char* op, NcclChannel* found, const Call& call) {
    CHECK(found != nullptr, "no communicator for {}", op);
    check();
    NcclChannel& channel = *found;
    const nccl::Status result = call(channel, device_.native_stream(channel.stream));
    const std::lock_guard<std::mutex> lock(mutex_);
    if (result != nccl::kSuccess && result != nccl::kInProgress && !failure_) fail(channel, op, api_.get_error_string(result));
    if (failure_) throw CommunicationError(failure_->peer, failure_->what);
    channel.is_recorded |= is_recording_;
    if (!is_recording_) channel.pending.push_back({op, device_.mark(channel.stream), Clock::now()});
    return std::make_unique<IssuedWork>(this);
  }

  // With mutex_ held. The first failure of the job is the one all ranks name.
  void fail(const NcclChannel& channel, const char* op, const std::string& what) {
    std::vector<int> peers = channel.members;
    peers.erase(peers.begin() + channel.index);
    const int peer = peers.size() == 1 ? peers[0] : -1;
    const std::string mine =
        fmt::format("{} is gone or stuck: rank {} in {}, {}: {}",
                    peer >= 0 ? fmt::format("rank {}", peer) : fmt::format("one of ranks {}", fmt::join(peers, ", ")), rank(), op,
                    channel.name, what);
    give_up(control_->report_failure(fmt::format("{} {}", peer, mine)));
  }
  void give_up(const std::string& report) {
    const size_t space = report.find(' ');
    failure_ = FailureText{std::atoi(report.c_str()), space == std::string::npos ? report : report.substr(space + 1)};
    for (auto& [k, channel] : channels_) api_.comm_abort(channel.comm);
  }

  void watch() {
    device_.make_current();
    auto next_look = Clock::now() + seconds(1);
    std::unique_lock<std::mutex> lock(mutex_);
    while (!wake_.wait_for(lock, milliseconds(50), [&] { return stopping_; })) {
      if (failure_) return;
      for (auto& [k, channel] : channels_) {
        while (!channel.pending.empty() && channel.pending.front().done()) channel.pending.pop_front();
        const char* op = channel.pending.empty() ? "between operations" : channel.pending.front().op;
        nccl::Status error = nccl::kSuccess;
        const nccl::Status asked = api_.comm_get_async_error(channel.comm, &error);
        if (asked != nccl::kSuccess) error = asked;
        if (error != nccl::kSuccess && error != nccl::kInProgress) {
          fail(channel, op, api_.get_error_string(error));
        } else if (!channel.pending.empty() &&
                   Clock::now() - channel.pending.front().issued > seconds(options_.collective_timeout_s)) {
          fail(channel, op, fmt::format("not finished within {} s", options_.collective_timeout_s));
        }
        if (failure_) return;
      }
      if (Clock::now() < next_look) continue;
      next_look = Clock::now() + seconds(1);
      lock.unlock();
      const std::string report = control_->reported_failure();
      lock.lock();
      if (!report.empty() && !failure_) return give_up(report);
    }
  }

  const RankGroups groups_;
  Device& device_;
  std::unique_ptr<Communicator> control_;
  const NcclOptions options_;
  const nccl::Api api_;
  std::map<std::string, NcclChannel> channels_;  // one for each purpose, stream and set of ranks
  std::array<std::array<NcclChannel*, kNumGroups>, std::size(kPurposes)> by_group_{};
  struct FlowChannels {
    NcclChannel *send = nullptr, *receive = nullptr;
  };
  std::array<FlowChannels, 2> by_flow_;
  std::vector<std::string> order_;
  std::mutex mutex_;  // failure_, stopping_, pending
  std::condition_variable wake_;
  bool stopping_ = false, is_recording_ = false;
  std::optional<FailureText> failure_;
  std::thread watchdog_;
};

}  // namespace

NcclOptions nccl_options(const Plan& plan) {
  return {"", plan.launch.init_timeout_s, plan.launch.collective_timeout_s, plan.strategy.sharding, plan.strategy.virtual_stages > 1};
}

std::unique_ptr<Communicator> make_nccl_communicator(const Mesh& mesh, Device& device, std::unique_ptr<Communicator> control,
                                                     const NcclOptions& options) {
  return std::make_unique<NcclCommunicator>(mesh, device, std::move(control), options);
}

}  // namespace distsetup
