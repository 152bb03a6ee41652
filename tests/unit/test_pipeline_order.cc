// Orders and parts of pipelines.
#include "plan/pipeline.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "plan/expand.h"
#include "plan/pipeline_rules.h"
#include "planner/frameworks/stages.h"
#include "support/random_plan.h"

namespace distsetup {
namespace {

struct TorchTable {
  int stages, chunks, micro_batches, rank;
  std::string actions;  // part of the model, F or B, micro-batch
};

// What torch.distributed.pipelining 2.11 runs, from its own code (schedules.py): Schedule1F1B._step_microbatches for one chunk, else
// ScheduleInterleaved1F1B._calculate_single_rank_operations.
const TorchTable kTables[] = {
    {2, 1, 1, 0, "0F0 0B0"},
    {2, 1, 1, 1, "1F0 1B0"},
    {2, 1, 4, 0, "0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3"},
    {2, 1, 4, 1, "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3"},
    {4, 1, 2, 0, "0F0 0F1 0B0 0B1"},
    {4, 1, 2, 1, "1F0 1F1 1B0 1B1"},
    {4, 1, 2, 2, "2F0 2F1 2B0 2B1"},
    {4, 1, 2, 3, "3F0 3B0 3F1 3B1"},
    {4, 1, 6, 0, "0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0B3 0B4 0B5"},
    {4, 1, 6, 1, "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1B4 1B5"},
    {4, 1, 6, 2, "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2B5"},
    {4, 1, 6, 3, "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5"},
    {2, 2, 4, 0, "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3"},
    {2, 2, 4, 1, "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3"},
    {2, 2, 1, 0, "0F0 2F0 2B0 0B0"},
    {2, 2, 1, 1, "1F0 3F0 3B0 1B0"},
    {3, 2, 6, 0, "0F0 0F1 0F2 3F0 3F1 3F2 0F3 0F4 3B0 0F5 3B1 3F3 3B2 3F4 0B0 3F5 0B1 0B2 3B3 3B4 3B5 0B3 0B4 0B5"},
    {3, 2, 6, 1, "1F0 1F1 1F2 4F0 4F1 4F2 4B0 1F3 4B1 1F4 4B2 1F5 1B0 4F3 1B1 4F4 1B2 4F5 4B3 4B4 4B5 1B3 1B4 1B5"},
    {3, 2, 6, 2, "2F0 2F1 2F2 5F0 5B0 5F1 5B1 5F2 5B2 2F3 2B0 2F4 2B1 2F5 2B2 5F3 5B3 5F4 5B4 5F5 5B5 2B3 2B4 2B5"},
    {4, 2, 4, 0, "0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 4B0 4B1 4B2 4B3 0B0 0B1 0B2 0B3"},
    {4, 2, 4, 1, "1F0 1F1 1F2 1F3 5F0 5F1 5F2 5F3 5B0 5B1 5B2 5B3 1B0 1B1 1B2 1B3"},
    {4, 2, 4, 2, "2F0 2F1 2F2 2F3 6F0 6F1 6F2 6B0 6F3 6B1 6B2 6B3 2B0 2B1 2B2 2B3"},
    {4, 2, 4, 3, "3F0 3F1 3F2 3F3 7F0 7B0 7F1 7B1 7F2 7B2 7F3 7B3 3B0 3B1 3B2 3B3"},
    {3, 3, 5, 0,
     "0F0 0F1 0F2 0F3 0F4 3F0 3F1 3F2 3F3 3F4 6F0 6F1 6F2 6F3 6F4 6B0 6B1 6B2 6B3 6B4 3B0 3B1 3B2 3B3 3B4 0B0 0B1 0B2 0B3 0B4"},
    {3, 3, 5, 1,
     "1F0 1F1 1F2 1F3 1F4 4F0 4F1 4F2 4F3 4F4 7F0 7F1 7F2 7B0 7F3 7B1 7F4 7B2 7B3 7B4 4B0 4B1 4B2 4B3 4B4 1B0 1B1 1B2 1B3 1B4"},
    {3, 3, 5, 2,
     "2F0 2F1 2F2 2F3 2F4 5F0 5F1 5F2 5F3 5F4 8F0 8B0 8F1 8B1 8F2 8B2 8F3 8B3 8F4 8B4 5B0 5B1 5B2 5B3 5B4 2B0 2B1 2B2 2B3 2B4"},
};

TEST_CASE("stages compute in the order of torch.distributed.pipelining") {
  for (const TorchTable& t : kTables) {
    INFO(t.stages << " x " << t.chunks << ", " << t.micro_batches << " micro-batches, rank " << t.rank);
    std::string actions;
    for (const PipelineAction& a : pipeline_order(t.stages, t.chunks, t.micro_batches, t.rank))
      actions +=
          fmt::format("{}{}{}{}", actions.empty() ? "" : " ", a.chunk * t.stages + t.rank, a.is_forward ? "F" : "B", a.micro_batch);
    CHECK(actions == t.actions);
  }
}

TEST_CASE("layers are dealt evenly, and as many micro-batches are in flight as other trainers keep") {
  CHECK(layers_per_chunk(8, 4) == std::vector<int64_t>{2, 2, 2, 2});
  CHECK(layers_per_chunk(7, 4) == std::vector<int64_t>{2, 2, 2, 1});
  CHECK(layers_per_chunk(6, 4) == std::vector<int64_t>{1, 2, 2, 1});
  CHECK(layers_per_chunk(5, 4) == std::vector<int64_t>{1, 2, 1, 1});
  Setup s;
  s.model = tiny_geometry(12);
  for (const auto& [stages, chunks, m] : {std::tuple(4, 1, 16), {4, 3, 16}, {2, 2, 8}, {4, 1, 2}, {3, 2, 6}}) {
    s.pp = stages, s.virtual_stages = chunks, s.gradient_accumulation = m;
    const std::vector<StageLayers> known = pipeline_stages(s);
    for (int stage = 0; stage < stages; ++stage) {
      int now = 0, most = 0;
      for (const PipelineAction& a : pipeline_order(stages, chunks, m, stage)) most = std::max(most, now += a.is_forward ? 1 : -1);
      CHECK(most == known[static_cast<size_t>(stage)].in_flight);
      int64_t layers = 0;
      for (const UnitSpan& span : stage_chunks(12, stages, chunks, stage))
        layers += span.last - span.first + 1 - (span.first == 0 ? 1 : 0) - (span.last == 13 ? 1 : 0);
      CHECK(layers == known[static_cast<size_t>(stage)].num_layers);
    }
  }
}

TEST_CASE("a pipeline's memory does not grow with its micro-batches") {
  for (const auto& [stages, chunks] : {std::pair(2, 1), {4, 1}, {2, 2}, {3, 2}, {4, 3}}) {
    const int64_t many = 12 * stages;
    const Plan plan = make_test_plan(
        tiny_geometry(12),
        {.sharding = Sharding::kZero2, .dp_shard = 2, .accumulation = many, .compute = Dtype::kBf16, .pp = stages, .chunks = chunks});
    const Plan few = with_few_micro_batches(plan);
    CHECK(few.gradient_accumulation < many);
    for (int stage = 0; stage < stages; ++stage) {
      const Schedule a = compile_expanded(plan, Phase::kStep, stage), b = compile_expanded(few, Phase::kStep, stage);
      CHECK(a.arena_bytes == b.arena_bytes);
      CHECK(a.live_peak_bytes == b.live_peak_bytes);
    }
  }
}

TEST_CASE("pipelines that cannot run are refused with their numbers") {
  const auto why = [](const Geometry& g, PlanChoice c, int64_t layers) {
    Plan plan = make_test_plan(g, c);
    plan.model.num_layers = layers;
    const Diagnostics said = validate(plan);
    return said.empty() ? "" : said.front().message;
  };
  const Geometry g = tiny_geometry(8);
  CHECK(why(g, {.sharding = Sharding::kDdp, .pp = 4, .chunks = 2}, 8).empty());
  CHECK(why(g, {.sharding = Sharding::kDdp, .pp = 4, .chunks = 2}, 7)
            .find("pp 4 × 2 chunks per stage = 8 parts, the model has 7 layers") != std::string::npos);
  CHECK(why(g, {.sharding = Sharding::kDdp, .tp = 2, .pp = 2, .chunks = 2}, 8) == "");
  CHECK(why(g, {.dp_shard = 2, .reshard = false, .pp = 2}, 8).find("reshard_after_forward cannot be false") != std::string::npos);
  Plan uneven = make_test_plan(g, {.sharding = Sharding::kDdp, .accumulation = 4, .pp = 2, .chunks = 2});
  uneven.gradient_accumulation = uneven.train.global_batch = 5;
  REQUIRE(!validate(uneven).empty());
  CHECK(validate(uneven).front().message.find("5 / 2 = 2 equal rounds, which 5 micro-batches are not") != std::string::npos);
}

}  // namespace
}  // namespace distsetup
