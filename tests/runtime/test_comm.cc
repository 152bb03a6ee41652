// Communicators: what arrives where, over every group of a hybrid mesh; that errors name the peer; what Tracing writes down.
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <mutex>
#include <numeric>
#include <thread>

#include "runtime/collectives.h"
#include "runtime/comm/gloo.h"
#include "runtime/comm/numeric_names.h"
#include "runtime/comm/tracing.h"
#include "runtime/comm/yielding_trylock.h"
#include "runtime/ranks.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

Mesh mesh_of(int replicate, int shard) {
  Mesh m;
  m.dp_replicate = replicate;
  m.dp_shard = shard;
  return m;
}

TEST_CASE("gloo: gather, exchange and sums reach every member in its place", "[comm]") {
  const auto [replicate, shard] = GENERATE(table<int, int>({{1, 2}, {1, 4}, {2, 2}, {4, 1}, {1, 3}}));
  const Mesh mesh = mesh_of(replicate, shard);
  std::atomic<int> wrong{0};
  run_ranks(mesh, [&](Communicator& c) {
    wrong += wrong_values(mesh, c);
    int64_t word = c.rank() == 1 ? 42 : 0;
    c.broadcast(&word, sizeof(word), 1);
    wrong += word != 42;
    c.barrier();
  });
  CHECK(wrong == 0);
}

TEST_CASE("gloo: sums of many ranks have the same bits on each and in every run", "[comm]") {
  const Mesh mesh = mesh_of(4, 1);
  std::vector<std::vector<float>> results(8);
  for (int run = 0; run < 2; ++run) {
    run_ranks(mesh, [&](Communicator& c) {
      std::vector<float> v(1001);
      for (size_t i = 0; i < v.size(); ++i) v[i] = 1.f / float(1 + i * 7 + size_t(c.rank()) * 13);
      c.all_reduce_sum(Group::kDpReplicate, v.data(), int64_t(v.size()))->wait();
      results[size_t(run * 4 + c.rank())] = v;
    });
  }
  for (const auto& r : results) CHECK(r == results[0]);
}

