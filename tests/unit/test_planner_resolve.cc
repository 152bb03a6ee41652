// Spec → Problem: defaults that are said, contradictions that are refused, data files.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>

#include "base/diagnostic_codes.h"
#include "base/value_yaml.h"
#include "model/count.h"
#include "model/presets.h"
#include "planner/resolve/data_scan.h"
#include "planner/resolve/resolve.h"
#include "planner/search/make_plan.h"
#include "support/presets.h"
#include "support/temporary_directory.h"

using namespace distsetup;

namespace {

using Flags = std::vector<std::pair<std::string, std::string>>;

Result<Problem> problem_of(const Flags& flags, const Inputs& inputs = {}) {
  Spec spec;
  for (const auto& [flag, text] : flags) REQUIRE(set_flag(spec, flag, std::string_view(text), {"command line", 0, 0}).empty());
  return resolve(spec, presets(), inputs);
}

std::string first_code(const Flags& flags) {
  const Result<Problem> p = problem_of(flags);
  return p.ok() ? "" : p.diagnostics.front().code;
}

bool says(const Diagnostics& diagnostics, std::string_view text) {
  return std::any_of(diagnostics.begin(), diagnostics.end(),
                     [&](const Diagnostic& d) { return (d.message + d.help).find(text) != std::string::npos; });
}

}  // namespace

TEST_CASE("what is not given is assumed, and each assumption is a line") {
  const Result<Problem> p = problem_of({{"model", "70B"}});
  REQUIRE(p.ok());
  const Plan& plan = p->base;
  CHECK(plan.model.name == "llama3_70b");
  CHECK(plan.hardware.gpu == "h100_sxm");
  CHECK(plan.hardware.gpus_per_node == 8);
  CHECK(p->node_counts.size() > 1);
  CHECK(p->global_batch_tokens == 1 << 20);
  CHECK(plan.train.sequence_length == 4096);
  CHECK(plan.train.method == "pretrain");
  CHECK(plan.precision.compute == Dtype::kBf16);
  CHECK(plan.train.grad_clip == 1.0);
  for (const char* text : {"H100", "fewest nodes", "1,048,576 tokens", "4,096", "pretrain", "AdamW", "bf16", "clip 1.0"}) {
    INFO(text);
    CHECK(std::any_of(plan.assumptions.begin(), plan.assumptions.end(),
                      [&](const std::string& a) { return a.find(text) != std::string::npos; }));
  }
  const Result<Problem> given =
      problem_of({{"model", "70B"}, {"gpu", "h100_sxm"}, {"gpus", "8"}, {"nodes", "4"}, {"seq", "4096"}, {"grad-clip", "1.0"}});
  REQUIRE(given.ok());
  CHECK(given->base.assumptions.size() < plan.assumptions.size());
  CHECK(given->node_counts == std::vector<int>{4});
  CHECK(given->other_hardware.empty());
}

TEST_CASE("GPUs: per node always, a total only by its own flag") {
  CHECK(problem_of({{"model", "8B"}, {"gpus", "4"}, {"nodes", "3"}})->base.hardware.gpus_per_node == 4);
  const Result<Problem> total = problem_of({{"model", "8B"}, {"total-gpus", "32"}, {"gpus", "8"}});
  REQUIRE(total.ok());
  CHECK(total->node_counts == std::vector<int>{4});
  CHECK(problem_of({{"model", "8B"}, {"total-gpus", "2"}})->base.hardware.gpus_per_node == 2);
  CHECK(first_code({{"model", "8B"}, {"total-gpus", "12"}, {"gpus", "8"}}) == code::kMeshInvalid);
  CHECK(first_code({{"model", "8B"}, {"gpus", "2"}, {"gpu", "8xH100"}}).empty());  // the later flag wins
  CHECK(problem_of({{"model", "8B"}, {"machine", "dgx_h100"}, {"nodes", "2"}})->base.hardware.gpu == "h100_sxm");
}

