#include "runtime/comm/gloo_work.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>

namespace distsetup {
namespace {

std::string named(const std::vector<int>& ranks) {
  return ranks.size() == 1 ? fmt::format("rank {}", ranks[0]) : fmt::format("one of ranks {}", fmt::join(ranks, ", "));
}

}  // namespace

void Failures::raise(const std::string& op, std::vector<int> peers, const std::exception& error) {
  bool slow = std::string(error.what()).find("imed out") != std::string::npos;
  std::string why = first_line(error.what());
  if (slow && !failed && closed) {
    // The peer may only have waited for a third rank that died: then that one is named.
    std::vector<int> everyone;
    for (int r = 0; r < world; ++r) {
      if (r != rank) everyone.push_back(r);
    }
    const std::vector<int> gone = closed(everyone, 4);
    if (!gone.empty()) {
      why = fmt::format("no answer from {} within {} s", named(peers), timeout_s);
      peers = gone;
      slow = false;
    }
  } else if (!slow && !failed && peers.size() > 1 && closed) {
    const std::vector<int> gone = closed(peers, 80);
    if (!gone.empty()) peers = gone;
  }
  const std::string mine = slow ? fmt::format("{} did not answer rank {} within {} s in {}", named(peers), rank, timeout_s, op)
                                : fmt::format("{} is gone: rank {} in {}: {}", named(peers), rank, op, why);
  const std::string report = fmt::format("{} {}", peers.size() == 1 ? peers[0] : -1, mine);
  // A peer that gave up because of a third rank has said so before it closed its connections.
  const std::string first = failed ? report : report_failure(*this, report);
  failed = true;
  const size_t space = first.find(' ');
  throw CommunicationError(std::atoi(first.c_str()), first.substr(space + 1));
}

void PendingWork::wait() {
  for (Part& part : parts_) {
    try {
      part.work->wait();
    } catch (const std::exception& e) {
      failures_->raise(op_, part.peers, e);
    }
  }
  parts_.clear();
}

}  // namespace distsetup
