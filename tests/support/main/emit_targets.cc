// emit_targets FOLDER: what every target makes of a set of plans, one per strategy, for the tests of what is emitted.
//   FOLDER/<target>.txt              all of it as text, refusals too: tests/golden/targets compares
//   FOLDER/<target>/<plan>/...       the files as a user gets them, with --files: tests/integration/emit_parsers_all.sh reads them
// emit_targets --time: how long all targets together take for a plan of 1024 GPUs (tests/bench/README.md).
// The plans are made here and not searched, so that every axis is there whatever the planner of the day finds.
#include <fmt/format.h>

#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>

#include "codegen/emit.h"
#include "codegen/tables/table_cache.h"
#include "model/presets.h"
#include "plan/native_program.h"

using namespace distsetup;

namespace {

// As the planner fills it in: from presets/models.
Geometry model_of(const std::string& name) {
  static const Presets kPresets = *load_presets({});
  return *find_model(kPresets, name, {"command line", 0, 0});
}

// Sizes of the mesh; the data-parallel ranks are what is left of the GPUs.
struct Axes {
  int nodes = 2, pp = 1, dp_replicate = 1, cp = 1, tp = 1, ep = 1;
};

Plan make(const Geometry& model, Sharding sharding, const Axes& axes = {}, Recompute recompute = Recompute::kFull) {
  Plan p;
  p.verdict = Verdict::kFits;
  p.model = model;
  p.hardware.gpu = "h100_sxm";
  p.hardware.nodes = axes.nodes;
  p.hardware.gpus_per_node = 8;
  const int data_parallel = axes.nodes * 8 / (axes.pp * axes.cp * axes.tp);
  p.mesh.pp = axes.pp;
  p.mesh.cp = axes.cp;
  p.mesh.tp = axes.tp;
  p.mesh.ep = axes.ep;
  p.mesh.dp_replicate = sharding == Sharding::kDdp ? data_parallel : axes.dp_replicate;
  p.mesh.dp_shard = sharding == Sharding::kDdp ? 1 : data_parallel / axes.dp_replicate;
  p.strategy.sharding = sharding;
  p.strategy.sequence_parallel = axes.tp > 1;
  p.micro_batch = 2;
  p.gradient_accumulation = 4;
  p.recompute = {recompute, 0, {}};
  p.precision.compute = Dtype::kBf16;
  p.train.sequence_length = 4096;
  p.train.global_batch = p.micro_batch * p.gradient_accumulation * data_parallel;
  p.inputs_digest = std::string(64, 'a');
  return p;
}

template <class Change>
Plan with(Plan plan, Change change) {
  change(plan);
  return plan;
}

std::map<std::string, Plan> plans() {
  const Geometry dense = model_of("llama3_8b"), experts = model_of("qwen3_30b_a3b");
  const Plan zero3 = make(dense, Sharding::kZero3);
  const auto offload = [](Plan plan, OffloadPlace optimizer, OffloadPlace parameters) {
    plan.offload.optimizer = optimizer;
    plan.offload.parameters = parameters;
    return plan;
  };
  return {
      {"ddp", make(dense, Sharding::kDdp)},
      {"zero1", make(dense, Sharding::kZero1)},
      {"zero2", make(dense, Sharding::kZero2)},
      {"zero3", zero3},
      {"zero3_one_node", make(dense, Sharding::kZero3, {.nodes = 1})},
      {"zero3_kept", with(zero3, [](Plan& p) { p.strategy.reshard_after_forward = false; })},
      {"hybrid", make(dense, Sharding::kZero3, {.dp_replicate = 2})},
      {"hybrid_no_clip", with(make(dense, Sharding::kZero3, {.dp_replicate = 2}), [](Plan& p) { p.train.grad_clip = 0; })},
      {"zero1_hybrid", make(dense, Sharding::kZero1, {.dp_replicate = 2})},
      {"offload", offload(zero3, OffloadPlace::kHost, OffloadPlace::kHost)},
      {"offload_optimizer", offload(make(dense, Sharding::kZero2), OffloadPlace::kHost, OffloadPlace::kNone)},
      {"offload_nvme", offload(zero3, OffloadPlace::kNvme, OffloadPlace::kNvme)},
      {"offload_activations", with(zero3, [](Plan& p) { p.offload.activations = OffloadPlace::kHost; })},
      {"recompute_none", make(dense, Sharding::kZero3, {}, Recompute::kNone)},
      {"recompute_selective", make(dense, Sharding::kZero3, {}, Recompute::kSelective)},
      {"recompute_every_2", with(make(dense, Sharding::kZero3, {}, Recompute::kEveryK), [](Plan& p) { p.recompute.every_k = 2; })},
      {"fp32", with(zero3, [](Plan& p) { p.precision.compute = Dtype::kF32; })},
      {"dpo", with(zero3, [](Plan& p) { p.train.method = "dpo"; })},
      {"dpo_one_node", with(make(dense, Sharding::kZero3, {.nodes = 1}), [](Plan& p) { p.train.method = "dpo"; })},
      {"sft", with(zero3, [](Plan& p) { p.train.method = "sft"; })},
      {"tp", make(dense, Sharding::kZero3, {.tp = 4})},
      {"tp_zero1", make(dense, Sharding::kZero1, {.tp = 4})},
      {"cp", make(dense, Sharding::kZero3, {.cp = 2})},
      {"pp", make(dense, Sharding::kZero3, {.pp = 2})},
      {"pp_tp", with(make(dense, Sharding::kZero1, {.nodes = 4, .pp = 4, .tp = 2}), [](Plan& p) { p.strategy.virtual_stages = 2; })},
      {"ep", make(experts, Sharding::kZero3, {.ep = 8})},
      {"ep_zero1", make(experts, Sharding::kZero1, {.ep = 8})},
      {"lora", with(make(dense, Sharding::kZero2),
                    [](Plan& p) {
                      p.train.method = "sft";
                      p.train.finetune = "lora";
                      p.train.lora_alpha = 24;
                      p.train.lora_dropout = 0.05;
                      p.train.lora_rank = 16;
                      p.train.lora_targets = {"query", "value"};
                    })},
      {"cpu", with(make(dense, Sharding::kZero3, {.nodes = 1}), [](Plan& p) { p.hardware.accelerator = Accelerator::kCpu; })},
  };
}

EmitOptions options() {
  EmitOptions options;
  options.nvme_path = "/local/scratch";
  options.command = "distsetup emit";
  return options;
}

// Scripts are printed for one plan per kind; where the configuration is in the script, for all.
bool is_printed(const Artifact& artifact, const Artifacts& all, const std::string& plan) {
  if (artifact.path == "plan.json") return false;
  return !artifact.executable || all.size() <= 2 || plan == "zero3" || plan == "zero3_one_node";
}

std::string as_text(const Result<Artifacts>& emitted, const std::string& plan) {
  std::string out = "================ " + plan + "\n";
  for (const Diagnostic& d : emitted.diagnostics)
    out += fmt::format("{}: {}\n  help: {}\n", d.severity == Severity::kError ? "refused" : "said", d.message, d.help);
  if (!emitted.ok()) return out;
  for (const Artifact& artifact : *emitted) {
    if (is_printed(artifact, *emitted, plan)) out += "---------------- " + artifact.path + "\n" + artifact.text;
  }
  return out;
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

// The targets that write a trainer's own configuration. Those that start the bundled trainer have tests of their own.
const std::vector<std::string> kTrainers = {"accelerate-deepspeed",
                                            "accelerate-fsdp1",
                                            "accelerate-fsdp2",
                                            "automodel",
                                            "axolotl",
                                            "deepspeed",
                                            "deepspeed-hf",
                                            "fine-tuning",
                                            "fsdp",
                                            "lightning",
                                            "llama-stack",
                                            "llama-stack-inline",
                                            "llamafactory",
                                            "megatron-bridge",
                                            "megatron-lm",
                                            "openrlhf",
                                            "torchtitan",
                                            "torchtitan-0.2",
                                            "training-stages",
                                            "transformers",
                                            "trl"};

int emit_all(const std::filesystem::path& folder, bool files) {
  const EmitOptions emit_options = options();
  for (const std::string& target : kTrainers) {
    std::string text;
    for (const auto& [name, plan] : plans()) {
      const Result<Artifacts> emitted = emit(&plan, target, emit_options);
      text += as_text(emitted, name);
      if (!files || !emitted.ok()) continue;
      for (const Artifact& artifact : *emitted) write(folder / target / name / artifact.path, artifact.text);
    }
    write(folder / (target + ".txt"), text);
  }
  return 0;
}

// Processor time (what other programs take is not counted) of the fastest of 20 rounds over all targets; what a target refuses counts
// too.
int measure() {
  Plan plan = make(model_of("llama3_8b"), Sharding::kZero3, {.nodes = 128});
  plan.micro_batch = 1;
  const std::vector<std::string> targets = target_names(embedded_templates());
  double best_ms = 1e9;
  size_t bytes = 0;
  for (int round = 0; round < 20; ++round) {
    const std::clock_t start = std::clock();
    bytes = 0;
    EmitOptions emit_options = options();
    emit_options.templates = {embedded_templates().files, std::make_shared<TableCache>()};  // as a program that has just started
    for (const std::string& target : targets) {
      const Result<Artifacts> emitted = emit(&plan, target, emit_options);
      if (!emitted.ok()) continue;
      for (const Artifact& artifact : *emitted) bytes += artifact.text.size();
    }
    best_ms = std::min(best_ms, 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
#ifdef NDEBUG
  constexpr double kMostMs = 50;
#else
  constexpr double kMostMs = 2500;  // not optimised, with sanitizers: says only that nothing has gone wild
#endif
  fmt::print("{} targets, 1024 GPUs: {:.1f} ms of processor time, at most {:.0f}; {} bytes\n", targets.size(), best_ms, kMostMs,
             bytes);
  return best_ms <= kMostMs ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--time") == 0) return measure();
  const bool files = argc == 3 && std::strcmp(argv[2], "--files") == 0;
  if (argc != 2 && !files) {
    std::cerr << "usage: emit_targets FOLDER [--files] | --time\n";
    return 2;
  }
  return emit_all(argv[1], files);
}