TEST_CASE("hybrid sharding is zero3 inside a node, copies across nodes") {
  const Result<Problem> p = problem_of({{"model", "8B"}, {"sharding", "HYBRID_SHARD"}, {"gpus", "4"}, {"nodes", "2"}});
  REQUIRE(p.ok());
  CHECK(p->shardings == std::vector{Sharding::kZero3});
  CHECK(p->dp_shard == 4);
  const Result<Plan> plan = make_plan(*p);
  REQUIRE(plan.ok());
  CHECK(plan->mesh.dp_shard == 4);
  CHECK(plan->mesh.dp_replicate == 2);
  CHECK(first_code({{"model", "8B"}, {"sharding", "HYBRID_SHARD"}, {"gpus", "4"}, {"dp-shard", "2"}}) == code::kConflict);
}

TEST_CASE("contradictions are refused with both sides") {
  CHECK(first_code({{"model", "8B"}, {"sharding", "zero2"}, {"reshard-after-forward", "false"}}) == code::kConflict);
  CHECK(problem_of({{"model", "8B"}, {"reshard-after-forward", "false"}})->shardings == std::vector{Sharding::kZero3});
  CHECK(first_code({{"model", "8B"}, {"sharding", "ddp"}, {"dp-shard", "8"}}) == code::kConflict);
  CHECK(first_code({{"model", "8B"}, {"gpus", "8"}, {"dp-shard", "3"}}) == code::kMeshInvalid);
  CHECK(first_code({{"model", "8B"}, {"gpus", "8"}, {"dp-shard", "2"}, {"dp-replicate", "2"}}) == code::kMeshInvalid);
  CHECK(first_code({{"model", "8B"}, {"global-batch", "8"}, {"global-batch-tokens", "4096"}}) == code::kConflict);
  CHECK(first_code({{"model", "8B"}, {"min-lr", "1"}}) == code::kConflict);
}

TEST_CASE("what the bundled trainer does not run is refused by name") {
  for (const auto& [flag, value] : Flags{{"offload-param", "nvme"}, {"offload-activations", "nvme"}}) {
    INFO(flag);
    CHECK(first_code({{"model", "8B"}, {"trainer", "native"}, {flag, value}}) == code::kUnsupportedFeature);
  }
  CHECK(first_code({{"model", "8B"}, {"trainer", "native"}, {"ep", "2"}}) == code::kMeshInvalid);        // it has no experts
  CHECK(first_code({{"model", "nemotron3_nano"}, {"trainer", "native"}}) == code::kUnsupportedFeature);  // scans
  CHECK(first_code({{"model", "8B"}, {"gpu", "v100_sxm_32"}, {"precision", "bf16"}}) == code::kUnsupportedFeature);
  CHECK(problem_of({{"model", "8B"}, {"gpu", "v100_sxm_32"}, {"precision", "fp32"}}).ok());
  CHECK(first_code({{"model", "8B"}, {"trainer", "native"}, {"tp", "2"}, {"sequence-parallel", "false"}}) ==
        code::kUnsupportedFeature);
  CHECK(problem_of({{"model", "8B"}, {"trainer", "native"}, {"sequence-parallel", "false"}})->tp == 1);
  CHECK(problem_of({{"model", "8B"}, {"trainer", "native"}, {"cp", "2"}}).ok());
  CHECK(problem_of({{"model", "8B"}, {"trainer", "native"}, {"pp", "2"}, {"virtual-stages", "2"}}).ok());
  CHECK(first_code({{"model", "8B"}, {"trainer", "native"}, {"pp", "2"}, {"virtual-stages", "2"}, {"tp", "2"}}) == "");
  for (const char* one : {"tp", "pp", "cp", "ep"}) CHECK(problem_of({{"model", "8B"}, {one, "1"}}).ok());
}

