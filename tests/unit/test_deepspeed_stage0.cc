// DeepSpeed's stage 0 in 16 bits: runtime/fp16/fused_optimizer.py copies each gradient in fp32, then makes a flat one of them.
#include <catch2/catch.hpp>

#include "model/count.h"
#include "model/presets.h"
#include "planner/frameworks/memory.h"
#include "support/presets.h"

using namespace distsetup;

TEST_CASE("DeepSpeed stage 0: what its steps make is found in freed blocks again") {
  Setup s;
  s.model = *find_model(presets(), "llama3.2_3b");
  s.gpu = find_gpu(presets(), "h100_sxm")->gpu;
  s.gpu.usable_memory_bytes = int64_t{1} << 42;
  s.framework = Framework::kDeepspeed;
  s.sharding = Sharding::kDdp;
  s.program = "hf_eager";
  s.parameter_dtype = s.gradient_dtype = s.reduce_dtype = Dtype::kBf16;
  s.master_copy = true;
  s.recompute = ActivationRecompute::kFull;
  s.sequence_length = 2048;
  s.micro_batch = 1;
  const MemoryEstimate memory = replay_memory(s);
  const double parameters = static_cast<double>(count_parameters(s.model).total);
  CHECK(static_cast<double>(memory.allocated_bytes) > 23.5 * parameters);  // 2, a master and moments of 12, 2 of gradients, twice 4
  CHECK(static_cast<double>(memory.reserved_bytes - memory.allocated_bytes) < 2.5 * parameters);
}
