// Reading sizes off Megatron's arguments, torchtitan's TOML, accelerate's mesh, plan.json and Automodel's section.
#include "codegen/lint/plan_sizes.h"

#include <algorithm>
#include <array>

#include "codegen/lint/caller_values.h"
#include "codegen/lint/megatron.h"

namespace distsetup::lint {
namespace {

struct Alias {
  std::string_view name, there;
};

Sizes from_tree(const Document& d, std::string format, const std::vector<Alias>& aliases) {
  Sizes out(d, std::move(format));
  for (const Alias& one : aliases) {
    const TreeNode at = node(d.root, one.there);
    if (!at) continue;
    if (const auto n = real_of(*at.value)) out.put(one.name, *n, value_span(d, *at.value));
  }
  return out;
}

Sizes from_megatron(const Document& d, const ScriptPart& part, const LaunchLine& line, const LaunchStage& run) {
  static constexpr std::array<Alias, 16> kAliases = {{{"tp", "tensor_model_parallel_size"},
                                                      {"pp", "pipeline_model_parallel_size"},
                                                      {"cp", "context_parallel_size"},
                                                      {"ep", "expert_model_parallel_size"},
                                                      {"micro", "micro_batch_size"},
                                                      {"global", "global_batch_size"},
                                                      {"heads", "num_attention_heads"},
                                                      {"kv_heads", "num_query_groups"},
                                                      {"layers", "num_layers"},
                                                      {"sequence", "seq_length"},
                                                      {"experts", "num_experts"},
                                                      {"hidden", "hidden_size"},
                                                      {"save_every", "save_interval"},
                                                      {"chunk_layers", "num_layers_per_virtual_pipeline_stage"},
                                                      {"chunks", "num_virtual_stages_per_pipeline_rank"},
                                                      {"steps", "train_iters"}}};
  constexpr const char* kStays = "the sizes stay as they are here";
  Sizes out(d, "megatron");
  out.doubt = doubt_of_megatron(run);
  for (const Alias& one : kAliases) {
    const LaunchOption* option = run.find(one.there);
    if (option == nullptr) continue;
    if (const auto n = number(option->value)) out.put(one.name, static_cast<double>(*n), option->span);
    if (out.doubt.empty() && comes_from_caller(d, part.script, *option)) out.doubt = kStays;
  }
  out.doubt_of_ranks = out.doubt;
  if (const LaunchStage* launcher = line.find(LaunchProgram::kTorchrun)) {
    for (const char* name : {"nnodes", "nproc_per_node"}) {
      const LaunchOption* option = launcher->find(name);
      if (option != nullptr && comes_from_caller(d, part.script, *option)) out.doubt_of_ranks = kStays;
    }
  }
  return out;
}

// Of a fork, which may take other sizes, too: one section could be a slip.
bool has_sections_of_others(const Document& d) {
  const auto is_others = [&d](const auto& entry) {
    return entry.second.kind == Value::Kind::kMap &&
           std::find(d.kind->keys.begin(), d.kind->keys.end(), entry.first) == d.kind->keys.end();
  };
  return std::count_if(d.root.entries.begin(), d.root.entries.end(), is_others) > 1;
}

}  // namespace

std::vector<Sizes> sizes_of(const Document& d) {
  std::vector<Sizes> out;
  if (d.is(file_kind::kTorchtitan)) {
    out.push_back(from_tree(d, "torchtitan",
                            {{"tp", "parallelism.tensor_parallel_degree"},
                             {"pp", "parallelism.pipeline_parallel_degree"},
                             {"cp", "parallelism.context_parallel_degree"},
                             {"ep", "parallelism.expert_parallel_degree"},
                             {"dp_replicate", "parallelism.data_parallel_replicate_degree"},
                             {"dp_shard", "parallelism.data_parallel_shard_degree"},
                             {"micro", "training.local_batch_size"},
                             {"global", "training.global_batch_size"},
                             {"sequence", "training.seq_len"},
                             {"steps", "training.steps"},
                             {"save_every", "checkpoint.interval"}}));
    if (has_sections_of_others(d)) out.back().doubt = "the program that reads the file is torchtitan's own";
  }
  if (d.is(file_kind::kPlan)) {
    out.push_back(from_tree(d, "plan",
                            {{"tp", "mesh.tp"},
                             {"pp", "mesh.pp"},
                             {"cp", "mesh.cp"},
                             {"ep", "mesh.ep"},
                             {"dp_replicate", "mesh.dp_replicate"},
                             {"dp_shard", "mesh.dp_shard"},
                             {"micro", "micro_batch"},
                             {"accumulation", "gradient_accumulation"},
                             {"global", "train.global_batch"},
                             {"heads", "model.num_heads"},
                             {"kv_heads", "model.num_kv_heads"},
                             {"layers", "model.num_layers"},
                             {"hidden", "model.hidden"},
                             {"sequence", "train.sequence_length"},
                             {"steps", "train.steps"}}));
    if (const auto n = real(d.root, "model.num_experts"); n && *n > 0)
      out.back().put("experts", *n, value_span(d, *node(d.root, "model.num_experts").value));
    if (const auto n = real(d.root, "checkpoint.every_steps"); n && *n > 0) out.back().put("save_every", *n, {});
  }
  if (d.is(file_kind::kAccelerate)) {
    out.push_back(from_tree(d, "accelerate",
                            {{"tp", "parallelism_config.parallelism_config_tp_size"},
                             {"cp", "parallelism_config.parallelism_config_cp_size"},
                             {"dp_replicate", "parallelism_config.parallelism_config_dp_replicate_size"},
                             {"dp_shard", "parallelism_config.parallelism_config_dp_shard_size"}}));
  }
  if (d.is(file_kind::kAutomodel)) {
    out.push_back(from_tree(
        d, "automodel",
        {{"tp", "distributed.tp_size"}, {"pp", "distributed.pp_size"}, {"cp", "distributed.cp_size"}, {"ep", "distributed.ep_size"}}));
  }
  for (const ScriptPart& part : d.parts) {
    for (const LaunchLine& line : part.lines) {
      const LaunchStage* run = line.find(LaunchProgram::kScript);
      if (run != nullptr && is_megatron(*run)) out.push_back(from_megatron(d, part, line, *run));
    }
  }
  return out;
}

}  // namespace distsetup::lint