TEST_CASE("regression 46: a label further than 5 % from the count is said") {
  for (const std::string& id : preset_ids(presets(), "models")) {
    const Result<Problem> p = problem_of({{"model", id}});
    if (!p.ok()) continue;  // a family the trainer does not run
    const Geometry& g = p->base.model;
    if (g.label.empty() || (g.label.back() != 'B' && g.label.back() != 'M')) continue;
    const char unit = g.label[g.label.find_first_not_of("0123456789.")];  // of "1T-A32B" the T
    const double spoken = std::stod(g.label) * (unit == 'T' ? 1e12 : unit == 'B' ? 1e9 : 1e6);
    const double off = static_cast<double>(count_parameters(g).total) / spoken - 1;
    INFO(id << " " << off);
    CHECK(says(p->base.diagnostics, "is called") == (std::abs(off) > 0.05));
  }
}

TEST_CASE("context parallelism is planned where it is asked for, and what it cannot cut is refused with its numbers") {
  const auto plan_with = [](const Flags& flags) {
    const Result<Problem> p = problem_of(flags);
    return p.ok() ? make_plan(*p) : Result<Plan>(p.diagnostics);
  };
  const Flags node = {{"model", "8B"}, {"nodes", "1"}, {"gpus", "8"}};
  const auto with = [&](Flags more) {
    more.insert(more.begin(), node.begin(), node.end());
    return plan_with(more);
  };
  const Result<Plan> shared = with({{"cp", "4"}, {"cp-method", "ulysses"}, {"sequence-length", "65536"}});
  REQUIRE(shared.ok());
  CHECK(shared->mesh.cp == 4);
  CHECK(shared->strategy.cp_method == "ulysses");
  CHECK(is_native(*shared));
  const Result<Plan> uncut = with({{"cp", "4"}, {"sequence-length", "4100"}});
  REQUIRE_FALSE(uncut.ok());
  CHECK(uncut.diagnostics.front().message.find("2 × 4 = 8 chunks of one length, which a sequence of 4100 tokens") !=
        std::string::npos);
  const Result<Plan> shards = with({{"cp", "2"}, {"dp-shard", "8"}});
  REQUIRE_FALSE(shards.ok());
  CHECK(shards.diagnostics.front().message.find("1 node × 8 GPUs / cp 2 = 4") != std::string::npos);
  // The kernel that fp32 takes on GPUs has no window for some of a sequence's queries: heads are exchanged, or it is refused.
  const Flags window = {{"model", "mistral_7b"}, {"trainer", "native"},        {"nodes", "1"}, {"gpus", "8"},
                        {"precision", "fp32"},   {"sequence-length", "32768"}, {"cp", "2"}};
  const Result<Plan> exchanged = plan_with(window);
  REQUIRE(exchanged.ok());
  CHECK(exchanged->strategy.cp_method == "ulysses");
  Flags gathered = window;
  gathered.push_back({"cp-method", "allgather"});
  const Result<Plan> refused = plan_with(gathered);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.diagnostics.front().message.find("no window over several ranks, the model's is 4096 and cp 2") != std::string::npos);
  Flags round = window;
  round.push_back({"cp-method", "ring"});
  const Result<Plan> windowed = plan_with(round);
  REQUIRE_FALSE(windowed.ok());
  CHECK(windowed.diagnostics.front().message.find("which ring needs; the model's is 4096 and cp 2") != std::string::npos);
  const Result<Plan> ring = plan_with({{"model", "8B"}, {"trainer", "native"}, {"gpus", "8"}, {"cp", "2"}, {"cp-method", "ring"}});
  REQUIRE(ring.ok());
  CHECK(ring->strategy.cp_method == "ring");
  const Flags cpu = {{"model", "tiny"}, {"gpu", "cpu"}, {"nodes", "1"}, {"gpus", "4"}, {"seq", "64"}};
  const Result<Plan> proposed = plan_with(cpu);
  REQUIRE(proposed.ok());
  CHECK(proposed->mesh.cp == 1);
  Flags asked = cpu;
  asked.push_back({"cp", "2"});
  const Result<Plan> given = plan_with(asked);
  REQUIRE(given.ok());
  CHECK(given->mesh.cp == 2);
}

