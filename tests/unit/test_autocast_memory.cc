// Modules that FSDP does not wrap, computed under autocast: their gradients have their own type, and the casts of matrices live on.
#include <catch2/catch.hpp>

#include "model/count.h"
#include "model/presets.h"
#include "planner/frameworks/memory.h"
#include "support/presets.h"

namespace distsetup {
namespace {

Setup script(int64_t micro_batch) {
  Setup s;
  s.model = *find_model(presets(), "tinyllama_1.1b");
  s.gpu = find_gpu(presets(), "h100_sxm")->gpu;
  s.gpu.usable_memory_bytes = int64_t{1} << 42;
  s.framework = Framework::kDdp;
  s.sharding = Sharding::kDdp;
  s.program = "hf_eager";
  s.parameter_dtype = s.gradient_dtype = s.state_dtype = s.reduce_dtype = Dtype::kF32;
  s.compute = Dtype::kBf16;
  s.optimizer_implementation = OptimizerImplementation::kFused;
  s.sequence_length = 512;
  s.micro_batch = micro_batch;
  s.recompute = ActivationRecompute::kFull;
  return s;
}

double allocated(const Setup& s) { return static_cast<double>(simulate_memory(s).allocated_bytes); }

}  // namespace

TEST_CASE("under autocast a gradient is as wide as its parameter, under FSDP's policy it has 16 bits") {
  Setup s = script(1);
  const double parameters = static_cast<double>(count_parameters(s.model).total);
  CHECK(allocated(s) == Approx(16 * parameters).epsilon(0.02));  // with PyTorch's moments, when the optimizer steps
  CHECK(static_cast<double>(replay_memory(s).allocated_bytes) == Approx(allocated(s)).epsilon(0.02));
  s.framework = Framework::kFsdp2;
  CHECK(allocated(s) < 15 * parameters);
}

TEST_CASE("autocast's casts of matrices live from forward to backward, where nothing is compiled and parameters are wider") {
  Setup s = script(16);
  s.recompute = ActivationRecompute::kNone;
  const double parameters = static_cast<double>(count_parameters(s.model).total);
  const double embedding = static_cast<double>(s.model.vocabulary * s.model.hidden);
  const double eager = allocated(s);
  CHECK(static_cast<double>(replay_memory(s).allocated_bytes) == Approx(eager).epsilon(0.02));
  s.compiled = true;  // a graph casts again in backward
  CHECK(eager - allocated(s) == Approx(2 * (parameters - embedding)).epsilon(0.05));
  s.compiled = false;
  s.parameter_dtype = s.gradient_dtype = s.state_dtype = s.reduce_dtype = Dtype::kBf16;
  const double narrow = allocated(s);
  s.compiled = true;
  CHECK(narrow == allocated(s));
}

}  // namespace distsetup
