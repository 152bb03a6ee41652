// The NCCL communicator against a stand-in of the library: which calls with which arguments on which communicator and stream, in which
// order; what arrives; failures. Then whole training steps with it, and how the executor orders streams, against the compiled list.
// What this cannot show: that a real NCCL, on real streams, does the same.
#include "runtime/comm/nccl.h"

#include <dlfcn.h>

#include <chrono>
#include <cstring>
#include <mutex>

#include "plan/compile_schedule.h"
#include "runtime/collectives.h"
#include "runtime/comm/nccl_api.h"
#include "runtime/comm/tracing.h"
#include "runtime/expert_cases.h"
#include "runtime/stream_device.h"
#include "runtime/tiny.h"
#include "support/fake_nccl/fake_nccl.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using namespace tiny;

struct Fake {
  Fake() {
    void* handle = dlopen(DISTSETUP_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(handle != nullptr);
    reset = reinterpret_cast<void (*)()>(dlsym(handle, "fake_nccl_reset"));
    num_calls = reinterpret_cast<int (*)()>(dlsym(handle, "fake_nccl_num_calls"));
    call = reinterpret_cast<void (*)(int, FakeNcclCall*)>(dlsym(handle, "fake_nccl_call"));
    break_rank = reinterpret_cast<void (*)(int, int)>(dlsym(handle, "fake_nccl_break"));
    reset();
  }
  std::vector<FakeNcclCall> calls_of(int rank_in_group, int group) const {
    std::vector<FakeNcclCall> found;
    for (int i = 0; i < num_calls(); ++i) {
      FakeNcclCall c;
      call(i, &c);
      if (c.group == group && c.rank == rank_in_group) found.push_back(c);
    }
    return found;
  }
  void (*reset)() = nullptr;
  int (*num_calls)() = nullptr;
  void (*call)(int, FakeNcclCall*) = nullptr;
  void (*break_rank)(int, int) = nullptr;
};

Mesh mesh_of(int replicate, int shard) {
  Mesh m;
  m.dp_replicate = replicate;
  m.dp_shard = shard;
  return m;
}

NcclOptions fake_options(int64_t timeout_s = 60) { return {DISTSETUP_FAKE_NCCL, timeout_s, timeout_s}; }

// Every rank a thread with a device and an NCCL communicator over Gloo as control.
void run_nccl_ranks(const Mesh& mesh, const NcclOptions& options, const std::function<void(Communicator&, StreamDevice&)>& body) {
  run_ranks(mesh, [&](Communicator& control) {
    StreamDevice device;
    const auto nccl = make_nccl_communicator(mesh, device, std::make_unique<TracingCommunicator>(control), options);
    body(*nccl, device);
  });
}

TEST_CASE("nccl: gather, exchange and sums reach every member in its place", "[nccl]") {
  const Fake fake;
  const auto [replicate, shard] = GENERATE(table<int, int>({{1, 2}, {1, 4}, {2, 2}, {4, 1}, {1, 3}, {2, 3}}));
  const Mesh mesh = mesh_of(replicate, shard);
  std::atomic<int> wrong{0};
  run_nccl_ranks(mesh, fake_options(), [&](Communicator& c, StreamDevice&) {
    wrong += wrong_values(mesh, c);
    double ranks = 1;
    c.control_sum(&ranks, 1);
    wrong += ranks != mesh.world();
    c.barrier();
  });
  CHECK(wrong == 0);
}

TEST_CASE("nccl: calls, arguments, communicators and streams are as documented", "[nccl]") {
  const Fake fake;
  const Mesh mesh = mesh_of(2, 3);  // ranks 0-2 and 3-5; replicas 0/3, 1/4, 2/5
  struct Memory {
    std::vector<char> gathered = std::vector<char>(300), full = std::vector<char>(300), received = std::vector<char>(200);
    float sums[7] = {};
    double loss = 0, square = 0;
  };
  std::vector<Memory> memory(6);
  run_nccl_ranks(mesh, fake_options(), [&](Communicator& c, StreamDevice&) {
    Memory& m = memory[size_t(c.rank())];
    c.all_gather(Group::kDpShard, m.gathered.data(), 100)->wait();
    c.exchange(Group::kDpShard, m.full.data(), m.received.data(), 100)->wait();
    c.all_reduce_sum(Group::kDpReplicate, m.sums, 7)->wait();
    c.all_reduce_sum(Group::kData, &m.loss, 1)->wait();
    c.all_reduce_sum(Group::kDpShard, &m.square, 1)->wait();
  });
  void* const compute = reinterpret_cast<void*>(0x100 + int(Stream::kCompute));
  void* const gather = reinterpret_cast<void*>(0x100 + int(Stream::kGather));
  void* const reduce = reinterpret_cast<void*>(0x100 + int(Stream::kReduce));
  // Unique ids are numbered as they are made by the first members, so groups are found by what they did.
  int num_gathers = 0, num_exchanges = 0, num_sums = 0, num_loss = 0, num_square = 0, num_groups = 0;
  for (int group = 1;; ++group) {
    const auto first = fake.calls_of(0, group);
    if (first.empty()) break;
    ++num_groups;
    for (int rank = 0; rank < first[0].num_ranks; ++rank) {
      const auto calls = fake.calls_of(rank, group);
      REQUIRE(calls.size() >= 3);
      CHECK(std::string(calls.front().op) == "InitRank");
      CHECK(std::string(calls.back().op) == "Destroy");
      const std::string op = calls[1].op;
      if (op == "AllGather") {
        ++num_gathers;
        REQUIRE(calls.size() == 3);
        CHECK(calls[1].num_ranks == 3);
        CHECK(calls[1].count == 100);
        CHECK(calls[1].type == nccl::kUint8);
        CHECK(calls[1].stream == gather);
        CHECK(static_cast<const char*>(calls[1].send) == static_cast<char*>(calls[1].receive) + rank * 100);  // in place
      } else if (op == "Send") {
        ++num_exchanges;
        REQUIRE(calls.size() == 6);
        for (int k = 1; k <= 2; ++k) {
          const FakeNcclCall &send = calls[size_t(2 * k - 1)], &receive = calls[size_t(2 * k)];
          const int peer = (rank + k) % 3;
          CHECK(std::string(send.op) == "Send");
          CHECK(std::string(receive.op) == "Recv");
          CHECK(send.peer == peer);
          CHECK(receive.peer == peer);
          CHECK(send.count == 100);
          CHECK(receive.count == 100);
          CHECK(send.type == nccl::kUint8);
          CHECK(send.stream == reduce);
          CHECK(receive.stream == reduce);
          CHECK(send.in_group == calls[1].in_group);
          CHECK(send.in_group > 0);
          CHECK(receive.in_group == send.in_group);
          bool ours = false;  // chunk of the peer; k-th received chunk
          for (const Memory& of : memory)
            ours |= send.send == of.full.data() + peer * 100 && receive.receive == of.received.data() + (k - 1) * 100;
          CHECK(ours);
        }
      } else {
        REQUIRE(op == "AllReduce");
        REQUIRE(calls.size() == 3);
        CHECK(calls[1].send == calls[1].receive);
        if (calls[1].type == nccl::kFloat32) {
          ++num_sums;
          CHECK(calls[1].num_ranks == 2);
          CHECK(calls[1].count == 7);
          CHECK(calls[1].stream == reduce);
        } else {
          CHECK(calls[1].type == nccl::kFloat64);
          CHECK(calls[1].count == 1);
          CHECK(calls[1].stream == compute);
          (calls[1].num_ranks == 6 ? num_loss : num_square) += 1;
        }
      }
    }
  }
  CHECK(num_groups == 2 + 2 + 3 + 1 + 2);  // gathers, exchanges, replicas, loss, squares
  CHECK(num_gathers == 6);
  CHECK(num_exchanges == 6);
  CHECK(num_sums == 6);
  CHECK(num_loss == 6);
  CHECK(num_square == 6);
}

TEST_CASE("nccl: groups of one rank make no communicator and no call", "[nccl]") {
  const Fake fake;
  run_nccl_ranks(mesh_of(2, 1), fake_options(), [&](Communicator& c, StreamDevice&) {
    char data[8] = {};
    c.all_gather(Group::kDpShard, data, 8)->wait();
    c.exchange(Group::kDpShard, data, data, 8)->wait();
  });
  for (int i = 0; i < fake.num_calls(); ++i) {
    FakeNcclCall c;
    fake.call(i, &c);
    CHECK((std::string(c.op) == "InitRank" || std::string(c.op) == "Destroy"));
  }
  CHECK(fake.num_calls() == 2 * 2 * 2);  // 2 communicators (replicas, scalars) on 2 ranks, made and destroyed
}

TEST_CASE("nccl: a library that is missing or is another one is named", "[nccl]") {
  CHECK_THROWS_WITH(nccl::load("/nowhere/libnccl.so.2"),
                    Catch::Contains("NCCL is not there: /nowhere/libnccl.so.2") && Catch::Contains("DISTSETUP_NCCL"));
  CHECK_THROWS_WITH(nccl::load("libm.so.6"), Catch::Equals("libm.so.6 has no function ncclGetVersion, expected NCCL 2.7 or newer"));
  const Fake fake;
  CHECK(nccl::load(DISTSETUP_FAKE_NCCL).version == 22809);
}

TEST_CASE("nccl: an asynchronous error on one rank ends all, in the same words", "[nccl]") {
  const Fake fake;
  std::mutex mutex;
  std::vector<std::string> said(3);
  std::atomic<int> num_issued = 0;
  const auto start = std::chrono::steady_clock::now();
  run_nccl_ranks(mesh_of(1, 3), fake_options(), [&](Communicator& c, StreamDevice&) {
    std::vector<char> buffer(300);
    c.all_gather(Group::kDpShard, buffer.data(), 100)->wait();
    c.barrier();
    if (c.rank() == 0) fake.break_rank(1, nccl::kRemoteError);
    try {
      for (;;) {
        c.check();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    } catch (const CommunicationError& e) {
      const std::lock_guard<std::mutex> lock(mutex);
      said[size_t(c.rank())] = e.what();
    }
    try {
      c.all_gather(Group::kDpShard, buffer.data(), 100);
      ++num_issued;
    } catch (const CommunicationError&) {
    }
  });
  CHECK(num_issued == 0);
  CHECK_THAT(said[1], Catch::Contains("one of ranks 0, 2 is gone or stuck: rank 1 in between operations") &&
                          Catch::Contains("remote process exited"));
  CHECK(said[0] == said[1]);
  CHECK(said[2] == said[1]);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
}

TEST_CASE("nccl: an operation that never finishes is given up after the time limit and communicators are aborted", "[nccl]") {
  const Fake fake;
  std::vector<std::string> said(2);
  run_nccl_ranks(mesh_of(1, 2), fake_options(1), [&](Communicator& c, StreamDevice& device) {
    std::vector<char> buffer(200);
    device.stuck = true;
    const auto work = c.all_gather(Group::kDpShard, buffer.data(), 100);
    work->wait();  // does not block: nothing is known yet
    try {
      for (;;) {
        work->wait();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    } catch (const CommunicationError& e) {
      said[size_t(c.rank())] = e.what();
    }
  });
  CHECK_THAT(said[0], Catch::Contains("is gone or stuck: rank") &&
                          Catch::Contains("in AllGather, gathers of ranks 0, 1: not finished within 1 s"));
  CHECK(said[1] == said[0]);
  int num_aborted = 0;
  for (int i = 0; i < fake.num_calls(); ++i) {
    FakeNcclCall c;
    fake.call(i, &c);
    num_aborted += std::string(c.op) == "Abort";
    CHECK(std::string(c.op) != "Destroy");
  }
  CHECK(num_aborted == 2 * 3);  // gathers, reductions, scalars on both ranks
}

TEST_CASE("nccl: what is recorded has a time limit from each replay on", "[nccl]") {
  const Fake fake;
  std::vector<std::string> said(2);
  run_nccl_ranks(mesh_of(1, 2), fake_options(1), [&](Communicator& c, StreamDevice& device) {
    std::vector<char> buffer(200);
    c.begin_recording();
    c.all_gather(Group::kDpShard, buffer.data(), 100)->wait();
    c.end_recording();
    device.stuck = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    c.check();  // it has not begun
    c.barrier();
    c.replayed();
    try {
      for (;;) {
        c.check();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    } catch (const CommunicationError& e) {
      said[size_t(c.rank())] = e.what();
    }
  });
  CHECK_THAT(said[0], Catch::Contains("in a recorded micro-batch, gathers of ranks 0, 1: not finished within 1 s"));
  CHECK(said[1] == said[0]);
}

TEST_CASE("nccl: a rank that never connects is given up after the time limit", "[nccl]") {
  const Fake fake;
  std::string said;
  run_ranks(mesh_of(1, 2), [&](Communicator& control) {
    if (control.rank() == 1) return;
    StreamDevice device;
    try {
      make_nccl_communicator(mesh_of(1, 2), device, std::make_unique<TracingCommunicator>(control), fake_options(1));
    } catch (const CommunicationError& e) {
      said = e.what();
    }
  });
  CHECK(said == "NCCL did not connect the gathers of ranks 0, 1 within 1 s");
}

RunResult train_nccl(const Plan& plan, int64_t steps, EngineOptions options = {}) {
  RunResult result;
  NcclOptions with_fake = nccl_options(plan);
  with_fake.library = DISTSETUP_FAKE_NCCL;
  run_nccl_ranks(plan.mesh, with_fake, [&](Communicator& communicator, StreamDevice& device) {
    train_rank(plan, steps, options, communicator, device, result, [](const StepStats& stats) {
      // Every instruction was timed on its stream, which takes one second in the test's device.
      int64_t count = 0;
      double seconds = 0;
      for (const auto& [op, total] : stats.by_instruction) count += total.count, seconds += total.seconds;
      if (seconds < double(count) || seconds > double(count) + 5)
        throw std::logic_error("instructions were not timed on their streams");
    });
  });
  return result;
}

TEST_CASE("stages of a pipeline have a communicator of two ranks for each neighbour and direction", "[nccl]") {
  const Fake fake;
  Mesh mesh;
  mesh.pp = 3;
  NcclOptions options = fake_options();
  options.interleaves_stages = true;
  std::atomic<int> wrong{0};
  run_nccl_ranks(mesh, options, [&](Communicator& communicator, StreamDevice&) {
    const int stage = communicator.rank(), next = (stage + 1) % 3, previous = (stage + 2) % 3;
    for (const Flow flow : {Flow::kActivations, Flow::kGradients}) {
      const bool forwards = flow == Flow::kActivations;
      const int to = forwards ? next : previous, from = forwards ? previous : next;
      const int64_t mine = 100 * int64_t(forwards) + stage;
      int64_t got = -1;
      const auto send = [&] { communicator.send(flow, to, &mine, 8)->wait(); };
      if (stage == 0) send();  // round the ring
      communicator.receive(flow, from, &got, 8)->wait();
      if (stage != 0) send();
      wrong += got != 100 * int64_t(forwards) + from;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("training over NCCL and a device with streams equals training over Gloo", "[nccl]") {
  const Fake fake;
  struct Case {
    const char* name;
    Sharding sharding;
    int replicate, shard;
    bool reshard;
  };
  const auto s = GENERATE(Case{"ddp 2", Sharding::kDdp, 2, 1, true}, Case{"zero1 2", Sharding::kZero1, 1, 2, true},
                          Case{"zero2 2", Sharding::kZero2, 1, 2, true}, Case{"zero3 2", Sharding::kZero3, 1, 2, true},
                          Case{"zero3 2, kept", Sharding::kZero3, 1, 2, false}, Case{"hybrid 2 x 2", Sharding::kZero3, 2, 2, true});
  const auto precision = GENERATE(Dtype::kF32, Dtype::kBf16);
  TinyOptions o;
  o.sharding = s.sharding;
  o.replicate = s.replicate;
  o.shard = s.shard;
  o.reshard = s.reshard;
  o.precision = precision;
  o.accumulation = 2;
  INFO(s.name << ", " << name(precision));
  const Plan plan = tiny_plan(o);
  const RunResult gloo = train(plan, 4), nccl = train_nccl(plan, 4);
  // Sums of two do not depend on their order; loss and norm of four may differ in the last bit.
  if (plan.mesh.world() == 2) CHECK(nccl == gloo);
  CHECK(difference(nccl.losses, gloo.losses) < 1e-12);
  CHECK(difference(nccl.parameters, gloo.parameters) < 1e-6);
  CHECK(train_nccl(plan, 4, {.poison = true}) == nccl);
}

TEST_CASE("experts shared by ranks train over NCCL and a device with streams as over Gloo", "[nccl][experts][all]") {
  const Fake fake;
  struct Case {
    const char* name;
    Sharding sharding;
    int replicate, shard, ep, tp = 1;
  };
  const auto s = GENERATE(Case{"ddp", Sharding::kDdp, 1, 2, 2}, Case{"zero2", Sharding::kZero2, 1, 4, 2},
                          Case{"zero3", Sharding::kZero3, 1, 2, 2}, Case{"hybrid", Sharding::kZero3, 2, 2, 2},
                          Case{"tp", Sharding::kZero2, 1, 1, 1, 2}, Case{"tp and ep", Sharding::kZero3, 1, 2, 2, 2});
  TinyOptions o;
  o.geometry = expert_geometry(GENERATE(as<std::string>(), "qwen2", "glm4"));
  o.sharding = s.sharding;
  o.geometry.feed_forward = 38;
  o.replicate = s.replicate, o.shard = s.shard, o.ep = s.ep, o.tp = s.tp;
  o.precision = GENERATE(Dtype::kF32, Dtype::kBf16);
  o.accumulation = 2;
  INFO(s.name << ", " << o.geometry.family << ", " << name(o.precision));
  const Plan plan = tiny_plan(o);
  const RunResult gloo = train(plan, 3), nccl = train_nccl(plan, 3);
  if (plan.mesh.world() == 2) CHECK(nccl == gloo);
  CHECK(difference(nccl.losses, gloo.losses) < 1e-12);
  CHECK(difference(nccl.parameters, gloo.parameters) < 1e-6);
  CHECK(train_nccl(plan, 3, {.poison = true}) == nccl);
}

TEST_CASE("streams are ordered exactly as the compiled list says", "[nccl]") {
  const Fake fake;
  const Sharding sharding = GENERATE(Sharding::kZero1, Sharding::kZero2, Sharding::kZero3);
  TinyOptions o;
  o.sharding = sharding;
  o.replicate = 2;
  o.shard = 2;
  const Plan plan = tiny_plan(o);
  std::vector<std::string> expected;
  const Schedule list = compile_schedule(plan, Phase::kStep);
  for (const Segment& segment : list.segments) {
    for (int64_t r = 0; r < segment.repeat; ++r) {
      for (int n = segment.first_instruction; n < segment.first_instruction + segment.num_instructions; ++n) {
        const Instruction& i = list.instructions[size_t(n)];
        for (const int event : i.waits) expected.push_back(fmt::format("wait {} e{}", name(i.stream), event));
        if (i.stream != Stream::kCompute) expected.push_back(fmt::format("follow {} compute", name(i.stream)));
        if (i.signals >= 0) expected.push_back(fmt::format("record {} e{}", name(i.stream), i.signals));
      }
    }
  }
  std::atomic<int> wrong{0};
  run_nccl_ranks(plan.mesh, fake_options(), [&](Communicator& communicator, StreamDevice& device) {
    Engine engine(plan, device, communicator);
    engine.initialize_parameters();
    engine.load();
    const Batch batch = rank_batch(plan, global_batch(plan, 0), data_index(plan.mesh, communicator.rank()));
    device.calls.clear();
    device.num_synchronized = 0;
    engine.step({batch.ids, batch.targets, batch.valid, 1e-3});
    wrong += device.calls != expected;
    wrong += device.num_synchronized != 1;  // once, at the end, to read the timers
  });
  CHECK(expected.size() > 10);
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace distsetup