TEST_CASE("how experts are trained is a setting of the bundled trainer, which plans for other trainers refuse") {
  for (const std::string setting : {"expert_capacity: 1.25", "router_z_loss: 0.001", "router_bias_rate: 0.001", "router_loss: 0.02"}) {
    INFO(setting);
    const Result<Value> model = parse_yaml("{base: qwen3_30b_a3b, " + setting + "}", "run.yaml");
    REQUIRE(model.ok());
    Spec spec;
    spec.model = *model;
    CHECK(resolve(spec, presets(), {}).ok());
    REQUIRE(set_flag(spec, "trainer", std::string_view("megatron"), {"command line", 0, 0}).empty());
    const Result<Problem> other = resolve(spec, presets(), {});
    const bool is_of_the_model = setting.starts_with("router_loss");  // as its config.json says
    CHECK(other.ok() == is_of_the_model);
    if (!is_of_the_model) CHECK(other.diagnostics.front().message.find("is a setting of the bundled trainer") != std::string::npos);
  }
}

TEST_CASE("regression 20, 32: no heads that do not divide, no batch that does not") {
  Spec spec;
  const Result<Value> model =
      parse_yaml("{num_layers: 2, hidden: 416, num_heads: 52, num_kv_heads: 8, feed_forward: 96, vocabulary: 256}", "run.yaml");
  REQUIRE(model.ok());
  spec.model = *model;
  CHECK_FALSE(resolve(spec, presets(), {}).ok());
  const Result<Problem> p = problem_of(
      {{"model", "8B"}, {"gpus", "8"}, {"global-batch", "100"}, {"micro-batch", "2"}, {"tp", "1"}, {"cp", "1"}, {"pp", "1"}});
  REQUIRE(p.ok());
  const Result<Plan> plan = make_plan(*p);
  REQUIRE_FALSE(plan.ok());
  CHECK(plan.diagnostics.front().code == code::kBatchIndivisible);
  CHECK(plan.diagnostics.front().message.find("100") != std::string::npos);
  CHECK(plan.diagnostics.front().help == "--global-batch 96");
  // A trainer without further axes has no smaller number of data-parallel ranks to divide it by.
  const Result<Problem> fsdp1 = problem_of({{"model", "8B"}, {"gpus", "8"}, {"global-batch", "100"}, {"trainer", "fsdp1"}});
  REQUIRE(fsdp1.ok());
  CHECK(make_plan(*fsdp1).diagnostics.front().help == "--global-batch 104");
}

TEST_CASE("the inputs digest changes with the spec and with a preset, not with the order of keys") {
  const auto digest = [](const Flags& flags) { return problem_of(flags)->base.inputs_digest; };
  CHECK(digest({{"model", "8B"}, {"nodes", "2"}}) == digest({{"nodes", "2"}, {"model", "8B"}}));
  CHECK(digest({{"model", "8B"}, {"nodes", "2"}}) != digest({{"model", "8B"}, {"nodes", "3"}}));
  CHECK(digest({{"model", "8B"}, {"gpu", "h100"}}) != digest({{"model", "8B"}, {"gpu", "h200"}}));
  CHECK(digest({{"model", "8B"}}).size() == 64);
}

