// Fields that were read, as keys of a run file, and as fields to write another target from.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/diagnostic_codes.h"
#include "base/quantity.h"
#include "codegen/read/match.h"
#include "codegen/read/read.h"
#include "plan/plan.h"

namespace distsetup {
namespace {

struct FieldPath {
  std::string_view field, path;
};

// Fields whose text is the setting's text.
constexpr std::array<FieldPath, 51> kPaths = {{{"strategy.trainer", "trainer.name"},
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
                                               {"recompute.policy", "parallel.recompute"},
                                               {"offload.optimizer", "parallel.offload.optimizer"},
                                               {"offload.parameters", "parallel.offload.parameters"},
                                               {"offload.activations", "parallel.offload.activations"},
                                               {"precision.compute", "precision.compute"},
                                               {"precision.reduce", "precision.reduce"},
                                               {"precision.master", "precision.master"},
                                               {"precision.optimizer_state", "precision.optimizer_state"},
                                               {"checkpoint.directory", "checkpoint.directory"},
                                               {"checkpoint.every_steps", "checkpoint.every_steps"},
                                               {"checkpoint.keep", "checkpoint.keep"},
                                               {"job.time_limit", "launch.time_limit"},
                                               {"derived.data_paths", "data.paths"},
                                               {"derived.world", "hardware.total_gpus"}}};
// In seconds.
constexpr std::array<FieldPath, 3> kSeconds = {{{"launch.time_limit_s", "launch.time_limit"},
                                                {"launch.init_timeout_s", "launch.init_timeout"},
                                                {"launch.collective_timeout_s", "launch.collective_timeout"}}};

std::optional<int64_t> whole(const ReadFields& fields, std::string_view name) {
  const auto it = fields.find(name);
  if (it == fields.end() || !it->second.value.is_number_integer()) return std::nullopt;
  return it->second.value.get<int64_t>();
}

std::string text_of(const ReadFields& fields, std::string_view name) {
  const auto it = fields.find(name);
  return it == fields.end() ? "" : field_text(it->second.value);
}

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
  if (part == fields.end() || all == fields.end() || !part->second.value.is_number() || !all->second.value.is_number()) return;
  const double product = part->second.value.get<double>() * all->second.value.get<double>();
  derive(fields, share, to, std::stod(fmt::format("{:.12g}", product)));
}

// A warm-up that is a part of the run. Without a number of steps it stays a part of them.
void settle_warmup(ReadFields& fields) {
  const auto steps = whole(fields, "train.steps");
  const auto part = fields.find("derived.warmup_ratio");
  if (!steps || part == fields.end()) return;
  if (part->second.value.is_number())
    derive(fields, "derived.warmup_ratio", "train.warmup_steps", warmup_steps_of(part->second.value.get<double>(), *steps));
  fields.erase("derived.warmup_ratio");
}

// A run that counts samples of its data, in epochs: the last step may be short, and is not counted.
void end_with_samples(ReadFields& fields) {
  const auto samples = whole(fields, "derived.samples"), batch = whole(fields, "train.global_batch");
  if (!samples || !batch || *batch < 1) return;
  int64_t all = 0;
  if (__builtin_mul_overflow(*samples, std::max<int64_t>(1, whole(fields, "derived.epochs").value_or(1)), &all)) return;
  if (all / *batch >= 1) derive(fields, "derived.samples", "train.steps", all / *batch);
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

// sbatch --time: minutes, minutes:seconds, h:m:s, days-hours, days-hours:minutes, days-hours:minutes:seconds (man page of sbatch).
std::string duration_text(const std::string& text) {
  const size_t dash = text.find('-');
  const auto colons = std::count(text.begin(), text.end(), ':');
  const bool is_number = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  if (is_number) return text + "m";
  if (dash == std::string::npos) return colons == 1 ? "0:" + text : text;
  if (colons == 0) return text + ":00:00";
  return colons == 1 ? text + ":00" : text;
}

// Stages, offload, GPUs of a node and the batch of a pipeline, as tools say them.
void settle_parts(ReadFields& fields) {
  if (const auto stage = whole(fields, "derived.zero_stage"); stage && *stage >= 0 && *stage <= 3) {
    static constexpr std::array<const char*, 4> kSharding = {"ddp", "zero1", "zero2", "zero3"};
    derive(fields, "derived.zero_stage", "strategy.sharding", kSharding[static_cast<size_t>(*stage)]);
  }
  if (const std::string offload = text_of(fields, "derived.offload"); !offload.empty()) {
    derive(fields, "derived.offload", "offload.optimizer", offload == "both" || offload == "optimizer" ? "host" : "none");
    derive(fields, "derived.offload", "offload.parameters", offload == "both" || offload == "parameters" ? "host" : "none");
  }
  // "gpu:h100:8" and "h100:8" of SLURM are 8 GPUs of a node.
  for (const char* request : {"job.gres", "job.gpus_per_node"}) {
    const std::string text = text_of(fields, request);
    const Json number = value_of_text(text.substr(text.rfind(':') + 1));
    if (!number.is_number_integer()) continue;
    derive(fields, request, "hardware.gpus_per_node", number);
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
    derive(fields, "derived.positive_seed", "train.seed", *seed - 1);
  if (const auto minutes = whole(fields, "derived.timeout_minutes"))
    derive(fields, "derived.timeout_minutes", "launch.collective_timeout_s", *minutes * 60);
  scale(fields, "derived.min_learning_rate_factor", "train.learning_rate", "train.min_learning_rate");
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
  const auto world = whole(fields, "derived.world"), nodes = whole(fields, "hardware.nodes");
  const auto per_node = whole(fields, "hardware.gpus_per_node");
  if (world && nodes && !per_node && *nodes > 0 && *world % *nodes == 0)
    derive(fields, "derived.world", "hardware.gpus_per_node", *world / *nodes);
  if (nodes && whole(fields, "hardware.gpus_per_node") && world == *nodes * *whole(fields, "hardware.gpus_per_node"))
    fields.erase(fields.find("derived.world"));
}

}  // namespace

void settle_derived(ReadFields& fields) {
  settle_parts(fields);
  end_with_samples(fields);
  settle_chunks(fields);
  settle_training(fields);
  end_with_epochs(fields);
  settle_warmup(fields);
  drop_assumed(fields);
  // Read into others, or how a target starts ranks and not how many there are.
  for (const char* name :
       {"derived.zero_stage", "derived.offload", "derived.pipeline_batch", "derived.save_interval", "derived.positive_seed",
        "derived.timeout_minutes", "derived.min_learning_rate_factor", "derived.mesh_2d", "derived.betas", "derived.epochs",
        "derived.epoch_micro_batches", "derived.samples", "job.tasks_per_node", "job.cpus_per_task", "job.signal", "job.open_mode"}) {
    const auto it = fields.find(name);
    if (it != fields.end()) fields.erase(it);
  }
  settle_groups(fields);
  settle_world(fields);
}

ReadSettings settings_of(const ReadFields& fields) {
  ReadSettings out;
  const bool is_hybrid = text_of(fields, "derived.hybrid") == "true";
  for (const auto& [field, read] : fields) {
    const auto is_field = [&name = field](const FieldPath& one) { return one.field == name; };
    const auto add = [&out, &one = read](std::string path, std::string text) {
      out.settings.push_back({std::move(path), std::move(text), one.key, one.at, one.is_assumed});
    };
    if (const auto it = std::find_if(kPaths.begin(), kPaths.end(), is_field); it != kPaths.end()) {
      std::string text = field_text(read.value);
      if (field == "recompute.policy" && text == "every_k")
        text += ":" + std::to_string(whole(fields, "recompute.every_k").value_or(1));
      if (field == "strategy.sharding" && is_hybrid && (text == "zero3" || text == "zero2"))
        text = text == "zero3" ? "hybrid_shard" : "hybrid_shard_zero2";
      if (field == "job.time_limit") text = duration_text(text);
      add(std::string(it->path), std::move(text));
    } else if (const auto seconds = std::find_if(kSeconds.begin(), kSeconds.end(), is_field); seconds != kSeconds.end()) {
      add(std::string(seconds->path), field_text(read.value) + "s");
    } else if (field == "hardware.accelerator") {
      if (read.value == "cpu") add("hardware.gpu", "cpu");
    } else if (field == "model.name" && fields.count("model.hub_id") != 0) {
      // The name of what comes out of a run may stand beside the model it begins with.
    } else if (field == "model.name" || field == "model.hub_id") {
      add("model", field_text(read.value));
    } else if (field.compare(0, 6, "model.") == 0) {
      add(field, field_text(read.value));
    } else if (field != "derived.hybrid" && field != "recompute.every_k") {
      out.lost.push_back({read.key, field_text(read.value),
                          field == "derived.layers_per_virtual_stage"
                              ? "how many chunks a stage has follows from the model's layers: --virtual-stages"
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

static Diagnostic contradiction(const std::string& name, const ReadField& first, const ReadField& field) {
  const bool is_typed = first.at.line == 0, is_one_key = first.at.file == field.at.file && first.key == field.key;
  const std::string place = is_typed ? first.at.file : fmt::format("{}:{}", first.at.file, first.at.line);
  Diagnostic conflict = error(code::kConflict, field.at,
                              fmt::format("'{}' says {} is {}, '{}' in {} says {}", field.key, name, field_text(field.value),
                                          first.key, place, field_text(first.value)));
  conflict.help = is_typed                         ? "keep one of them"
                  : is_one_key                     ? "the file starts several runs: keep one of them in it"
                  : first.at.file == field.at.file ? "make them agree, or leave one of them away"
                                                   : "make them agree, or leave one of the files away";
  conflict.length = static_cast<int>(field.key.size() - std::min(field.key.size(), field.key.rfind('.') + 1));
  return conflict;
}

static bool chooses_parts(const Reading& reading) {
  const ReadChoices& chosen = reading.chosen;
  return !chosen.stage.empty() || !chosen.setup.empty() || !chosen.assignments.empty();
}

Result<ReadFields> merge_readings(const std::vector<Reading>& readings) {
  ReadFields merged;
  std::map<std::string, const Reading*, std::less<>> from;
  Diagnostics diagnostics;
  for (const Reading& reading : readings) {
    ReadFields fields = reading.fields;
    for (const auto& [name, field] : reading.contradictions) {
      if (const auto first = fields.find(name); first != fields.end())
        diagnostics.push_back(contradiction(name, first->second, field));
    }
    settle_derived(fields);
    for (auto& [name, field] : fields) {
      const auto [it, is_new] = merged.try_emplace(name, field);
      if (is_new || it->second.value == field.value) {
        if (is_new) from.emplace(name, &reading);
        continue;
      }
      // A command line that names parts of a file is over that file.
      const Reading*& other = from[name];
      if (chooses_parts(reading) != (other != nullptr && chooses_parts(*other)) && !field.is_assumed && !it->second.is_assumed) {
        if (chooses_parts(reading)) {
          it->second = field;
          other = &reading;
        }
        continue;
      }
      const auto is_weak = [](const ReadField& one) { return one.is_assumed || one.is_guess; };
      if (is_weak(it->second) || is_weak(field)) {
        if (!is_weak(field) || it->second.is_assumed) it->second = field;
        continue;
      }
      diagnostics.push_back(contradiction(name, it->second, field));
    }
  }
  settle_derived(merged);
  if (has_error(diagnostics)) return diagnostics;
  return merged;
}

}  // namespace distsetup
