// What a trainer cannot run, named. The rules are those of the frameworks themselves: Megatron-LM megatron/training/arguments.py and
// megatron/core/parallel_state.py, DeepSpeed runtime/engine.py and runtime/pipe/engine.py, PyTorch torch/distributed/fsdp.
// Leaves out what only memory or time decides, and rules of data and launchers.
#include "planner/frameworks/validate.h"

#include <fmt/format.h>

#include "base/diagnostic_codes.h"
#include "model/parallel_rules.h"
#include "planner/frameworks/lifetimes.h"
#include "planner/replay/built_in_programs.h"
#include "planner/replay/program_file.h"

namespace distsetup {
namespace {

struct SetupRules {
  const Setup& s;
  Diagnostics said = {};

  void unsupported(std::string message, std::string help) {
    said.push_back(error(code::kUnsupportedFeature, {}, std::move(message), std::move(help)));
  }
  void divides(std::string_view what, int64_t number, const char* by, int64_t parts) {
    if (parts > 0 && number % parts == 0) return;
    said.push_back(error(code::kIndivisible, {}, fmt::format("{} = {} does not divide by {} = {}", what, number, by, parts)));
  }

  void mesh() {
    const Geometry& g = s.model;
    for (const UnevenSplit& uneven : uneven_over_tensor_ranks(g, s.tp, KvHeads::kCopied))
      divides(uneven.what, uneven.number, "tp", s.tp);
    divides("sequence length", s.sequence_length, "cp", s.cp);
    if (s.ep > 1) {
      divides("experts", g.num_experts, "ep", s.ep);
      // Experts take their ranks from all that a stage has; copies of a sharded optimizer each need whole groups of experts.
      const bool copies = s.sharding == Sharding::kDdp;
      divides(copies ? "dp x cp x tp" : "dp_shard x cp x tp", int64_t{copies ? s.dp_replicate : 1} * s.dp_shard * s.cp * s.tp,
              "ep x expert_tp", int64_t{s.ep} * s.expert_tp);
    }
    if (int64_t{s.pp} * s.virtual_stages > g.num_layers) {
      unsupported(fmt::format("pp x virtual stages = {} are more than the {} layers", s.pp * s.virtual_stages, g.num_layers),
                  "set a smaller pp");
    }
    if (s.virtual_stages > 1 && s.pp == 1) unsupported("virtual stages without a pipeline", "set pp above 1, or virtual_stages to 1");
    if (s.cp > 1 && s.cp_method == CpMethod::kUlysses) divides("heads / tp", g.num_heads / s.tp, "cp", s.cp);
  }

