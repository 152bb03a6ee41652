// A device and a communicator that do everything as late and in as odd an order as a GPU with streams may: work is put on a queue for
// each stream and only done when the host waits for it, taking heads of queues at random; a wait for an event blocks its queue, a
// collective blocks it until all members have arrived. Results must be those of the CPU. Kernels are the CPU's.
//
// Ranks are threads. A collective moves its bytes when the last member arrives, so that sources are read and targets written late.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/device/cpu_device.h"
#include "runtime/device/device.h"
#include "runtime/engine/ops.h"

namespace distsetup {

// One queue for each stream.
class LateStreams {
 public:
  using Item = std::function<bool()>;  // false: cannot be done yet, stays at the head

  explicit LateStreams(uint64_t seed) : random_(seed) {}

  // Between the two calls what is put on queues is kept. It is called again to be put on them: with new events and new meetings.
  using Kept = std::vector<std::function<void()>>;
  void begin_keeping() { kept_ = std::make_shared<Kept>(); }
  std::shared_ptr<Kept> end_keeping() { return std::exchange(kept_, nullptr); }
  bool keeps() const { return kept_ != nullptr; }
  bool keep(std::function<void()> again) {
    if (kept_ != nullptr) kept_->push_back(std::move(again));
    return kept_ != nullptr;
  }

  void put(Stream stream, Item item) {
    if (kept_ != nullptr) throw std::logic_error("something that cannot be recorded");
    queue(stream).push_back(std::move(item));
    // Now and then something is done early: otherwise each run would be the latest order only.
    if (random_() % 4 == 0) advance();
  }
  void put_action(Stream stream, std::function<void()> action) {
    if (keep([this, stream, action] { put_action(stream, action); })) return;
    put(stream, [action = std::move(action)] {
      action();
      return true;
    });
  }
  void finish(Stream stream) {
    if (kept_ != nullptr) throw std::logic_error("the host waits for what is recorded");
    work_until([&] { return queue(stream).empty(); });
  }
  void finish(const std::shared_ptr<bool>& event) {
    work_until([&] { return *event; });
  }
  void finish_all() {
    work_until([&] { return std::all_of(queues_.begin(), queues_.end(), [](const auto& q) { return q.empty(); }); });
  }

 private:
  std::deque<Item>& queue(Stream stream) { return queues_[static_cast<size_t>(stream)]; }

  // Tries the heads in a random order, does the first that can be done.
  bool advance() {
    std::array<size_t, kNumStreams> order;
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random_);
    for (const size_t q : order) {
      if (queues_[q].empty() || !queues_[q].front()()) continue;
      queues_[q].pop_front();
      return true;
    }
    return false;
  }
  void work_until(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done()) {
      if (advance()) continue;
      if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("streams wait for each other for ever");
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  std::mt19937_64 random_;
  std::shared_ptr<Kept> kept_;
  std::array<std::deque<Item>, kNumStreams> queues_;
};

class LateKernels : public Kernels {
 public:
  explicit LateKernels(LateStreams& streams, const Kernels& now) : streams_(streams), now_(now) {}

