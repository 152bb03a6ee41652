#include "codegen/read/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/quantity.h"
#include "base/text.h"
#include "codegen/shell/launch_line.h"
#include "codegen/tables/fields.h"

namespace distsetup {
namespace {

struct FieldPath {
  std::string_view field, path;
};

// Fields whose text is the setting's text.
constexpr std::array<FieldPath, 89> kPaths = {{{"strategy.trainer", "trainer.name"},
                                               {"hardware.gpu", "hardware.gpu"},
                                               {"strategy.cp_method", "parallel.cp_method"},
                                               {"strategy.sequence_parallel", "parallel.sequence_parallel"},
                                               {"strategy.virtual_stages", "parallel.virtual_stages"},
                                               {"strategy.hpz", "parallel.hpz"},
                                               {"strategy.loss_head", "trainer.loss_head"},
                                               {"train.finetune", "train.finetune"},
                                               {"train.lora_rank", "train.lora_rank"},
                                               {"train.lora_targets", "train.lora_targets"},
                                               {"hardware.gpu", "hardware.gpu"},
                                               {"hardware.nodes", "hardware.nodes"},
                                               {"hardware.gpus_per_node", "hardware.gpus_per_node"},
                                               {"train.method", "train.method"},
                                               {"train.sequence_length", "train.sequence_length"},
                                               {"train.global_batch", "train.global_batch"},
                                               {"train.steps", "train.steps"},
                                               {"train.optimizer", "train.optimizer"},
                                               {"train.learning_rate", "train.learning_rate"},
                                               {"train.min_learning_rate", "train.min_learning_rate"},
                                               {"train.warmup_steps", "train.warmup_steps"},
                                               {"train.lr_schedule", "train.lr_schedule"},
                                               {"train.lr_decay_steps", "train.lr_decay_steps"},
                                               {"train.lr_decay_factor", "train.lr_decay_factor"},
                                               {"derived.warmup_ratio", "train.warmup_ratio"},
                                               {"train.weight_decay", "train.weight_decay"},
                                               {"train.beta1", "train.beta1"},
                                               {"train.beta2", "train.beta2"},
                                               {"train.epsilon", "train.epsilon"},
                                               {"train.grad_clip", "train.grad_clip"},
                                               {"train.seed", "train.seed"},
                                               {"strategy.sharding", "parallel.sharding"},
                                               {"strategy.reshard_after_forward", "parallel.reshard_after_forward"},
                                               {"mesh.dp_replicate", "parallel.dp_replicate"},
                                               {"mesh.dp_shard", "parallel.dp_shard"},
                                               {"mesh.cp", "parallel.cp"},
                                               {"mesh.tp", "parallel.tp"},
                                               {"mesh.pp", "parallel.pp"},
                                               {"mesh.ep", "parallel.ep"},
                                               {"micro_batch", "parallel.micro_batch"},
                                               {"gradient_accumulation", "parallel.gradient_accumulation"},
                                               {"strategy.sync_each_batch", "parallel.sync_each_batch"},
                                               {"strategy.auto_wrap_policy", "parallel.auto_wrap_policy"},
                                               {"strategy.backward_prefetch", "parallel.backward_prefetch"},
                                               {"strategy.overlap_grad_reduce", "parallel.overlap_grad_reduce"},
                                               {"strategy.overlap_param_gather", "parallel.overlap_param_gather"},
                                               {"recompute.policy", "parallel.recompute"},
                                               {"offload.optimizer", "parallel.offload.optimizer"},
                                               {"offload.optimizer_ratio", "parallel.offload.optimizer_ratio"},
                                               {"offload.pin_memory", "parallel.offload.pin_memory"},
                                               {"offload.parameters", "parallel.offload.parameters"},
                                               {"offload.activations", "parallel.offload.activations"},
                                               {"precision.compute", "precision.compute"},
                                               {"precision.loss_scale", "precision.loss_scale"},
                                               {"precision.initial_scale_power", "precision.initial_scale_power"},
                                               {"precision.loss_scale_window", "precision.loss_scale_window"},
                                               {"precision.hysteresis", "precision.hysteresis"},
                                               {"precision.min_loss_scale", "precision.min_loss_scale"},
                                               {"precision.reduce", "precision.reduce"},
                                               {"precision.master", "precision.master"},
                                               {"precision.optimizer_state", "precision.optimizer_state"},
                                               {"checkpoint.directory", "checkpoint.directory"},
                                               {"checkpoint.every_steps", "checkpoint.every_steps"},
                                               {"checkpoint.keep", "checkpoint.keep"},
                                               {"checkpoint.keep_every", "checkpoint.keep_every"},
                                               {"checkpoint.keep_best", "checkpoint.keep_best"},
                                               {"checkpoint.metric", "checkpoint.metric"},
                                               {"checkpoint.async", "checkpoint.async"},
                                               {"train.evaluate_every", "train.evaluate_every"},
                                               {"train.patience", "train.patience"},
                                               {"job.time_limit", "launch.time_limit"},
                                               {"derived.data_paths", "data.paths"},
                                               {"derived.data_epochs", "train.epochs"},
                                               {"derived.sources", "data.sources"},
                                               {"derived.source_weights", "data.weights"},
                                               {"derived.tokenizer", "data.tokenizer"},
                                               {"derived.chat_template", "data.template"},
                                               {"derived.prompt_format", "data.prompt_format"},
                                               {"derived.synthetic", "data.synthetic"},
                                               {"derived.packing", "data.packing"},
                                               {"derived.attention", "trainer.attention"},
                                               {"derived.code_base", "trainer.code_base"},
                                               {"derived.held_out", "data.held_out"},
                                               {"train.lora_alpha", "adapter.alpha"},
                                               {"train.lora_dropout", "adapter.dropout"},
                                               {"train.rslora", "adapter.rslora"},
                                               {"strategy.compile", "trainer.compile"},
                                               {"launch.target", "launch.target"},
                                               {"derived.world", "hardware.total_gpus"}}};
// In seconds.
constexpr std::array<FieldPath, 3> kSeconds = {{{"launch.time_limit_s", "launch.time_limit"},
                                                {"launch.init_timeout_s", "launch.init_timeout"},
                                                {"launch.collective_timeout_s", "launch.collective_timeout"}}};

// SLURM adds up what stands between the colons, however much: 00:60:00 is an hour (sbatch 22.05.8, run on 2026-11-28).
std::string clock_text(const std::string& text) {
  if (parse_duration_s(text, {}).ok()) return text;
  const size_t dash = text.find('-');
  const std::string days = dash == std::string::npos ? "" : text.substr(0, dash);
  int64_t seconds = 0;
  size_t num_parts = 0;
  for (const std::string& part : split(text.substr(dash == std::string::npos ? 0 : dash + 1), ':')) {
    const auto n = foreign::number(part);
    if (!n || *n < 0 || *n > 1'000'000'000) return text;
    seconds = seconds * 60 + *n;
    ++num_parts;
  }
  const auto all = days.empty() ? std::optional<long long>(0) : foreign::number(days);
  if (num_parts != 3 || !all || *all < 0 || *all > 1'000'000) return text;
  return std::to_string(*all * 86400 + seconds) + "s";
}

// sbatch --time: minutes, minutes:seconds, h:m:s, days-hours, days-hours:minutes, days-hours:minutes:seconds (man page of sbatch).
std::string duration_text(const std::string& text) {
  const size_t dash = text.find('-');
  const auto colons = std::count(text.begin(), text.end(), ':');
  const bool is_number = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (is_number) return text + "m";
  if (dash == std::string::npos) return clock_text(colons == 1 ? "0:" + text : text);
  if (colons == 0) return clock_text(text + ":00:00");
  return clock_text(colons == 1 ? text + ":00" : text);
}

// SLURM's words for it, in any case (src/common/parse_time.c, time_str2mins); so is 0 (man page of sbatch, --time).
bool is_no_limit(const std::string& text) {
  return same_name(text, "infinite") || same_name(text, "unlimited") || text == "-1" || text == "0";
}

}  // namespace

ReadSettings settings_of(const ReadFields& fields) {
  ReadSettings out;
  const bool is_hybrid = text_of(fields, "derived.hybrid") == "true";
  for (const auto& [field, read] : fields) {
    const auto is_field = [&name = field](const FieldPath& one) { return one.field == name; };
    const auto add = [&out, &one = read](std::string path, std::string text) {
      out.settings.push_back({std::move(path), std::move(text), one.key, one.at, one.is_assumed});
    };
    if (field == "job.time_limit" && is_no_limit(field_text(read.value))) continue;
    if (field == "options.half_of_gpu" || field == "options.fsdp_version") continue;  // the trainer says which
    // Left open a run computes in just that.
    if (field == "precision.compute" && read.is_assumed && fields.count("options.half_of_gpu") != 0) continue;
    if (field == "train.lora_targets" && read.value == "all-linear") continue;            // as a plan has them where nothing is said
    if (field == "strategy.compile" && text_of(fields, "strategy.trainer") != "fsdp2") {  // the others are planned without it
      if (read.value == true) out.lost.push_back({read.key, "true", "a plan of this trainer is without torch.compile", read.at});
      continue;
    }
    if (field == "options.preference_beta" && text_of(fields, "train.method") == "dpo") {  // of others it is another number
      add("train.beta", field_text(read.value));
      continue;
    }
    if (const auto it = std::find_if(kPaths.begin(), kPaths.end(), is_field); it != kPaths.end()) {
      std::string text = field_text(read.value);
      if (field == "recompute.policy" && text == "every_k")
        text += ":" + (fields.count("recompute.every_k") == 0 ? std::string("1") : text_of(fields, "recompute.every_k"));
      if (field == "strategy.sharding" && is_hybrid && (text == "zero3" || text == "zero2"))
        text = text == "zero3" ? "hybrid_shard" : "hybrid_shard_zero2";
      if (field == "job.time_limit") text = duration_text(text);
      add(std::string(it->path), std::move(text));
    } else if (const auto seconds = std::find_if(kSeconds.begin(), kSeconds.end(), is_field); seconds != kSeconds.end()) {
      add(std::string(seconds->path), field_text(read.value) + "s");
    } else if (field.starts_with(kSourceField)) {
      add("data.fields", field.substr(kSourceField.size()) + "=" + field_text(read.value));
    } else if (field == "hardware.accelerator") {
      if (read.value == "cpu") add("hardware.gpu", "cpu");
    } else if (field == "model.name" && fields.count("model.hub_id") != 0) {
      // The name of what comes out of a run may stand beside the model it begins with.
    } else if (field == "model.name" || field == "model.hub_id") {
      add("model", field_text(read.value));
    } else if (field.compare(0, 6, "model.") == 0) {
      add(field, field_text(read.value));
    } else if (field == "options.clips_as_told") {
      if (fields.count("options.auto") == 0)
        out.lost.push_back({read.key, "auto", "'auto' is filled in by the program that reads the file", read.at});
    } else if (field == "options.auto" && read.value == true) {
      out.lost.push_back({read.key, "auto", "every 'auto' of the file is filled in by the program that reads it", read.at});
    } else if (field != "derived.hybrid" && field != "recompute.every_k") {
      out.lost.push_back({read.key, field_text(read.value),
                          field == "derived.layers_per_virtual_stage"
                              ? "how many chunks a stage has follows from the model's layers: --virtual-stages"
                          : field == "options.saves"             ? "when checkpoints are written: --checkpoint-every"
                          : field == "options.nested_quant"      ? "a plan's 4-bit weights are nf4 with quantized constants"
                          : field == "options.preference_beta"   ? "how preferences become a loss is the script's matter"
                          : field == "options.epochs"            ? "epochs depend on the data: --steps"
                          : field == "derived.samples"           ? "how many steps that is depends on the data: --steps"
                          : field == "derived.train_samples"     ? "over the global batch it is the steps: --steps"
                          : field == "derived.warmup_samples"    ? "over the global batch it is the warm-up: --warmup-steps"
                          : field.compare(0, 4, "job.") == 0     ? "it belongs to the job script, not to a run"
                          : field.compare(0, 8, "options.") == 0 ? "it is a matter of the file's own form, not of a run"
                                                                 : fmt::format("the plan settles it by itself ({})", field),
                          read.at});
    }
  }
  std::erase_if(out.lost, [&fields](const LostKey& lost) {
    return std::any_of(fields.begin(), fields.end(),
                       [&lost](const auto& entry) { return entry.second.key == lost.key && entry.second.is_assumed; });
  });
  return out;
}

}  // namespace distsetup