  void framework() {
    const FrameworkTraits& t = s.traits();
    const std::string_view name = t.label;
    if (s.pp > 1 && !t.pipelines) unsupported(fmt::format("{} has no pipelines, found pp = {}", name, s.pp), "set pp to 1");
    if (s.tp > 1 && !t.tensor_parallel)
      unsupported(fmt::format("{} has no tensor parallelism, found tp = {}", name, s.tp), "set tp to 1");
    if (s.ep > 1 && !t.expert_parallel)
      unsupported(fmt::format("{} is planned without expert parallelism, found ep = {}", name, s.ep), "set ep to 1");
    if (s.ep > 1 && t.experts_borrow_tensor_ranks) divides("ep", s.ep, "cp x tp", int64_t{s.cp} * s.tp);
    if (s.hpz > 1 && (!t.second_copies || s.sharding != Sharding::kZero3))
      unsupported(fmt::format("a second copy of the parameters (hpZ) is DeepSpeed's stage 3, found hpz = {}", s.hpz), "set hpz to 1");
    if (s.hpz > 1) divides("dp_shard x cp", int64_t{s.dp_shard} * s.cp, "hpz", s.hpz);
    if (s.virtual_stages > 1 && t.pipelines && !t.interleaved_pipelines)
      unsupported(fmt::format("{}'s pipelines do not interleave", name), "set virtual_stages to 1");
    if (!t.pipelines_split_gradients && s.pp > 1 && (s.sharding == Sharding::kZero2 || s.sharding == Sharding::kZero3)) {
      unsupported(fmt::format("{}'s pipelines take stage 0 or 1, found a stage that splits gradients", name),
                  "set sharding to zero1, or pp to 1");
    }
    if (t.accumulation_fills_pipeline && s.virtual_stages > 1 && s.gradient_accumulation % s.pp != 0)
      divides("accumulation", s.gradient_accumulation, "pp", s.pp);
    if (s.offload.parameters != OffloadPlace::kNone && !t.offloads_parameters)
      unsupported(fmt::format("{} does not offload parameters", name), "set offload.parameters to none");
    if (t.zero_stages_of_offload) stages_of_offload(name);
    // FSDP moves the shards of its units: whole copies stay where they are.
    if (s.offload.parameters != OffloadPlace::kNone && !t.zero_stages_of_offload && s.sharding == Sharding::kDdp && s.world() > 1)
      unsupported(fmt::format("{} offloads what it splits, found ddp", name), "set sharding to zero3, or offload.parameters to none");
    if (s.recompute == ActivationRecompute::kOpSelective && !t.recomputes_operations) {
      unsupported(fmt::format("{} does not recompute by operation", name), "set recompute to none or full");
    }
    for (const std::string& module : s.recompute_modules) {
      if (!t.recompute_modules)
        unsupported(fmt::format("{} has no recompute modules, found '{}'", name, module), "set recompute instead");
      if (t.recompute_modules && t.lifetime_programs && recompute_module(module) == 0) {
        unsupported(fmt::format("unknown recompute module '{}'", module),
                    "expected core_attn, layernorm, mla_up_proj, mlp, moe, moe_act or shared_experts");
      }
    }
  }

  void stages_of_offload(std::string_view name) {
    if (s.offload.parameters != OffloadPlace::kNone && s.sharding != Sharding::kZero3)
      unsupported(fmt::format("{} offloads parameters under zero3 alone", name),
                  "set sharding to zero3, or offload.parameters to none");
    if (s.offload.optimizer != OffloadPlace::kNone && s.sharding == Sharding::kDdp)
      unsupported(fmt::format("{} offloads the optimizer from stage 1 on, found stage 0", name),
                  "set sharding to zero1, zero2 or zero3");
    if (s.offload.optimizer_ratio < 1 && s.sharding != Sharding::kZero3)
      unsupported(fmt::format("{} moves a part of the optimizer in stage 3 alone", name),
                  "set sharding to zero3, or offload.optimizer_ratio to 1");
    if (s.offload.optimizer == OffloadPlace::kNvme && s.sharding != Sharding::kZero3) {
      unsupported(fmt::format("{} sends optimizer state to NVMe in stage 3 alone", name),
                  "set sharding to zero3, or offload.optimizer to host");
    }
  }

  void types() {
    if (s.compute == Dtype::kF8 && s.gpu.peak_fp8_flops_per_s <= 0 && !s.gpu.name.empty()) {
      unsupported(fmt::format("'{}' has no fp8", s.gpu.name), "set precision.compute to bf16");
    }
    const bool listed = lifetime_program(s.program) != nullptr || s.own_program || replay::find_program(s.program) != nullptr;
    if (!listed) {
      said.push_back(error(code::kUnknownProgram, {}, fmt::format("unknown program '{}'", s.program), "name one of presets/programs"));
    }
    const LifetimeProgram* program = s.traits().lifetime_programs ? lifetime_program(s.program) : nullptr;
    const std::string_view missing = program != nullptr ? missing_part(*program, s.model) : "";
    if (!missing.empty()) unsupported(fmt::format("program '{}' has no {}", s.program, missing), "set trainer.program to megatron_te");
  }
};

}  // namespace

Diagnostics validate(const Setup& setup) {
  SetupRules rules{setup};
  rules.mesh();
  rules.framework();
  rules.types();
  return std::move(rules.said);
}

}  // namespace distsetup
