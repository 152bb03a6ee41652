// How ranks find each other: a TCPStore on rank 0, and the wait until all have arrived. Failures are said in our words.
#pragma once
#include <string>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "runtime/comm/communicator.h"

namespace distsetup {

// Connects, announces this rank, and waits for all others. Throws CommunicationError: port in use, no answer, ranks that did not
// arrive.
c10::intrusive_ptr<c10d::Store> meet(const Rendezvous& rendezvous);

// This host's address on the way to `host`: what other ranks reach this one by. No packet is sent.
std::string local_address_towards(const std::string& host, int port);

// The first failure that any rank reports is the one that all name: kept in the store.
struct FailureStore {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0, world = 1;
  bool in_rank_0 = false;  // false: an agent of the launcher keeps it
};
// Returns the first report ("2 connection closed" style text), which may be this one. When rank 0 keeps the store and it cannot be
// reached, rank 0 is what is gone, and whoever else closed its connections did so because of that.
std::string report_failure(const FailureStore& failures, const std::string& report);
// That first report, empty when there is none or the store cannot be reached.
std::string reported_failure(const FailureStore& failures);
// Rank 0 takes its store along when it ends: after a failure it waits, 5 s at most, until the others have read why.
void outlast_readers(const FailureStore& failures);

// One line, without source locations and stack traces.
std::string first_line(const std::string& what);

}  // namespace distsetup