  std::string bind(const std::string& kernel, Call& call) const override {
    auto late = std::make_shared<LateCall>(LateCall{&streams_, call});
    const std::string why_not = now_.bind(kernel, late->call);
    call.function = [](const Call& c) {
      const auto mine = std::static_pointer_cast<LateCall>(c.prepared);
      mine->streams->put_action(Stream::kCompute, [mine] { mine->call.function(mine->call); });
    };
    call.prepared = late;
    return why_not;
  }
  void cast(Stream stream, const float* from, void* to, Dtype to_dtype, int64_t n) const override {
    streams_.put_action(stream, [=, this] { now_.cast(stream, from, to, to_dtype, n); });
  }
  void sum_chunks(float* target, const void* own, const void* received, Dtype dtype, int64_t size, int64_t index, int64_t chunk_stride,
                  int64_t n, bool accumulate) const override {
    streams_.put_action(Stream::kCompute,
                        [=, this] { now_.sum_chunks(target, own, received, dtype, size, index, chunk_stride, n, accumulate); });
  }
  void sum_partials(const void* own, const void* received, const void* addend, void* target, Dtype dtype, int64_t size, int64_t index,
                    int64_t n) const override {
    streams_.put_action(Stream::kCompute, [=, this] { now_.sum_partials(own, received, addend, target, dtype, size, index, n); });
  }
  void copy(Stream stream, void* to, const void* from, int64_t bytes) const override {
    streams_.put_action(stream, [=, this] { now_.copy(stream, to, from, bytes); });
  }
  void sum_of_squares(const float* x, const std::vector<ElementRange>& ranges, double* sum) const override {
    streams_.put_action(Stream::kCompute, [=, this] { now_.sum_of_squares(x, ranges, sum); });
  }
  void adamw(const AdamWUpdate& update) const override {
    streams_.put_action(Stream::kCompute, [=, this] { now_.adamw(update); });
  }
  void lion(const LionUpdate& update) const override {
    streams_.put_action(Stream::kCompute, [=, this] { now_.lion(update); });
  }
  void adamw_8bit(const AdamW8bitUpdate& update) const override {
    streams_.put_action(Stream::kCompute, [=, this] { now_.adamw_8bit(update); });
  }
  void adafactor(AdafactorPass pass, const AdafactorUpdate& update) const override {
    streams_.put_action(Stream::kCompute, [=, this] { now_.adafactor(pass, update); });
  }
  void muon_momentum(const MuonMomentum& update) const override {
    streams_.put_action(Stream::kCompute, [=, this] { now_.muon_momentum(update); });
  }
  void decayed_step(const DecayedStep& update) const override {
    streams_.put_action(Stream::kCompute, [=, this] { now_.decayed_step(update); });
  }
  void normalize(void* values, int64_t n, float* scratch) const override {
    streams_.put_action(Stream::kCompute, [=, this] { now_.normalize(values, n, scratch); });
  }
  void multiply_add(const MatrixView& out, const MatrixView& addend, const MatrixView& a, const MatrixView& b, double beta,
                    double alpha) const override {
    streams_.put_action(Stream::kCompute, [=, this] { now_.multiply_add(out, addend, a, b, beta, alpha); });
  }

 private:
  struct LateCall {
    LateStreams* streams;
    Call call;
  };
  LateStreams& streams_;
  const Kernels& now_;
};

class AdversarialDevice : public Device {
 public:
  // ignored_order: the how-many-th wait or follow of this device is left out; -1: none.
  explicit AdversarialDevice(uint64_t seed, int64_t ignored_order = -1) : ignored_order_(ignored_order), streams_(seed) {}

  LateStreams& streams() { return streams_; }
  int64_t num_orders() const { return num_orders_; }

