// The order of a domain is a preference: of two values that explain a file equally well, the first is read.
#include "codegen/read/domains.h"

#include <algorithm>
#include <map>
#include <set>

#include "codegen/read/settings.h"

namespace distsetup {
namespace {

const std::map<std::string, std::vector<std::string>, std::less<>>& known_domains() {
  static const std::map<std::string, std::vector<std::string>, std::less<>> kDomains = {
      {"strategy.sharding", {"ddp", "zero1", "zero2", "zero3"}},
      {"strategy.reshard_after_forward", {"true", "false"}},
      {"precision.compute", {"bf16", "fp32", "fp16"}},
      {"recompute.policy", {"none", "full", "selective", "every_k", "keep_attention"}},
      {"offload.optimizer", {"none", "host", "nvme"}},
      {"offload.parameters", {"none", "host", "nvme"}},
      {"offload.activations", {"none", "host", "nvme"}},
      {"hardware.accelerator", {"cuda", "cpu"}},
      {"derived.hybrid", {"false", "true"}},
      {"derived.model_parallel", {"false", "true"}},
      {"derived.single_node", {"true", "false"}},
      {"derived.source", {"plan", "options"}},
      {"derived.momentum", {"false", "true"}},
      {"derived.nvme", {"false", "true"}},
      {"derived.several_axes", {"false", "true"}},
      {"derived.shard_is_node", {"true", "false"}},
      {"derived.engine", {"ddp", "deepspeed", "fsdp"}},
      {"derived.lightning", {"ddp", "deepspeed", "fsdp"}},
      {"strategy.sequence_parallel", {"false", "true"}},
      {"strategy.cp_method", {"ring", "ulysses", "allgather"}},
      {"derived.zero_stage", {"0", "1", "2", "3"}},
      {"derived.offload", {"none", "both", "optimizer", "parameters"}},
      {"train.finetune", {std::string(kAnyOther), "full", "lora", "qlora"}},
      {"options.fsdp_version", {"2", "1"}},
      {"options.checkpoint", {"sharded", "full", "local"}},
      {"options.classic", {std::string(kAnyOther)}},  // which command writes the file: no file says it
  };
  return kDomains;
}

void add_once(std::vector<std::string>& list, const std::string& text) {
  if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
}

template <class Visit>
void for_each_condition(const KeyTable& table, const Visit& visit) {
  for (const KeyRow& row : table.rows) {
    for (const FieldCondition* condition : {&row.when, &row.unless}) {
      for (const auto& [field, texts] : *condition) visit(row.key, field, texts);
    }
  }
  for (const ReadRow& row : table.reads) {
    for (const FieldCondition* condition : {&row.when, &row.unless}) {
      for (const auto& [field, texts] : *condition) visit(row.key, field, texts);
    }
  }
}

}  // namespace

// Fields that say how a file is written, not what is trained: tried out, and not carried.
bool is_hidden(const std::string& field) {
  static const std::set<std::string> kCarried = {"derived.zero_stage",
                                                 "derived.offload",
                                                 "derived.hybrid",
                                                 "derived.world",
                                                 "derived.one_process",
                                                 "derived.pipeline_batch",
                                                 "derived.save_interval",
                                                 "derived.warmup_ratio",
                                                 "derived.lr_decay_ratio",
                                                 "derived.betas",
                                                 "derived.mesh_2d",
                                                 "derived.positive_seed",
                                                 "derived.timeout_minutes",
                                                 "derived.min_learning_rate_factor",
                                                 "derived.lora_alpha_factor",
                                                 "derived.epochs",
                                                 "derived.epoch_micro_batches",
                                                 "derived.samples",
                                                 "derived.train_samples",
                                                 "derived.warmup_samples",
                                                 "derived.data_paths",
                                                 "derived.data_epochs",
                                                 "derived.sources",
                                                 "derived.source_weights",
                                                 "derived.tokenizer",
                                                 "derived.chat_template",
                                                 "derived.packing",
                                                 "derived.attention",
                                                 "derived.code_base",
                                                 "derived.prompt_format",
                                                 "derived.synthetic",
                                                 "derived.held_out",
                                                 "derived.layers_per_virtual_stage",
                                                 "derived.learned_positions",
                                                 "derived.expert_factor",
                                                 "derived.feed_forward_factor"};
  return field.starts_with("derived.") && !field.starts_with(kSourceField) && kCarried.count(field) == 0;
}

std::vector<ReadVariable> read_variables(const KeyTable& table) {
  std::map<std::string, std::vector<std::string>> mentioned;
  for_each_condition(table, [&](const std::string&, const std::string& field, const std::vector<std::string>& texts) {
    for (const std::string& text : texts) add_once(mentioned[field], text);
  });
  std::vector<ReadVariable> variables;
  for (const auto& [field, texts] : mentioned) {
    ReadVariable variable{field, {}};
    const auto known = known_domains().find(field);
    if (known != known_domains().end()) {
      variable.domain = known->second;
    } else {
      variable.domain.emplace_back(kAnyOther);
    }
    const bool is_only_written = known != known_domains().end() && variable.domain[0] == kAnyOther;
    for (const std::string& text : texts) {
      if (!is_only_written) add_once(variable.domain, text);
    }
    variables.push_back(std::move(variable));
  }
  return variables;
}

const std::vector<std::pair<std::string, std::string>>& dependent_fields() {
  static const std::vector<std::pair<std::string, std::string>> kPairs = {
      {"strategy.sharding", "derived.zero_stage"}, {"strategy.sharding", "derived.hybrid"},
      {"derived.zero_stage", "derived.hybrid"},    {"derived.offload", "offload.optimizer"},
      {"derived.offload", "offload.parameters"},   {"derived.nvme", "offload.optimizer"},
      {"derived.nvme", "offload.parameters"},      {"derived.engine", "strategy.sharding"},
      {"derived.lightning", "strategy.sharding"}};
  return kPairs;
}

}  // namespace distsetup