TEST_CASE("gloo: a port that is taken is one clear error", "[comm]") {
  const int fd = socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_any;
  socklen_t size = sizeof(address);
  REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(listen(fd, 1) == 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  Rendezvous r;
  r.world = 2;
  r.master_port = ntohs(address.sin6_port);
  r.init_timeout_s = 5;
  try {
    make_gloo_communicator(mesh_of(1, 2), r);
    FAIL("a second server on one port");
  } catch (const CommunicationError& e) {
    CHECK_THAT(e.what(), Catch::Equals("port " + std::to_string(r.master_port) +
                                       " of 127.0.0.1 is in use by another program: choose another MASTER_PORT"));
  }
  close(fd);
}

TEST_CASE("gloo: ranks that never come are named after the time limit", "[comm]") {
  Rendezvous r;
  r.world = 3;
  r.master_port = free_port();
  r.init_timeout_s = 1;
  try {
    make_gloo_communicator(mesh_of(1, 3), r);
    FAIL("met ranks that are not there");
  } catch (const CommunicationError& e) {
    CHECK(e.peer() == 1);
    CHECK_THAT(e.what(), Catch::Equals("ranks 1, 2 of 3 did not arrive within 1 s"));
  }
}

TEST_CASE("gloo: a client whose server never comes says so", "[comm]") {
  Rendezvous r;
  r.rank = 1;
  r.world = 2;
  r.master_port = free_port();
  r.init_timeout_s = 1;
  CHECK_THROWS_WITH(make_gloo_communicator(mesh_of(1, 2), r),
                    Catch::Contains("rank 0 at 127.0.0.1") && Catch::Contains("did not answer within 1 s"));
}

// One rank of the test below: gathers for ever; the victim kills itself in the middle.
TEST_CASE("child: lost peer", "[.child]") {
  const char* rank = std::getenv("RANK");
  REQUIRE(rank != nullptr);
  Rendezvous r;
  r.rank = std::atoi(rank);
  r.world = 3;
  r.master_port = std::atoi(std::getenv("MASTER_PORT"));
  r.init_timeout_s = 60;
  r.collective_timeout_s = 30;
  const bool sums = std::string(std::getenv("OPERATION")) == "sum";
  const auto c = make_gloo_communicator(sums ? mesh_of(3, 1) : mesh_of(1, 3), r);
  std::vector<float> buffer(3 * 1024);
  try {
    for (int i = 0; i < 100000; ++i) {
      if (i == 50 && r.rank == std::atoi(std::getenv("VICTIM"))) raise(SIGKILL);
      if (sums)
        c->all_reduce_sum(Group::kDpReplicate, buffer.data(), 3 * 1024)->wait();
      else
        c->all_gather(Group::kDpShard, buffer.data(), 4096)->wait();
    }
  } catch (const CommunicationError& e) {
    printf("peer %d: %s\n", e.peer(), e.what());
    fflush(stdout);
    c->outlast_readers();
    _exit(6);
  }
}

TEST_CASE("gloo: every rank names the one that was killed, within seconds", "[comm]") {
  const int victim = GENERATE(0, 2);
  const auto operation = GENERATE(as<std::string>{}, "gather", "sum");
  INFO("rank " << victim << " killed in a " << operation);
  const auto start = std::chrono::steady_clock::now();
  const std::string port = std::to_string(free_port());
  std::vector<std::unique_ptr<Child>> children;
  for (int r = 0; r < 3; ++r) {
    children.push_back(std::make_unique<Child>(
        "child: lost peer",
        std::vector<std::pair<std::string, std::string>>{
            {"RANK", std::to_string(r)}, {"MASTER_PORT", port}, {"VICTIM", std::to_string(victim)}, {"OPERATION", operation}}));
  }
  for (int r = 0; r < 3; ++r) {
    const ChildResult result = children[size_t(r)]->wait();
    INFO(result.output);
    if (r == victim) {
      CHECK(WIFSIGNALED(result.status));
    } else {
      CHECK(WIFEXITED(result.status));
      CHECK(WEXITSTATUS(result.status) == 6);
      CHECK_THAT(result.output, Catch::Contains("peer " + std::to_string(victim) + ": rank " + std::to_string(victim) + " is gone"));
    }
  }
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
}

TEST_CASE("who finds a lock taken gives up its core, in libraries too", "[comm]") {
  std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  const int64_t before = num_yields();
  bool taken = true;
  std::thread([&] { taken = mutex.try_lock(); }).join();
  CHECK_FALSE(taken);
  CHECK(num_yields() > before);
  // What the loader gives to Gloo, which is in a library.
  CHECK(dlsym(RTLD_DEFAULT, "pthread_mutex_trylock") == reinterpret_cast<void*>(&pthread_mutex_trylock));
}

TEST_CASE("ranks do not ask a name server who their peers are", "[comm]") {
  const int64_t before = num_numeric_names();
  run_ranks(mesh_of(1, 2), [](Communicator&) {});
  CHECK(num_numeric_names() > before);  // the library has asked, and was answered here
  sockaddr_in loopback{};
  loopback.sin_family = AF_INET;
  loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  char host[NI_MAXHOST];
  REQUIRE(getnameinfo(reinterpret_cast<sockaddr*>(&loopback), sizeof(loopback), host, sizeof(host), nullptr, 0, 0) == 0);
  CHECK(std::string(host) == "127.0.0.1");  // not "localhost"
}

TEST_CASE("gloo: writing to a rank that is gone is an error and does not end the process", "[comm]") {
  run_ranks(mesh_of(1, 2), [](Communicator&) {});
  struct sigaction now {};
  REQUIRE(sigaction(SIGPIPE, nullptr, &now) == 0);
  CHECK(now.sa_handler == SIG_IGN);
}

TEST_CASE("ranks that need nobody leave without a word", "[comm]") {
  std::atomic<int> arrived = 0;
  for (int round = 0; round < 10; ++round) run_ranks(mesh_of(2, 2), [&](Communicator&) { ++arrived; });
  CHECK(arrived == 10 * 4);
}

TEST_CASE("tracing writes down what was asked, in order", "[comm]") {
  const Mesh mesh = mesh_of(2, 4);
  const auto fake = make_fake_communicator(mesh, 5);
  CHECK(fake->index(Group::kDpShard) == 1);
  CHECK(fake->index(Group::kDpReplicate) == 1);
  CHECK(fake->size(Group::kData) == 8);
  TracingCommunicator trace(*fake);
  float v[8] = {};
  double d = 0;
  const auto gather = trace.all_gather(Group::kDpShard, v, 8);
  trace.exchange(Group::kDpShard, v, v, 8)->wait();
  trace.all_reduce_sum(Group::kDpReplicate, v, 3)->wait();
  trace.all_reduce_sum(Group::kData, &d, 1)->wait();
  const std::vector<CommunicationRecord> expected = {{"AllGather", Group::kDpShard, Channel::kGather, 32, 0, false},
                                                     {"ReduceScatter", Group::kDpShard, Channel::kReduce, 32, 0, true},
                                                     {"AllReduce", Group::kDpReplicate, Channel::kReduce, 12, 1, true},
                                                     {"AllReduce", Group::kData, Channel::kReduce, 8, 2, true}};
  CHECK(trace.records() == expected);
  gather->wait();
  CHECK(trace.records()[0].waited);
}

}  // namespace
}  // namespace distsetup