  std::string description() const override { return "adversarial streams of a test"; }
  Accelerator accelerator() const override { return Accelerator::kCpu; }
  const Kernels& kernels() const override { return kernels_; }
  bool host_memory() const override { return false; }
  std::unique_ptr<DeviceMemory> allocate(int64_t num_bytes, int tag) override { return cpu_->allocate(num_bytes, tag); }
  std::unique_ptr<DeviceMemory> allocate_host(int64_t num_bytes, Place place) override {
    return cpu_->allocate_host(num_bytes, place);
  }
  void copy(Stream stream, void* to, const void* from, int64_t num_bytes) override {
    streams_.put_action(stream, [=, this] { cpu_->copy(stream, to, from, num_bytes); });
  }
  void wait_on_host(int event) override {
    if (num_orders_++ == ignored_order_) return;
    streams_.finish(events_.at(event));
  }
  void fill(void* data, int byte, int64_t num_bytes) override {
    streams_.put_action(Stream::kCompute, [=, this] { cpu_->fill(data, byte, num_bytes); });
  }
  void copy_to_device(void* device, const void* host, int64_t num_bytes) override {
    if (streams_.keeps()) throw std::logic_error("numbers of the host in a recording");
    const auto* begin = static_cast<const char*>(host);
    auto bytes = std::make_shared<std::vector<char>>(begin, begin + num_bytes);
    streams_.put_action(Stream::kCompute, [=] { std::copy(bytes->begin(), bytes->end(), static_cast<char*>(device)); });
  }
  void copy_to_host(void* host, const void* device, int64_t num_bytes) override {
    streams_.finish(Stream::kCompute);
    cpu_->copy_to_host(host, device, num_bytes);
  }
  void record(Stream stream, int event) override {
    recorded_events_.erase(event);
    if (streams_.keeps()) events_inside_.insert(event);
    if (streams_.keep([this, stream, event] { put_record(stream, event); })) return;
    put_record(stream, event);
  }
  void wait(Stream stream, int event) override {
    if (streams_.keeps() ? !events_inside_.contains(event) : recorded_events_.contains(event)) return;
    if (streams_.keep([this, stream, event] { put_wait(stream, event); })) return;
    put_wait(stream, event);
  }
  void follow(Stream later, Stream earlier) override {
    if (streams_.keep([this, later, earlier] { follow(later, earlier); })) return;
    if (num_orders_++ == ignored_order_) return;
    auto reached = std::make_shared<bool>(false);
    streams_.put_action(earlier, [reached] { *reached = true; });
    streams_.put(later, [reached] { return *reached; });
  }
  void synchronize() override { streams_.finish_all(); }
  bool can_record() const override { return true; }
  void begin_recording() override {
    events_inside_.clear();
    streams_.begin_keeping();
  }
  std::shared_ptr<const Recording> end_recording() override {
    auto recording = std::make_shared<KeptWork>();
    recording->kept = streams_.end_keeping();
    recorded_events_.insert(events_inside_.begin(), events_inside_.end());
    return recording;
  }
  void replay(const Recording& recording) override {
    ++num_replays_;
    for (const auto& again : *static_cast<const KeptWork&>(recording).kept) again();
  }
  int64_t num_replays() const { return num_replays_; }

 private:
  struct KeptWork : Recording {
    std::shared_ptr<LateStreams::Kept> kept;
  };

  void put_record(Stream stream, int event) {
    auto reached = events_[event] = std::make_shared<bool>(false);
    streams_.put_action(stream, [reached] { *reached = true; });
  }
  void put_wait(Stream stream, int event) {
    if (num_orders_++ == ignored_order_) return;
    streams_.put(stream, [reached = events_.at(event)] { return *reached; });
  }

  const int64_t ignored_order_;
  int64_t num_orders_ = 0, num_replays_ = 0;
  std::set<int> events_inside_, recorded_events_;  // of the recording under way; of all that are done
  LateStreams streams_;
  std::unique_ptr<Device> cpu_ = make_cpu_device();
  LateKernels kernels_{streams_, cpu_->kernels()};
  std::map<int, std::shared_ptr<bool>> events_;
};

// Where the ranks of a job meet for collectives.
class MeetingPlace {
 public:
  struct Arrival {
    int index = 0;
    void* data = nullptr;
    void* received = nullptr;
  };
  using Move = std::function<void(const std::vector<Arrival>& by_index)>;

  // Says whether the operation is done; the last of `size` to arrive does it. Each rank asks with the same `ticket` until it is.
  bool meet(const std::string& key, int64_t ticket, int size, bool& has_arrived, const Arrival& arrival, const Move& move) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Meeting& m = meetings_[{key, ticket}];
    if (m.done) return true;
    if (!has_arrived) {
      has_arrived = true;
      m.arrivals.push_back(arrival);
    }
    if (static_cast<int>(m.arrivals.size()) < size) return false;
    std::sort(m.arrivals.begin(), m.arrivals.end(), [](const Arrival& a, const Arrival& b) { return a.index < b.index; });
    move(m.arrivals);
    m.done = true;
    return true;
  }

 private:
  struct Meeting {
    std::vector<Arrival> arrivals;
    bool done = false;
  };
  std::mutex mutex_;
  std::map<std::pair<std::string, int64_t>, Meeting> meetings_;
};