TEST_CASE("data files: sorted, digested, named once, some held out") {
  const TemporaryDirectory dir;
  for (int i = 0; i < 12; ++i) dir.write(fmt::format("docs/{:02}.txt", i), fmt::format("text {}\n", i));
  dir.write("docs/image.png", std::string("\x89PNG\0\0", 6));
  dir.write("docs/.hidden", "no");
  dir.write("docs/empty.txt", "");
  const Result<DataPlan> data = scan_data({"docs", "docs/03.txt"}, dir.path(), 4);
  REQUIRE(data.ok());
  REQUIRE(data->files.size() == 12);
  CHECK(std::is_sorted(data->files.begin(), data->files.end(), [](const DataFile& a, const DataFile& b) { return a.path < b.path; }));
  CHECK(std::count_if(data->files.begin(), data->files.end(), [](const DataFile& f) { return f.held_out; }) == 3);
  CHECK(train_bytes(*data) + held_out_bytes(*data) == 10 * 7 + 2 * 8);
  CHECK(data->files[3].path == "docs/03.txt");
  CHECK(data->files[3].sha256.size() == 64);
  CHECK(says(data.diagnostics, "image.png"));
  CHECK_FALSE(scan_data({"docs/image.png"}, dir.path(), 0).ok());
  CHECK_FALSE(scan_data({"nothing"}, dir.path(), 0).ok());
  CHECK_FALSE(scan_data({"docs/empty.txt"}, dir.path(), 0).ok());
  const Result<DataPlan> none_held = scan_data({"docs"}, dir.path(), 0);
  CHECK(held_out_bytes(*none_held) == 0);
}

TEST_CASE("regression 50: text shorter than one step is refused, not filled up") {
  const TemporaryDirectory dir;
  dir.write("a.txt", std::string(1000, 'x'));
  dir.write("b.txt", std::string(1000, 'y'));
  Inputs inputs;
  inputs.data = *scan_data({"a.txt", "b.txt"}, dir.path(), 0);
  const Flags small = {{"model", "8B"}, {"gpu", "cpu"}, {"gpus", "1"}, {"seq", "64"}};
  Flags fits = small, too_long = small;
  fits.push_back({"global-batch", "31"});
  too_long.push_back({"global-batch", "32"});
  CHECK(problem_of(fits, inputs).ok());
  const Result<Problem> p = problem_of(too_long, inputs);
  REQUIRE_FALSE(p.ok());
  CHECK(p.diagnostics.front().code == code::kData);
  CHECK(problem_of(fits, {}).ok());  // no data: preview and emit only
}

TEST_CASE("where nothing is said, a GPU without bf16 computes in fp16, and in fp32 under a trainer without fp16") {
  const auto compute = [](const Flags& flags) {
    const Result<Problem> problem = problem_of(flags);
    INFO(format_diagnostics(problem.diagnostics));
    REQUIRE(problem.ok());
    return std::pair(problem->base.precision.compute, fmt::format("{}", fmt::join(problem->base.assumptions, ", ")));
  };
  for (const char* gpu : {"t4", "v100_sxm_32"}) {
    const auto [type, said] = compute({{"model", "llama3.2_1b"}, {"gpu", gpu}, {"gpus", "1"}});
    CHECK(type == Dtype::kF16);
    CHECK(said.find("does not compute in bf16") != std::string::npos);
    CHECK(compute({{"model", "llama3.2_1b"}, {"gpu", gpu}, {"gpus", "1"}, {"trainer", "fsdp2"}}).first == Dtype::kF32);
    CHECK(compute({{"model", "llama3.2_1b"}, {"gpu", gpu}, {"gpus", "1"}, {"trainer", "unknown"}}).first == Dtype::kF16);
  }
  CHECK(compute({{"model", "llama3.2_1b"}, {"gpu", "l4"}, {"gpus", "1"}}).first == Dtype::kBf16);
}

