// nanotron's layers and stages against what its own logs print: Llama of 1.1 billion parameters on H100, 2024-07 (NAN rows of
// tests/accuracy/transfer.csv).
#include <catch2/catch.hpp>

#include "planner/frameworks/memory.h"
#include "planner/frameworks/stages.h"
#include "support/nanotron.h"

using namespace distsetup;

namespace {

Setup llama_1b(int dp, int tp, int pp, int64_t micro_batch) {
  Setup s;
  Geometry& g = s.model;
  g.family = "llama";
  g.num_layers = 24;
  g.hidden = 2048;
  g.num_heads = g.num_kv_heads = 32;
  g.head_size = 64;
  g.feed_forward = 4096;
  g.vocabulary = 50257;
  g.tied_embeddings = true;
  s.dp_shard = dp, s.tp = tp, s.pp = pp;
  set_nanotron(s);
  s.gpus_per_node = dp * tp * pp;
  s.sequence_length = 4096;
  s.micro_batch = micro_batch;
  s.gradient_accumulation = 1024 / dp / micro_batch;
  return s;
}

}  // namespace

TEST_CASE("nanotron: what its layers keep is what its logs print") {
  const struct {
    int dp, tp, pp;
    int64_t micro_batch;
    double allocated_mib;
  } runs[] = {{16, 1, 1, 2, 25075.44}, {1, 8, 1, 32, 60095.72}, {4, 2, 1, 8, 43650.72}, {1, 4, 2, 8, 25707.36},
              {2, 1, 4, 4, 39056.83},  {1, 2, 8, 8, 45800.36},  {1, 8, 8, 16, 34839.89}};
  for (const auto& run : runs) {
    INFO(run.dp << " " << run.tp << " " << run.pp << " " << run.micro_batch);
    const MemoryEstimate m = replay_memory(llama_1b(run.dp, run.tp, run.pp, run.micro_batch));
    CHECK(static_cast<double>(m.allocated_bytes) / (1 << 20) == Approx(run.allocated_mib).epsilon(0.01));
  }
}

TEST_CASE("nanotron: a stage takes layers until it has its share of the products, and the head counts") {
  const std::vector<StageLayers> two = pipeline_stages(llama_1b(1, 1, 2, 1)), four = pipeline_stages(llama_1b(1, 1, 4, 1));
  CHECK(two[0].num_layers == 14);
  CHECK(two[1].num_layers == 10);
  CHECK(four[0].num_layers == 7);
  CHECK(four[3].num_layers == 4);
  Setup even = llama_1b(1, 1, 2, 1);
  even.program = "megatron_te";
  CHECK(pipeline_stages(even)[0].num_layers == 12);
}
