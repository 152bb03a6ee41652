// Ranks as threads of one process: the control operations of a Communicator, for tests of what ranks agree on. A rank that leaves with
// an exception while others wait makes these throw CommunicationError, as a broken connection does.
#pragma once
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/comm/communicator.h"

namespace distsetup {

class ThreadGroup {
 public:
  explicit ThreadGroup(int world) : world_(world), inputs_(static_cast<size_t>(world)) {}

  // All ranks meet with bytes; each gets everybody's.
  std::vector<std::vector<char>> exchange(int rank, const void* data, int64_t num_bytes) {
    std::unique_lock lock(mutex_);
    const int64_t round = round_;
    const char* p = static_cast<const char*>(data);
    inputs_[static_cast<size_t>(rank)].assign(p, p + num_bytes);
    if (++num_arrived_ == world_) {
      outputs_ = inputs_;
      num_arrived_ = 0;
      ++round_;
      all_here_.notify_all();
    }
    all_here_.wait(lock, [&] { return round_ > round || left_; });
    if (round_ == round) throw CommunicationError(-1, "a rank left");
    return outputs_;
  }
  void leave() {
    std::lock_guard lock(mutex_);
    left_ = true;
    all_here_.notify_all();
  }

 private:
  const int world_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  std::vector<std::vector<char>> inputs_, outputs_;
  int num_arrived_ = 0;
  int64_t round_ = 0;
  bool left_ = false;
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(ThreadGroup& group, int rank, int world) : group_(group), rank_(rank), world_(world) {}
  int64_t num_operations = 0;

  int rank() const override { return rank_; }
  int world() const override { return world_; }
  int size(Group) const override { return world_; }
  int index(Group) const override { return rank_; }
  std::unique_ptr<Work> all_gather(Group, void*, int64_t) override { throw std::logic_error("control only"); }
  std::unique_ptr<Work> exchange(Group, const void*, void*, int64_t) override { throw std::logic_error("control only"); }
  std::unique_ptr<Work> all_to_all(Group, const void*, void*, int64_t) override { throw std::logic_error("control only"); }
  std::unique_ptr<Work> exchange_pieces(const char*, Group, std::span<const RowPiece>, std::span<const RowPiece>, int) override {
    throw std::logic_error("control only");
  }
  std::unique_ptr<Work> shift(Group, const void*, void*, int64_t) override { throw std::logic_error("control only"); }
  std::unique_ptr<Work> all_reduce_sum(Group, float*, int64_t) override { throw std::logic_error("control only"); }
  std::unique_ptr<Work> all_reduce_sum(Group, double*, int64_t) override { throw std::logic_error("control only"); }
  std::unique_ptr<Work> send(Flow, int, const void*, int64_t) override { throw std::logic_error("control only"); }
  std::unique_ptr<Work> receive(Flow, int, void*, int64_t) override { throw std::logic_error("control only"); }
  void broadcast(void* data, int64_t num_bytes, int root) override {
    ++num_operations;
    const auto all = group_.exchange(rank_, data, num_bytes);
    std::memcpy(data, all[static_cast<size_t>(root)].data(), static_cast<size_t>(num_bytes));
  }
  void control_sum(double* data, int64_t count) override {
    ++num_operations;
    const auto all = group_.exchange(rank_, data, count * static_cast<int64_t>(sizeof(double)));
    std::vector<double> sum(static_cast<size_t>(count), 0.0);
    for (const auto& bytes : all) {
      for (size_t i = 0; i < sum.size(); ++i) {
        double value = 0;
        std::memcpy(&value, bytes.data() + i * sizeof(double), sizeof(double));
        sum[i] += value;
      }
    }
    std::memcpy(data, sum.data(), sum.size() * sizeof(double));
  }
  void barrier() override {
    ++num_operations;
    group_.exchange(rank_, "", 0);
  }

 private:
  ThreadGroup& group_;
  const int rank_, world_;
};

// Runs f(communicator) on every rank; the exceptions by rank, null where there was none.
inline std::vector<std::exception_ptr> run_ranks(int world, const std::function<void(ThreadCommunicator&)>& f) {
  ThreadGroup group(world);
  std::vector<std::exception_ptr> failures(static_cast<size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&group, &failures, &f, rank, world] {
      ThreadCommunicator communicator(group, rank, world);
      try {
        f(communicator);
      } catch (...) {
        failures[static_cast<size_t>(rank)] = std::current_exception();
        group.leave();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failures;
}

}  // namespace distsetup
