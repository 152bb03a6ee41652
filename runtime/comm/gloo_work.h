// What an operation over Gloo leaves behind: the work that is waited for, and the failure that all ranks name alike.
#pragma once
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "runtime/comm/communicator.h"
#include "runtime/comm/rendezvous.h"

namespace distsetup {

using GlooWork = c10::intrusive_ptr<c10d::Work>;

struct Failures : FailureStore {  // shared with every Work, which may outlive a call
  int64_t timeout_s = 0;
  bool failed = false;
  // Those of some ranks whose connections are closed, asked a number of times until one is.
  std::function<std::vector<int>(const std::vector<int>& ranks, int tries)> closed;

  // Throws the CommunicationError that all ranks throw: the first one that any of them reported. `peers`: who the operation was with,
  // as far as it is known.
  [[noreturn]] void raise(const std::string& op, std::vector<int> peers, const std::exception& error);
};

class PendingWork : public Work {
 public:
  PendingWork(std::string op, std::shared_ptr<Failures> failures) : op_(std::move(op)), failures_(std::move(failures)) {}
  void add(GlooWork work, std::vector<int> peers) { parts_.push_back({std::move(work), std::move(peers)}); }
  void wait() override;

 private:
  struct Part {
    GlooWork work;
    std::vector<int> peers;
  };
  std::string op_;
  std::shared_ptr<Failures> failures_;
  std::vector<Part> parts_;
};

}  // namespace distsetup