TEST_CASE("a million tokens under TRL: a sequence split over ranks, head and loss in chunks of 256 tokens") {
  Flags flags = {{"model", "qwen3_8b"},
                 {"gpus", "8"},
                 {"nodes", "1"},
                 {"trainer", "fsdp2"},
                 {"code-base", "transformers"},
                 {"cp", "8"},
                 {"cp-method", "allgather"},
                 {"sequence-length", "1048576"},
                 {"micro-batch", "1"},
                 {"global-batch", "1"},
                 {"loss-head", "chunked"},
                 {"recompute", "full"},
                 {"offload-activations", "host"}};
  const Result<Problem> problem = problem_of(flags);
  INFO(format_diagnostics(problem.diagnostics));
  REQUIRE(problem.ok());
  CHECK(problem->trainer.label == "FSDP2 (Hugging Face Trainer)");
  CHECK(problem->cp == 8);
  CHECK(problem->setup.loss == LossHead::kChunkedHead);
  flags.push_back({"tp", "2"});  // the loss would find a part of the head: torchtitan's is planned, which has no such loss
  CHECK_FALSE(problem_of(flags).ok());
}

TEST_CASE("a GPU without machines of its own is assumed in those of the GPU that it is sold like") {
  const auto network = [](const char* gpu) {
    const Result<Problem> problem = problem_of({{"model", "8B"}, {"nodes", "2"}, {"gpu", gpu}});
    REQUIRE(problem.ok());
    return std::pair(problem->base.hardware.network_bytes_per_s, fmt::format("{}", fmt::join(problem->base.assumptions, ", ")));
  };
  for (const auto& [gpu, like] : {std::pair{"h800_sxm", "h100_sxm"},
                                  {"h20", "h100_sxm"},
                                  {"a800_sxm_80", "a100_sxm_80"},
                                  {"mi325x", "mi300x"},
                                  {"mi350x", "mi355x"}}) {
    INFO(gpu);
    CHECK(network(gpu).first == network(like).first);
    CHECK(network(gpu).second.find("Gb/s per GPU, as in ") != std::string::npos);
  }
}

TEST_CASE("CUDA graphs are refused by name where the host has a part in a micro-batch") {
  const Flags dense = {{"model", "1B"}, {"nodes", "1"}, {"cuda-graphs", "true"}};
  const Result<Problem> p = problem_of(dense);
  REQUIRE(p.ok());
  CHECK(p->base.train.cuda_graphs);
  for (const auto& [flag, text, why] : {std::tuple{"model", "mixtral_8x7b", "expert"},
                                        {"pp", "2", "stages"},
                                        {"gpu", "cpu", "CPU"},
                                        {"offload-optimizer", "host", "offloaded"},
                                        {"method", "dpo", "pairs"}}) {
    Flags flags = dense;
    if (std::string_view(flag) == "model")
      flags.front().second = text;
    else
      flags.emplace_back(flag, text);
    flags.emplace_back("trainer", "native");
    const Result<Problem> refused = problem_of(flags);
    INFO(flag << " " << text);
    REQUIRE_FALSE(refused.ok());
    CHECK(says(refused.diagnostics, why));
  }
  CHECK(says(problem_of({{"model", "1B"}, {"trainer", "fsdp2"}, {"cuda-graphs", "true"}}).diagnostics, "bundled trainer"));
}

TEST_CASE("gradients are reduced in two hops where that sends less, or where it is asked for") {
  const auto two_hops = [](Flags more) {
    Flags flags = {{"model", "1B"}, {"sharding", "zero3"}};
    flags.insert(flags.end(), more.begin(), more.end());
    const Result<Problem> p = problem_of(flags);
    REQUIRE(p.ok());
    const auto plan = make_plan(*p);
    REQUIRE(plan.ok());
    return plan->strategy.hierarchical_reduction;
  };
  CHECK_FALSE(two_hops({{"nodes", "1"}}));
  CHECK(two_hops({{"nodes", "2"}}));
  CHECK_FALSE(two_hops({{"nodes", "2"}, {"hierarchical-reduction", "false"}}));
  CHECK_FALSE(two_hops({{"nodes", "2"}, {"gpus", "2"}}));
  CHECK(two_hops({{"nodes", "2"}, {"gpus", "2"}, {"hierarchical-reduction", "true"}}));
}
