// The store's server is rank 0's, or torchrun's agent (TORCHELASTIC_USE_AGENT_STORE). Every key carries the run id, so that two
// attempts or jobs in one store do not mix. Arrival is counted before any process group is made: only then can a missing rank be
// named.
#include "runtime/comm/rendezvous.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "runtime/comm/numeric_names.h"

namespace distsetup {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

// Empty when a connection to host:port is accepted within a second, else why not. The name is looked up each time: a cluster may
// learn it late.
std::string try_to_connect(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0)
    return gai_strerror(error);
  int error = EADDRNOTAVAIL;
  for (const addrinfo* a = found; a != nullptr && error != 0; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    error = ::connect(fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    pollfd connecting{fd, POLLOUT, 0};
    socklen_t size = sizeof(error);
    if (error == EINPROGRESS) {
      if (poll(&connecting, 1, 1000) < 1)
        error = ETIMEDOUT;
      else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        error = errno;
    }
    close(fd);
  }
  freeaddrinfo(found);
  return error == 0 ? "" : std::strerror(error);
}

// Until rank 0 listens. The store's own client sleeps half a second and longer after each attempt that fails, prints a page of C++
// frames about it, and ranks that start together often ask before rank 0 listens.
void await_rank_0(const Rendezvous& r) {
  const auto deadline = Clock::now() + seconds(r.init_timeout_s);
  milliseconds pause(1);
  for (;;) {
    const std::string why = try_to_connect(r.master_address, r.master_port);
    if (why.empty()) return;
    if (Clock::now() > deadline) {
      throw CommunicationError(
          0, fmt::format("rank 0 at {}:{} did not answer within {} s: {}", r.master_address, r.master_port, r.init_timeout_s, why));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, milliseconds(100));
  }
}

c10::intrusive_ptr<c10d::Store> connect(const Rendezvous& r) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(r.master_port);
  options.isServer = !r.agent_store && r.rank == 0;
  options.waitWorkers = false;
  options.timeout = seconds(r.init_timeout_s);
  if (!r.agent_store && r.rank != 0) await_rank_0(r);
  try {
    return c10::make_intrusive<c10d::TCPStore>(r.master_address, options);
  } catch (const std::exception& e) {
    const std::string what = e.what();
    if (options.isServer && (what.find("EADDRINUSE") != std::string::npos || what.find("already in use") != std::string::npos)) {
      throw CommunicationError(
          0, fmt::format("port {} of {} is in use by another program: choose another MASTER_PORT", r.master_port, r.master_address));
    }
    if (options.isServer) {
      throw CommunicationError(
          0, fmt::format("rank 0 cannot listen on port {} of {}: {}", r.master_port, r.master_address, first_line(what)));
    }
    throw CommunicationError(0, fmt::format("rank 0 at {}:{} did not answer within {} s: {}", r.master_address, r.master_port,
                                            r.init_timeout_s, first_line(what)));
  }
}

// Set by a rank that has read the report.
std::string knows(int rank) { return fmt::format("knows/{}", rank); }

}  // namespace

std::string first_line(const std::string& what) {
  std::string line = what.substr(0, what.find('\n'));
  // "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4242"
  if (!line.empty() && line[0] == '[' && line.find("] ") != std::string::npos) line = line.substr(line.find("] ") + 2);
  const size_t frame = line.find(" Exception raised from");
  return frame == std::string::npos ? line : line.substr(0, frame);
}

