// What Python runs op by op under tensor parallelism passes DTensor's dispatcher; compilers and Megatron have none.
#include <catch2/catch.hpp>

#include "model/presets.h"
#include "planner/time/constants.h"
#include "planner/time/embedded_calibration.h"
#include "support/presets.h"

using namespace distsetup;

TEST_CASE("tensor parallelism over DTensor takes the host 90 us for each of a layer's thirty operations, unless they are compiled") {
  const auto of_tensors = [](const char* program, bool compiled, Framework framework) {
    Setup s;
    s.model = *find_model(presets(), "llama3.1_8b");
    s.gpu = find_gpu(presets(), "h100_sxm")->gpu;
    s.framework = framework;
    s.program = program;
    s.compiled = compiled;
    s.gpus_per_node = 8;
    s.software.released = 202511;
    const auto launch_s = [](const Setup& one) { return time_constants(one, embedded_calibration()).launch_layer_s; };
    s.dp_shard = 8;
    const double whole = launch_s(s);
    s.dp_shard = 1;
    s.tp = 8;
    return launch_s(s) - whole;
  };
  CHECK(of_tensors("torchtitan_eager", false, Framework::kFsdp2) == Approx(30 * 90e-6));
  CHECK(of_tensors("torchtitan_compiled", true, Framework::kFsdp2) == Approx(0).margin(1e-12));
  CHECK(of_tensors("megatron_te", false, Framework::kMegatron) == Approx(0).margin(1e-12));
}
