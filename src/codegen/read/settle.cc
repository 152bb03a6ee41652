#include "codegen/read/settle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "codegen/read/match.h"
#include "codegen/tables/fields.h"
#include "plan/plan.h"

namespace distsetup {
namespace {

// A new field in another's place.
void derive(ReadFields& fields, std::string_view from, const std::string& to, Json value) {
  const auto it = fields.find(from);
  ReadField field = it->second;
  field.value = std::move(value);
  const auto present = fields.find(to);
  if (present == fields.end() || (present->second.is_assumed && !field.is_assumed) || (present->second.is_guess && !field.is_guess))
    fields[to] = std::move(field);
}

// A number that a tool holds as a share of another: `to` = share × whole.
void scale(ReadFields& fields, std::string_view share, std::string_view whole_field, const std::string& to) {
  const auto part = fields.find(share), all = fields.find(whole_field);
  if (part != fields.end() && part->second.value.is_number() && part->second.value == 0) return derive(fields, share, to, 0);
  if (part == fields.end() || all == fields.end() || !part->second.value.is_number() || !all->second.value.is_number()) return;
  const double product = part->second.value.get<double>() * all->second.value.get<double>();
  derive(fields, share, to, std::stod(fmt::format("{:.12g}", product)));
}

// Sizes of a model that a tool derives from others where they are not given.
void settle_model(ReadFields& fields) {
  const auto hidden = whole(fields, "model.hidden"), factor = whole(fields, "derived.feed_forward_factor");
  // Megatron-LM's validate_args: a gated MLP has two thirds of that width, in multiples of 64.
  if (hidden && factor && *hidden > 0 && *hidden < 1'000'000'000) {
    const int64_t width = *factor * *hidden;
    derive(fields, "derived.feed_forward_factor", "model.feed_forward",
           text_of(fields, "model.gated_mlp") == "true" ? width * 2 / 3 / 64 * 64 : width);
  }
  const auto experts = whole(fields, "model.num_experts"), width = whole(fields, "model.feed_forward");
  if (experts && *experts > 1 && width && whole(fields, "derived.expert_factor"))
    derive(fields, "derived.expert_factor", "model.expert_feed_forward", *width);
  if (const auto positions = whole(fields, "model.max_positions"); positions && text_of(fields, "derived.learned_positions") == "true")
    derive(fields, "derived.learned_positions", "model.learned_positions", *positions);
}

// A warm-up and a decay that are parts of the run. Without a number of steps the warm-up stays a part of them.
void settle_warmup(ReadFields& fields) {
  const auto steps = whole(fields, "train.steps");
  const bool is_wsd = text_of(fields, "train.lr_schedule") == "wsd";
  const auto decay = fields.find("derived.lr_decay_ratio");
  const bool decays_in_no_part = is_wsd && decay != fields.end() && decay->second.value.is_number() && decay->second.value == 0;
  if (decay != fields.end()) {
    if (!decays_in_no_part && steps && decay->second.value.is_number())
      derive(fields, "derived.lr_decay_ratio", "train.lr_decay_steps",
             std::max<int64_t>(1, std::llround(decay->second.value.get<double>() * static_cast<double>(*steps))));
    fields.erase("derived.lr_decay_ratio");
  }
  const bool decays_in_no_step = whole(fields, "train.lr_decay_steps") == 0;
  if (decays_in_no_step) fields.erase("train.lr_decay_steps");
  if (is_wsd && (decays_in_no_part || decays_in_no_step)) fields["train.lr_schedule"].value = "constant";
  const auto part = fields.find("derived.warmup_ratio");
  if (part == fields.end()) return;
  const bool is_number = part->second.value.is_number();
  const bool is_none = is_number && part->second.value == 0;  // of any number of steps
  if (!steps && !is_none) return;
  if (is_number)
    derive(fields, "derived.warmup_ratio", "train.warmup_steps",
           is_none ? 0 : warmup_steps_of(part->second.value.get<double>(), *steps));
  fields.erase("derived.warmup_ratio");
}

// A run that counts samples of its data, in epochs: the last step may be short, and is not counted.
void end_with_samples(ReadFields& fields) {
  const auto read = fields.find("derived.samples");
  const auto samples = whole(fields, "derived.samples"), batch = whole(fields, "train.global_batch");
  constexpr int64_t kNoLimit = 10'000'000;  // people write it for "all of them": it ends no fine-tuning
  if (read == fields.end() || !samples || !batch || *batch < 1) return;
  // In somebody's file it is a limit in round numbers, of data that may have fewer: no end that is known here.
  if (*samples < kNoLimit && read->second.at.line > 0 && *samples % *batch != 0) return;
  int64_t all = 0;
  const int64_t epochs = std::max<int64_t>(1, whole(fields, "derived.epochs").value_or(1));
  const bool ends = *samples < kNoLimit && !__builtin_mul_overflow(*samples, epochs, &all) && all / *batch >= 1;
  if (ends) derive(fields, "derived.samples", "train.steps", all / *batch);
  fields.erase(read);
}

// Samples that the tool itself divides by its global batch: the run's, and those of its warm-up.
void divide_samples(ReadFields& fields) {
  const auto batch = whole(fields, "train.global_batch");
  if (!batch || *batch < 1) return;
  for (const auto& [samples, steps] :
       {std::pair{"derived.train_samples", "train.steps"}, {"derived.warmup_samples", "train.warmup_steps"}}) {
    const auto count = whole(fields, samples);
    if (!count || *count < 0) continue;
    const bool is_end = *count >= *batch || steps == std::string_view("train.warmup_steps");
    if (is_end) derive(fields, samples, steps, *count / *batch);
    fields.erase(fields.find(samples));
  }
}

// A run that counts epochs of micro-batches ends with the last whole step of them, or earlier.
void end_with_epochs(ReadFields& fields) {
  const auto epochs = whole(fields, "derived.epochs"), micro_batches = whole(fields, "derived.epoch_micro_batches");
  if (!epochs || !micro_batches) return;
  const int64_t accumulation = std::max<int64_t>(1, whole(fields, "gradient_accumulation").value_or(1));
  int64_t all = 0;
  if (*epochs < 1 || *micro_batches < 1 || __builtin_mul_overflow(*epochs, *micro_batches, &all)) return;
  const std::string_view said = fields.find("derived.epochs")->second.is_assumed ? "derived.epoch_micro_batches" : "derived.epochs";
  const int64_t steps = std::max<int64_t>(1, all / accumulation);
  if (const auto most = whole(fields, "train.steps"); most && *most <= steps) return;
  fields["train.steps"] = fields.find(said)->second;
  fields["train.steps"].value = steps;
}

// Stages, offload, GPUs of a node and the batch of a pipeline, as tools say them.
void settle_parts(ReadFields& fields) {
  if (const auto stage = whole(fields, "derived.zero_stage"); stage && *stage >= 0 && *stage <= 3) {
    static constexpr std::array<const char*, 4> kSharding = {"ddp", "zero1", "zero2", "zero3"};
    derive(fields, "derived.zero_stage", "strategy.sharding", kSharding[static_cast<size_t>(*stage)]);
  }
  // DeepSpeed moves parameters in stage 3 only; below it the device is passed over.
  const std::string sharding = text_of(fields, "strategy.sharding");
  const bool is_below_stage_3 = sharding == "ddp" || sharding == "zero1" || sharding == "zero2";
  if (const auto it = fields.find("offload.parameters");
      it != fields.end() && is_below_stage_3 && text_of(fields, "strategy.trainer") == "deepspeed")
    it->second.value = "none";
  if (whole(fields, "train.steps") == 0) fields.erase(fields.find("train.steps"));  // 0 is how tools write that epochs count
  if (const std::string offload = text_of(fields, "derived.offload"); !offload.empty()) {
    derive(fields, "derived.offload", "offload.optimizer", offload == "both" || offload == "optimizer" ? "host" : "none");
    derive(fields, "derived.offload", "offload.parameters", offload == "both" || offload == "parameters" ? "host" : "none");
  }
  // "gpu:h100:8" and "h100:8" of SLURM are 8 GPUs of a node.
  for (const char* request : {"job.gres", "job.gpus_per_node"}) {
    const std::string text = text_of(fields, request);
    const Json number = value_of_text(text.substr(text.rfind(':') + 1));
    if (!number.is_number_integer()) continue;
    if (number == 0) {  // a job without GPUs
      fields.erase(fields.find(request));
      continue;
    }
    derive(fields, request, "hardware.gpus_per_node", number);
    std::string type = text.substr(0, std::min(text.rfind(':'), text.size()));
    if (type.compare(0, 4, "gpu:") == 0) type.erase(0, 4);
    if (type != text && type != "gpu") derive(fields, request, "hardware.gpu", type);
    fields.erase(fields.find(request));
  }
  if (const auto batch = whole(fields, "derived.pipeline_batch")) {
    const auto micro = whole(fields, "micro_batch");
    if (whole(fields, "mesh.pp").value_or(1) == 1) {
      derive(fields, "derived.pipeline_batch", "micro_batch", *batch);
    } else if (micro && *micro > 0 && *batch % *micro == 0) {
      derive(fields, "derived.pipeline_batch", "gradient_accumulation", *batch / *micro);
    }
  }
}

// Chunks of a pipeline's stages, by how many layers one has. Layers of models by name are known where presets are.
void settle_chunks(ReadFields& fields) {
  const auto layers = whole(fields, "model.num_layers"), of_chunk = whole(fields, "derived.layers_per_virtual_stage");
  if (const auto stages = whole(fields, "mesh.pp"); layers && of_chunk && stages && *of_chunk > 0 && *stages > 0) {
    if (*layers % (*of_chunk * *stages) == 0) {
      derive(fields, "derived.layers_per_virtual_stage", "strategy.virtual_stages", *layers / (*of_chunk * *stages));
      fields.erase(fields.find("derived.layers_per_virtual_stage"));
    }
  }
}

// Steps, seeds, rates and pairs of numbers that tools hold in other units or together.
void settle_training(ReadFields& fields) {
  if (const auto interval = whole(fields, "derived.save_interval"))
    derive(fields, "derived.save_interval", "checkpoint.every_steps", *interval);
  if (const auto seed = whole(fields, "derived.positive_seed"); seed && *seed > 0)
    derive(fields, "derived.positive_seed", "train.seed", *seed);
  if (const auto minutes = whole(fields, "derived.timeout_minutes"))
    derive(fields, "derived.timeout_minutes", "launch.collective_timeout_s", *minutes * 60);
  scale(fields, "derived.min_learning_rate_factor", "train.learning_rate", "train.min_learning_rate");
  scale(fields, "derived.lora_alpha_factor", "train.lora_rank", "train.lora_alpha");
  if (const auto it = fields.find("derived.mesh_2d");
      it != fields.end() && it->second.value.is_array() && it->second.value.size() == 2) {
    const Json sizes = it->second.value;
    derive(fields, "derived.mesh_2d", "mesh.dp_replicate", sizes[0]);
    derive(fields, "derived.mesh_2d", "mesh.dp_shard", sizes[1]);
  }
  if (const auto it = fields.find("derived.betas");
      it != fields.end() && it->second.value.is_array() && it->second.value.size() == 2) {
    const Json betas = it->second.value;
    for (size_t i = 0; i < 2; ++i) {
      const std::string text = field_text(betas[i]);
      derive(fields, "derived.betas", i == 0 ? "train.beta1" : "train.beta2", std::strtod(text.c_str(), nullptr));
    }
  }
}

// What nobody asked for gives way to what somebody did.
void drop_assumed(ReadFields& fields) {
  // A warm-up that nobody asked for does not outlast the run.
  if (const auto it = fields.find("train.warmup_steps"); it != fields.end() && it->second.is_assumed) {
    if (const auto steps = whole(fields, "train.steps"); steps && whole(fields, "train.warmup_steps").value_or(0) > *steps)
      fields.erase(it);
  }
  // How a context axis exchanges is nothing without one.
  if (const auto it = fields.find("strategy.cp_method");
      it != fields.end() && it->second.is_assumed && whole(fields, "mesh.cp").value_or(1) == 1)
    fields.erase(it);
  // Nor does an end of the cosine that nobody asked for lie above its peak.
  if (const auto it = fields.find("train.min_learning_rate"); it != fields.end() && it->second.is_assumed) {
    const auto peak = fields.find("train.learning_rate");
    const bool are_known = peak != fields.end() && peak->second.value.is_number() && it->second.value.is_number();
    if (are_known && it->second.value.get<double>() > peak->second.value.get<double>()) fields.erase(it);
  }
}

// Copies and shards of the data-parallel ranks.
void settle_groups(ReadFields& fields) {
  // Whether a unit is freed after its forward is a choice of zero3 alone.
  if (const auto it = fields.find("strategy.reshard_after_forward");
      it != fields.end() && text_of(fields, "strategy.sharding") != "zero3")
    fields.erase(it);
  // A file that says there are no copies of the shard group.
  if (const auto it = fields.find("derived.hybrid"); it != fields.end() && text_of(fields, "derived.hybrid") == "false") {
    const std::string sharding = text_of(fields, "strategy.sharding");
    const bool shards = sharding == "zero1" || sharding == "zero2" || sharding == "zero3";
    ReadField one = it->second;
    one.value = 1;
    one.is_assumed = true;  // so that another sharding may be asked for beside the file
    if (shards && !one.is_guess && !whole(fields, "mesh.dp_shard")) fields.try_emplace("mesh.dp_replicate", std::move(one));
  }
  // Every copies-times-shards mesh is hybrid; one that says so by name has a node for a shard group.
  if (text_of(fields, "derived.hybrid") == "false" || whole(fields, "mesh.dp_shard").has_value()) {
    if (const auto it = fields.find("derived.hybrid"); it != fields.end()) fields.erase(it);
  }
}

// Ranks in all are nodes times GPUs.
void settle_world(ReadFields& fields) {
  if (text_of(fields, "derived.one_process") == "true") {
    derive(fields, "derived.one_process", "derived.world", 1);
    fields["derived.world"].value = 1;  // whatever stands there: the launcher starts one
  }
  fields.erase("derived.one_process");
  const auto world = whole(fields, "derived.world"), nodes = whole(fields, "hardware.nodes");
  const auto per_node = whole(fields, "hardware.gpus_per_node");
  // A launcher that the job's own script gives fewer ranks than its node has GPUs: the rest is for something else.
  if (world && nodes == 1 && per_node && *world < *per_node &&
      fields["derived.world"].at.file == fields["hardware.gpus_per_node"].at.file)
    fields["hardware.gpus_per_node"].value = fields["derived.world"].value;
  if (world && nodes && !per_node && *nodes > 0 && *world % *nodes == 0)
    derive(fields, "derived.world", "hardware.gpus_per_node", *world / *nodes);
  if (nodes && whole(fields, "hardware.gpus_per_node") && world == *nodes * *whole(fields, "hardware.gpus_per_node"))
    fields.erase(fields.find("derived.world"));
}

}  // namespace

void settle_derived(ReadFields& fields) {
  settle_parts(fields);
  settle_model(fields);
  end_with_samples(fields);
  divide_samples(fields);
  settle_chunks(fields);
  settle_training(fields);
  end_with_epochs(fields);
  settle_warmup(fields);
  drop_assumed(fields);
  // Read into others, or how a target starts ranks and not how many there are.
  for (const char* name :
       {"derived.zero_stage", "derived.offload", "derived.pipeline_batch", "derived.save_interval", "derived.positive_seed",
        "derived.timeout_minutes", "derived.min_learning_rate_factor", "derived.lora_alpha_factor", "derived.mesh_2d", "derived.betas",
        "derived.epochs", "derived.epoch_micro_batches", "derived.feed_forward_factor", "derived.expert_factor",
        "derived.learned_positions", "job.tasks_per_node", "job.cpus_per_task", "job.signal", "job.open_mode"}) {
    const auto it = fields.find(name);
    if (it != fields.end()) fields.erase(it);
  }
  settle_groups(fields);
  settle_world(fields);
}

}  // namespace distsetup
