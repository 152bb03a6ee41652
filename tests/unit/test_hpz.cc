// ZeRO++'s second copy of the parameters (hpZ) and MiCS: bytes, seconds, search, DeepSpeed's keys.
#include <catch2/catch.hpp>

#include "model/count.h"
#include "planner/frameworks/memory.h"
#include "planner/frameworks/validate.h"
#include "planner/search/selection.h"
#include "planner/time/step.h"
#include "support/problems.h"

using namespace distsetup;

namespace {

Setup two_nodes(int hpz) {
  Setup s;
  s.model = *find_model(presets(), "llama3_8b");
  s.gpu = find_gpu(presets(), "h100_sxm")->gpu;
  s.framework = Framework::kDeepspeed;
  s.program = "hf_eager";
  s.nodes = 2, s.gpus_per_node = 8, s.dp_shard = 16, s.hpz = hpz;
  s.nic_kind = "infiniband", s.nic_bytes_per_s = 50e9;
  s.sequence_length = 1024;
  s.parameter_dtype = s.gradient_dtype = s.reduce_dtype = Dtype::kBf16;
  s.master_copy = true;
  s.recompute = ActivationRecompute::kFull;
  return s;
}

int64_t term(const MemoryEstimate& estimate, std::string_view name) {
  for (const MemoryTerm& one : estimate.terms)
    if (one.buffer_class == name) return one.bytes_max;
  return 0;
}

}  // namespace

TEST_CASE("hpZ: a second copy of the parameters in 16 bits that eight ranks share") {
  const Setup without = two_nodes(1), with = two_nodes(8);
  const MemoryEstimate plain = simulate_memory(without), copied = simulate_memory(with);
  const int64_t second = 2 * count_parameters(with.model).total / 8;
  CHECK(term(plain, "second copy (hpZ)") == 0);
  CHECK(term(copied, "second copy (hpZ)") == second);
  CHECK(copied.allocated_bytes == plain.allocated_bytes + second);
  CHECK(replay_memory(with).allocated_bytes >= replay_memory(without).allocated_bytes + second * 99 / 100);
  for (size_t i = 0; i < plain.by_phase.size(); ++i) {  // it is made in the first forward
    INFO(plain.by_phase[i].phase);
    const int64_t more = copied.by_phase[i].allocated_bytes - plain.by_phase[i].allocated_bytes;
    CHECK(more == (plain.by_phase[i].phase == "load" ? 0 : second));
  }
  Setup offloaded = with;
  offloaded.offload.parameters = OffloadPlace::kHost;
  CHECK(term(simulate_memory(offloaded), "second copy (hpZ)") == 0);
  Setup offloaded_once = without;
  offloaded_once.offload.parameters = OffloadPlace::kHost;
  CHECK(simulate_memory(offloaded).host_bytes_per_node == simulate_memory(offloaded_once).host_bytes_per_node + 8 * second);
}

TEST_CASE("hpZ: backward gathers inside the node") {
  const double plain = estimate_time(two_nodes(1)).communication_exposed_s,
               copied = estimate_time(two_nodes(8)).communication_exposed_s;
  CHECK(copied < 0.85 * plain);  // one of three transfers no longer crosses the network
  CHECK(copied > 0.5 * plain);
  CHECK(estimate_time(two_nodes(16)).step_s == Approx(estimate_time(two_nodes(1)).step_s));  // the same group
}

TEST_CASE("hpZ: what has none refuses it") {
  CHECK_FALSE(has_error(validate(two_nodes(8))));
  CHECK(has_error(validate(two_nodes(3))));
  Setup other = two_nodes(8);
  other.sharding = Sharding::kZero2;
  CHECK(has_error(validate(other)));
  other.sharding = Sharding::kZero3, other.framework = Framework::kFsdp1;
  CHECK(has_error(validate(other)));
  CHECK_FALSE(resolved({{"model", "llama3_8b"}, {"trainer", "fsdp2"}, {"hpz", "8"}}).ok());
  CHECK_FALSE(resolved({{"model", "llama3_8b"}, {"trainer", "native"}, {"hpz", "8"}}).ok());
  CHECK(resolved({{"model", "llama3_8b"}, {"trainer", "deepspeed"}, {"zero-hpz-partition-size", "8"}}).ok());
}

TEST_CASE("hpZ: chosen where the network is slow and memory is there") {
  const auto best = [](const char* model, double nic_bytes_per_s) {
    Result<Problem> problem = resolved({{"model", model},
                                        {"trainer", "deepspeed"},
                                        {"gpu", "h100_sxm"},
                                        {"gpus", "8"},
                                        {"nodes", "2"},
                                        {"sharding", "zero3"},
                                        {"dp-replicate", "1"},
                                        {"micro-batch", "1"}});
    INFO(format_diagnostics(problem.diagnostics));
    REQUIRE(problem.ok());
    problem->base.hardware.nic_bytes_per_s = nic_bytes_per_s;
    const SearchResult found = search(*problem, 2, *make_predictor(*problem));
    REQUIRE_FALSE(found.best.empty());
    return found.best.front().choice;
  };
  CHECK(best("llama3_8b", 12.5e9).hpz == 8);
  CHECK(best("llama3_8b", 400e9).hpz == 1);
}