c10::intrusive_ptr<c10d::Store> meet(const Rendezvous& r) {
  const auto deadline = Clock::now() + seconds(r.init_timeout_s), half_time = Clock::now() + milliseconds(500 * r.init_timeout_s);
  bool is_said = false;
  num_numeric_names();  // so that the program has numeric_names.cc in it
  c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::PrefixStore>("distsetup/" + r.run_id, connect(r));
  const auto key = [](int rank) { return fmt::format("here/{}", rank); };
  try {
    // What a rank leaves at its arrival is its plan's digest.
    std::vector<uint8_t> mine(r.plan_digest.begin(), r.plan_digest.end());
    mine.push_back('1');
    store->set(key(r.rank), mine);
    milliseconds pause(1);
    for (;;) {
      std::vector<int> missing;
      for (int p = 0; p < r.world; ++p) {
        if (!store->check({key(p)})) missing.push_back(p);
      }
      if (missing.empty()) break;
      if (Clock::now() > deadline) {
        throw CommunicationError(missing[0], fmt::format("rank{} {} of {} did not arrive within {} s", missing.size() > 1 ? "s" : "",
                                                         fmt::join(missing, ", "), r.world, r.init_timeout_s));
      }
      if (!is_said && Clock::now() > half_time) {
        is_said = true;
        fmt::print(stderr, "rank {} waits for rank{} {} of {} to arrive; it gives up after {} s in all\n", r.rank,
                   missing.size() > 1 ? "s" : "", fmt::join(missing, ", "), r.world, r.init_timeout_s);
        std::fflush(stderr);
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, milliseconds(20));
    }
    for (int p = 0; p < (r.rank == 0 ? r.world : 1); ++p) {
      if (store->get(key(p)) == mine) continue;
      const int other = r.rank == 0 ? p : r.rank;
      throw CommunicationError(other,
                               fmt::format("rank {} has another plan than rank 0: the same plan.json, or the same flags, files and "
                                           "versions, on every node",
                                           other));
    }
  } catch (const CommunicationError&) {
    throw;
  } catch (const std::exception& e) {
    throw CommunicationError(
        0, fmt::format("rank 0 at {}:{} went away while ranks met: {}", r.master_address, r.master_port, first_line(e.what())));
  }
  return store;
}

std::string local_address_towards(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return "127.0.0.1";
  std::string result = "127.0.0.1";
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
    if (fd < 0) continue;
    sockaddr_storage local{};
    socklen_t size = sizeof(local);
    char text[NI_MAXHOST];
    const bool ok = ::connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
                    getsockname(fd, reinterpret_cast<sockaddr*>(&local), &size) == 0 &&
                    getnameinfo(reinterpret_cast<sockaddr*>(&local), size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0;
    close(fd);
    if (ok) {
      result = text;
      break;
    }
  }
  freeaddrinfo(found);
  return result;
}

std::string report_failure(const FailureStore& failures, const std::string& report) {
  try {
    const std::vector<uint8_t> mine(report.begin(), report.end());
    const std::vector<uint8_t> first = failures.store->compareSet("failure", {}, mine);
    failures.store->set(knows(failures.rank), std::vector<uint8_t>{'1'});
    return first.empty() ? report : std::string(first.begin(), first.end());
  } catch (const std::exception& e) {
    if (!failures.in_rank_0 || failures.rank == 0) return report;
    return fmt::format("0 rank 0 is gone: rank {} cannot reach its store: {}", failures.rank, first_line(e.what()));
  }
}

std::string reported_failure(const FailureStore& failures) {
  try {
    if (!failures.store->check({"failure"})) return "";
    const std::vector<uint8_t> first = failures.store->get("failure");
    failures.store->set(knows(failures.rank), std::vector<uint8_t>{'1'});
    return {first.begin(), first.end()};
  } catch (const std::exception&) {
    return "";
  }
}

void outlast_readers(const FailureStore& failures) {
  if (!failures.in_rank_0 || failures.rank != 0) return;
  const auto until = Clock::now() + seconds(5);
  try {
    const int gone = std::atoi(reported_failure(failures).c_str());  // -1: not known; 0: no report
    for (int r = 1; r < failures.world; ++r) {
      if (r == gone) continue;
      while (!failures.store->check({knows(r)})) {
        if (Clock::now() > until) return;
        std::this_thread::sleep_for(milliseconds(10));
      }
    }
  } catch (const std::exception&) {
    // The store is closed: nobody can read it any more.
  }
}

}  // namespace distsetup