// As NCCL: an operation is put on a stream and has not happened when the call returns. Control goes to another communicator.
class AdversarialCommunicator : public Communicator {
 public:
  AdversarialCommunicator(const Mesh& mesh, MeetingPlace& place, LateStreams& streams, Communicator& control)
      : groups_(mesh, control.rank()), place_(place), streams_(streams), control_(control) {}

  int rank() const override { return control_.rank(); }
  int world() const override { return control_.world(); }
  int size(Group group) const override { return groups_.size(group); }
  int index(Group group) const override { return groups_.index(group); }

  std::unique_ptr<Work> all_gather(Group group, void* buffer, int64_t chunk_bytes) override {
    return issue("gathers", stream_of(group, Stream::kGather), group, {0, buffer, nullptr},
                 [chunk_bytes](const std::vector<MeetingPlace::Arrival>& all) {
                   for (const auto& from : all) {
                     for (const auto& to : all) {
                       if (&from == &to) continue;
                       const int64_t at = from.index * chunk_bytes;
                       std::memcpy(static_cast<char*>(to.data) + at, static_cast<char*>(from.data) + at, size_t(chunk_bytes));
                     }
                   }
                 });
  }
  std::unique_ptr<Work> all_to_all(Group group, const void* from, void* to, int64_t chunk_bytes) override {
    return issue("reductions", stream_of(group, Stream::kReduce), group, {0, const_cast<void*>(from), to},
                 [chunk_bytes](const std::vector<MeetingPlace::Arrival>& all) {
                   for (const auto& to : all) {
                     for (const auto& from : all)
                       if (&from != &to)
                         std::memcpy(static_cast<char*>(to.received) + from.index * chunk_bytes,
                                     static_cast<char*>(from.data) + to.index * chunk_bytes, size_t(chunk_bytes));
                   }
                 });
  }
  std::unique_ptr<Work> exchange_pieces(const char*, Group group, std::span<const RowPiece> sent, std::span<const RowPiece> received,
                                        int) override {
    pieces_.push_back({{sent.begin(), sent.end()}, {received.begin(), received.end()}});
    return issue("reductions", stream_of(group, Stream::kReduce), group, {0, &pieces_.back(), nullptr},
                 [](const std::vector<MeetingPlace::Arrival>& all) {
                   for (const auto& to : all)
                     for (const RowPiece& piece : static_cast<Pieces*>(to.data)->received)
                       take(piece, *static_cast<Pieces*>(all[size_t(piece.member)].data), to.index);
                 });
  }
  std::unique_ptr<Work> shift(Group group, const void* from, void* to, int64_t num_bytes) override {
    return issue("reductions", stream_of(group, Stream::kReduce), group, {0, const_cast<void*>(from), to},
                 [num_bytes](const std::vector<MeetingPlace::Arrival>& all) {
                   for (size_t i = 0; i < all.size(); ++i)
                     std::memcpy(all[(i + 1) % all.size()].received, all[i].data, size_t(num_bytes));
                 });
  }
  std::unique_ptr<Work> exchange(Group group, const void* full, void* received, int64_t chunk_bytes) override {
    return issue("reductions", stream_of(group, Stream::kReduce), group, {0, const_cast<void*>(full), received},
                 [chunk_bytes](const std::vector<MeetingPlace::Arrival>& all) {
                   const int n = int(all.size());
                   for (const auto& to : all) {
                     for (int k = 1; k < n; ++k)
                       std::memcpy(static_cast<char*>(to.received) + (k - 1) * chunk_bytes,
                                   static_cast<char*>(all[size_t((to.index + k) % n)].data) + to.index * chunk_bytes,
                                   size_t(chunk_bytes));
                   }
                 });
  }
  std::unique_ptr<Work> all_reduce_sum(Group group, float* data, int64_t count) override {
    return issue("replicas", Stream::kReduce, group, {0, data, nullptr}, sum<float>(count));
  }
  std::unique_ptr<Work> all_reduce_sum(Group group, double* data, int64_t count) override {
    return issue("scalars", Stream::kCompute, group, {0, data, nullptr}, sum<double>(count));
  }
  std::unique_ptr<Work> send(Flow flow, int stage, const void* data, int64_t num_bytes) override {
    const bool forwards = flow == Flow::kActivations;
    return message(flow, rank(), groups_.members(Group::kPp)[size_t(stage)], forwards ? Stream::kToNext : Stream::kToPrevious,
                   {0, const_cast<void*>(data), nullptr}, num_bytes);
  }
  std::unique_ptr<Work> receive(Flow flow, int stage, void* data, int64_t num_bytes) override {
    const bool forwards = flow == Flow::kActivations;
    return message(flow, groups_.members(Group::kPp)[size_t(stage)], rank(), forwards ? Stream::kFromPrevious : Stream::kFromNext,
                   {1, data, nullptr}, num_bytes);
  }
  void broadcast(void* data, int64_t num_bytes, int root) override { control_.broadcast(data, num_bytes, root); }
  void control_sum(double* data, int64_t count) override { control_.control_sum(data, count); }
  void barrier() override { control_.barrier(); }

