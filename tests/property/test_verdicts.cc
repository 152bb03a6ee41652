// Over a grid of plans of every trainer, native included: what the verdict, the headline, the interval and the probability say agrees.
#include <catch2/catch.hpp>
#include <cmath>

#include "planner/report/verdict.h"
#include "planner/search/make_plan.h"
#include "support/problems.h"

using namespace distsetup;

namespace {

Plan plan_of(const Flags& flags) {
  const Result<Problem> problem = resolved(flags);
  INFO(format_diagnostics(problem.diagnostics));
  REQUIRE(problem.ok());
  Result<Plan> plan = make_plan(*problem);
  INFO(format_diagnostics(plan.diagnostics));
  REQUIRE(plan.ok());
  return *plan;
}

}  // namespace

TEST_CASE("verdicts: no plan contradicts itself") {
  int num_with_room = 0;
  for (const char* trainer : {"native", "fsdp1", "fsdp2", "deepspeed", "megatron", "ddp"}) {
    for (const char* model : {"llama3.2_1b", "qwen2.5_7b", "llama2_13b"}) {
      for (const char* gpu : {"a100_sxm_40", "h100_sxm", "rtx_4090"}) {
        for (const char* gpus : {"1", "8"}) {
          INFO(trainer << " " << model << " on " << gpus << " " << gpu);
          const Plan plan = plan_of({{"trainer", trainer}, {"model", model}, {"gpu", gpu}, {"nodes", "1"}, {"gpus", gpus}});
          const MemoryPlan& m = plan.memory;
          INFO(m.device_low_bytes << " " << m.device_bytes << " " << m.device_high_bytes << " of " << m.capacity_bytes << ", "
                                  << m.fit_probability);
          CHECK(plan.verdict == verdict_of(m.fit_probability));
          CHECK(m.device_low_bytes <= m.device_bytes);
          CHECK(m.device_bytes <= m.device_high_bytes);
          CHECK(m.device_bytes <= m.unconstrained_device_bytes);
          if (m.unconstrained_device_bytes > m.device_bytes) {
            CHECK(m.unconstrained_low_bytes <= m.unconstrained_device_bytes);
            CHECK(m.unconstrained_device_bytes <= m.unconstrained_high_bytes);
            CHECK(m.device_low_bytes <= m.unconstrained_low_bytes);
            CHECK(m.device_high_bytes <= m.unconstrained_high_bytes);
            CHECK(m.unconstrained_low_bytes < m.unconstrained_high_bytes);
            ++num_with_room;
          } else {
            CHECK(m.unconstrained_low_bytes == 0);
            CHECK(m.unconstrained_high_bytes == 0);
          }
          CHECK(m.peak_allocated_bytes < m.device_bytes);
          if (plan.verdict == Verdict::kFits) CHECK(m.device_high_bytes <= m.capacity_bytes);
          if (m.fit_probability > 0.501) CHECK(m.device_bytes <= m.capacity_bytes);
          if (m.device_high_bytes <= m.capacity_bytes && m.host_bytes_per_node == 0) CHECK(m.fit_probability > 0.949);
          for (const Alternative& other : plan.alternatives) {
            INFO(other.summary);
            if (other.verdict == Verdict::kFits) CHECK(other.device_bytes <= m.capacity_bytes);
          }
        }
      }
    }
  }
  CHECK(num_with_room > 10);
}

TEST_CASE("verdicts: a margin is memory that the GPU does not have") {
  const Flags base = {{"trainer", "fsdp2"}, {"model", "llama3_8b"}, {"gpu", "h100_sxm"}, {"nodes", "1"}, {"gpus", "8"}};
  const auto with = [&](const char* flag, const char* value) {
    Flags flags = base;
    flags.push_back({flag, value});
    return plan_of(flags);
  };
  const Plan whole = plan_of(base), less = with("margin", "10%"), same = with("margin", "0.1");
  CHECK(less.memory.capacity_bytes == Approx(0.9 * static_cast<double>(whole.memory.capacity_bytes)));
  CHECK(less.memory.capacity_bytes == same.memory.capacity_bytes);
  CHECK(less.verdict == Verdict::kFits);
  CHECK(less.memory.device_high_bytes <= less.memory.capacity_bytes);
}
