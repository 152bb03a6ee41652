// What the communicator saw is what the compiled list says: the same operations on the same groups with the same bytes in the same
// order.
#include "runtime/comm/tracing.h"
#include "runtime/device/cpu_device.h"
#include "runtime/tiny.h"

#include <catch2/catch.hpp>

namespace distsetup {
namespace {

using namespace tiny;

using Line = std::string;

Line line(std::string_view op, Group group, int64_t bytes) {
  return std::string(op) + " " + std::string(name(group)) + " " + std::to_string(bytes);
}

std::vector<Line> of_list(const Schedule& s) {
  std::vector<Line> lines;
  for (const Segment& segment : s.segments) {
    for (int64_t r = 0; r < segment.repeat; ++r) {
      for (int i = segment.first_instruction; i < segment.first_instruction + segment.num_instructions; ++i) {
        const Instruction& instruction = s.instructions[size_t(i)];
        if (instruction.group == Group::kSelf) continue;
        lines.push_back(line(name(instruction.op), instruction.group, instruction.bytes));
      }
    }
  }
  return lines;
}
std::vector<Line> of_trace(const std::vector<CommunicationRecord>& records) {
  std::vector<Line> lines;
  for (const CommunicationRecord& r : records) {
    CHECK(r.waited);
    lines.push_back(line(r.op, r.group, r.bytes));
  }
  return lines;
}

TEST_CASE("the trace of every phase equals the list, on every rank of every mesh", "[trace]") {
  struct Case {
    Sharding sharding;
    int replicate, shard;
  };
  const auto c = GENERATE(Case{Sharding::kDdp, 4, 1}, Case{Sharding::kZero1, 1, 4}, Case{Sharding::kZero2, 2, 2},
                          Case{Sharding::kZero3, 1, 4}, Case{Sharding::kZero3, 2, 2});
  const int64_t accumulation = GENERATE(1, 2, 4);
  TinyOptions o;
  o.sharding = c.sharding;
  o.replicate = c.replicate;
  o.shard = c.shard;
  o.accumulation = accumulation;
  o.global_batch = 16;
  o.geometry.tied_embeddings = true;
  const Plan plan = tiny_plan(o);
  for (int rank = 0; rank < plan.mesh.world(); ++rank) {
    INFO(name(c.sharding) << " " << c.replicate << " x " << c.shard << " accumulation " << accumulation << " rank " << rank);
    const auto fake = make_fake_communicator(plan.mesh, rank);
    TracingCommunicator trace(*fake);
    const auto device = make_cpu_device();
    Engine engine(plan, *device, trace);
    engine.initialize_parameters();
    engine.load();
    CHECK(of_trace(trace.records()) == of_list(engine.schedule(Phase::kLoad)));
    trace.clear();
    // The fake network delivers nothing: gathered parameters of others are zeros. The order of calls does not depend on it.
    const Batch batch = rank_batch(plan, global_batch(plan, 0), data_index(plan.mesh, rank));
    engine.step({batch.ids, batch.targets, batch.valid, 1e-3});
    CHECK(!trace.records().empty());
    CHECK(of_trace(trace.records()) == of_list(engine.schedule(Phase::kStep)));
    trace.clear();
    engine.evaluate({batch.ids, batch.targets, batch.valid});
    std::vector<Line> expected;
    for (int64_t m = 0; m < accumulation; ++m) {
      const std::vector<Line> one = of_list(engine.schedule(Phase::kEvaluate));
      expected.insert(expected.end(), one.begin(), one.end());
    }
    CHECK(of_trace(trace.records()) == expected);
  }
}

}  // namespace
}  // namespace distsetup