 private:
  struct Issued : Work {
    void wait() override {}
  };
  struct Pieces {
    std::vector<RowPiece> sent, received;
  };
  static void take(const RowPiece& piece, const Pieces& of_sender, int receiver) {
    for (const RowPiece& sent : of_sender.sent) {
      if (sent.member != receiver || sent.round != piece.round) continue;
      if (sent.num_bytes != piece.num_bytes) throw std::logic_error("a piece of another size is expected");
      return void(std::memcpy(piece.data, sent.data, size_t(piece.num_bytes)));
    }
    throw std::logic_error("a piece that nobody sends");
  }
  // Programs wait for what they exchange, on the stream they compute on.
  static Stream stream_of(Group group, Stream usual) {
    return group == Group::kTp || group == Group::kCp || group == Group::kEp ? Stream::kCompute : usual;
  }

  template <class E>
  static MeetingPlace::Move sum(int64_t count) {
    return [count](const std::vector<MeetingPlace::Arrival>& all) {
      std::vector<E> total(size_t(count), E(0));
      for (const auto& from : all)
        for (int64_t i = 0; i < count; ++i) total[size_t(i)] += static_cast<const E*>(from.data)[i];
      for (const auto& to : all) std::memcpy(to.data, total.data(), size_t(count) * sizeof(E));
    };
  }

  std::unique_ptr<Work> issue(const std::string& purpose, Stream stream, Group group, MeetingPlace::Arrival arrival,
                              MeetingPlace::Move move) {
    const int n = size(group);
    if (n < 2) return std::make_unique<Issued>();
    std::string key = purpose;
    for (const int member : groups_.members(group)) key += " " + std::to_string(member);
    arrival.index = index(group);
    return put(key, stream, n, arrival, std::move(move));
  }

  std::unique_ptr<Work> message(Flow flow, int from, int to, Stream stream, const MeetingPlace::Arrival& arrival, int64_t num_bytes) {
    const std::string key = "flow " + std::to_string(int(flow)) + " " + std::to_string(from) + " to " + std::to_string(to);
    return put(key, stream, 2, arrival, [num_bytes](const std::vector<MeetingPlace::Arrival>& all) {
      std::memcpy(all[1].data, all[0].data, size_t(num_bytes));
    });
  }

  std::unique_ptr<Work> put(const std::string& key, Stream stream, int n, const MeetingPlace::Arrival& arrival,
                            MeetingPlace::Move move) {
    if (streams_.keep([this, key, stream, n, arrival, move] { put(key, stream, n, arrival, move); }))
      return std::make_unique<Issued>();
    const int64_t ticket = tickets_[key]++;
    auto has_arrived = std::make_shared<bool>(false);
    streams_.put(stream, [this, key, ticket, n, has_arrived, arrival, move = std::move(move)] {
      return place_.meet(key, ticket, n, *has_arrived, arrival, move);
    });
    return std::make_unique<Issued>();
  }

  const RankGroups groups_;
  MeetingPlace& place_;
  LateStreams& streams_;
  Communicator& control_;
  std::map<std::string, int64_t> tickets_;
  std::deque<Pieces> pieces_;  // a stream reads them later
};

}  // namespace distsetup
