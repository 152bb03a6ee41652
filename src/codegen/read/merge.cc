#include "codegen/read/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "base/diagnostic_codes.h"
#include "codegen/read/match.h"
#include "codegen/read/settle.h"
#include "codegen/tables/fields.h"

namespace distsetup {
namespace {

Diagnostic contradiction(const std::string& name, const ReadField& first, const ReadField& field) {
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

// A hostfile says what there is, and a job's own lines the GPUs of a node: a launcher may take less of it.
bool is_less_of_hosts(const Reading& reading, const ReadField& field, const Reading* other, const ReadField& offered) {
  const auto offers = [&](const Reading& one) {
    const bool is_job =
        one.table.starts_with("slurm/") && reading.table == "launchers/torchrun.yaml" && field.key.starts_with("nproc");
    return one.table == "launchers/hostfile.yaml" || is_job;
  };
  return other != nullptr && offers(*other) && !offers(reading) && field.value.is_number() && offered.value.is_number() &&
         field.value.get<double>() <= offered.value.get<double>();
}

// DistributedDataParallel is what runs where no file asks for anything else.
bool is_plain_trainer(const std::string& name, const ReadField& field) {
  return name == "strategy.trainer" && field.is_assumed && field_text(field.value) == "ddp";
}

// A precision that nobody asked for, and a trainer, are not known while a file that may choose them was not read: accelerate's sets
// the Trainer's.
void drop_unread_choices(const std::vector<Reading>& readings, ReadFields& merged) {
  const bool is_unread = std::any_of(readings.begin(), readings.end(), [](const Reading& reading) {
    return std::any_of(reading.lost.begin(), reading.lost.end(),
                       [](const LostKey& lost) { return lost.is_file && lost.key == "config_file"; });
  });
  const auto it = merged.find("precision.compute");
  if (is_unread && it != merged.end() && it->second.is_assumed) merged.erase(it);
  const auto trainer = merged.find("strategy.trainer");
  if (is_unread && trainer != merged.end() && is_plain_trainer(trainer->first, trainer->second)) merged.erase(trainer);
}

// Weights that a tool loads in bf16 are their own masters where nothing makes others: DeepSpeed does, and accelerate under FSDP
// (accelerator.py, fsdp2_prepare_model and prepare_model), and weights under adapters are not trained.
void drop_loaded_type(const std::vector<Reading>& readings, ReadFields& merged) {
  static const std::set<std::string, std::less<>> kOfLoading = {"(masters)", "dtype", "torch_dtype", "bfloat16"};
  const auto it = merged.find("precision.master");
  if (it == merged.end() || kOfLoading.count(it->second.key) == 0) return;
  const bool is_unread = std::any_of(readings.begin(), readings.end(), [](const Reading& reading) {
    return std::any_of(reading.lost.begin(), reading.lost.end(),
                       [](const LostKey& lost) { return lost.is_file && (lost.key == "config_file" || lost.key == "deepspeed"); });
  });
  const std::string trainer = text_of(merged, "strategy.trainer"), sharding = text_of(merged, "strategy.sharding");
  const bool has_engine = (!trainer.empty() && trainer != "ddp") || (!sharding.empty() && sharding != "ddp");
  if (is_unread || has_engine || text_of(merged, "train.finetune").ends_with("lora")) merged.erase(it);
}

// Two switches for recomputation (FSDP's own and the Trainer's, which has to be off beside it): layers are recomputed where one is on.
bool is_switched_on_by(const std::string& name, const ReadField& one, const ReadField& other) {
  const bool are_two = one.key.ends_with("activation_checkpointing") != other.key.ends_with("activation_checkpointing");
  return name == "recompute.policy" && are_two && field_text(other.value) == "none";
}

// A Trainer's fp16 or bf16 goes over whatever accelerate launch hands on in a variable, and what is switched off goes over nothing
// (Transformers 5.23.0, training_args.py, __post_init__; the Accelerator that is made so has no fp8: accelerate 1.15.0,
// accelerator.py). Of a program that is not known to be one nothing is said.
bool is_precision_over(const std::string& name, const Reading* reading, const ReadField& one, const Reading* of,
                       const ReadField& other) {
  static const std::set<std::string, std::less<>> kOfTrainer = {"huggingface/keys.yaml",  "transformers/keys.yaml",
                                                                "fsdp_trainer/keys.yaml", "trl/keys.yaml",
                                                                "llamafactory/keys.yaml", "ms-swift/keys.yaml"};
  const auto is_trainers = [](const Reading* from, const ReadField& field) {
    return from != nullptr && (field.key == "bf16" || field.key == "fp16") && kOfTrainer.count(from->table) != 0;
  };
  if (name != "precision.compute") return false;
  if (is_trainers(reading, one) && other.key == "mixed_precision") return field_text(one.value) == one.key;
  return one.key == "mixed_precision" && is_trainers(of, other) && field_text(other.value) == "fp32";
}

// The Trainer builds no scheduler where DeepSpeed's file has one: its own word has no effect, nor what it assumes of a warm-up
// (transformers/integrations/deepspeed.py, deepspeed_optim_sched).
void drop_scheduler_of_trainer(const std::vector<Reading>& readings, ReadFields& fields) {
  const auto is_scheduler = [](const auto& one) { return one.second.key.starts_with("scheduler."); };
  const bool is_there = std::any_of(readings.begin(), readings.end(), [&](const Reading& reading) {
    return std::any_of(reading.fields.begin(), reading.fields.end(), is_scheduler);
  });
  if (!is_there) return;
  std::erase_if(fields, [](const auto& one) {
    return one.second.key.starts_with("lr_scheduler") || (one.second.is_assumed && one.second.key.starts_with("warmup_"));
  });
}

// Axolotl warms up for 100 steps at most where nobody says for how many (src/axolotl/core/builders/base.py).
void shorten_assumed_warmup(const Reading& reading, ReadFields& fields) {
  constexpr int64_t kMost = 100;
  const auto warmup = fields.find("train.warmup_steps");
  if (!reading.table.starts_with("axolotl/") || warmup == fields.end() || !warmup->second.is_assumed) return;
  if (whole(fields, "train.warmup_steps").value_or(0) > kMost) warmup->second.value = kMost;
}

// torchtitan shortens a warm-up to the steps there are, and a decay to what is left of them (torchtitan/components/lr_scheduler.py,
// build_lr_schedulers).
void shorten_schedule(const Reading& reading, ReadFields& fields) {
  const auto find = [&fields](const char* name) -> Json* {
    const auto it = fields.find(name);
    return it == fields.end() || !it->second.value.is_number_integer() ? nullptr : &it->second.value;
  };
  const Json* steps = find("train.steps");
  Json *warmup = find("train.warmup_steps"), *decay = find("train.lr_decay_steps");
  if (!reading.table.starts_with("torchtitan") || steps == nullptr || warmup == nullptr) return;
  const int64_t num_steps = steps->get<int64_t>(), num_warmup = std::min(warmup->get<int64_t>(), num_steps);
  *warmup = num_warmup;
  if (decay != nullptr && num_warmup + decay->get<int64_t>() > num_steps) *decay = num_steps - num_warmup;
}

// torchtitan stops where its degrees do not multiply to the ranks there are (torchtitan/distributed/parallel_dims.py, _validate): with
// a degree for the shards they say how many there are.
void count_ranks(const Reading& reading, ReadFields& fields) {
  const auto shards = fields.find("mesh.dp_shard");
  const bool is_said = std::any_of(fields.begin(), fields.end(),
                                   [](const auto& one) { return one.first.starts_with("hardware.") || one.first == "derived.world"; });
  if (!reading.table.starts_with("torchtitan-0.2") || shards == fields.end() || is_said) return;
  constexpr int64_t kMostRanks = 1'000'000;
  int64_t ranks = 1;
  for (const char* axis : {"mesh.dp_shard", "mesh.dp_replicate", "mesh.tp", "mesh.cp", "mesh.pp"}) {
    const int64_t degree = whole(fields, axis).value_or(1);
    if (degree < 1 || ranks > kMostRanks / degree) return;
    ranks *= degree;
  }
  ReadField field = shards->second;
  field.value = ranks;
  field.is_assumed = true;
  fields.emplace("derived.world", std::move(field));
}

// A file of FSDP's sections alone (ms-swift's --fsdp FILE) is a part of the arguments: what the Trainer assumes of the others is not
// known.
void drop_defaults_of_part(const Reading& reading, ReadFields& fields) {
  const auto is_of_fsdp = [](const std::string& key) { return key.starts_with("fsdp") || key == "(trainer)"; };
  const bool is_part = reading.tool == "transformers TrainingArguments" && reading.fields.count("strategy.sharding") != 0 &&
                       std::all_of(fields.begin(), fields.end(),
                                   [&](const auto& one) { return one.second.is_assumed || is_of_fsdp(one.second.key); }) &&
                       std::all_of(reading.lost.begin(), reading.lost.end(),
                                   [&](const LostKey& one) { return is_of_fsdp(one.key) || one.key.starts_with("_"); });
  if (is_part) std::erase_if(fields, [&](const auto& one) { return one.second.is_assumed && !is_of_fsdp(one.second.key); });
}

struct KeyPlace {
  std::string key;
  Location at;
};

// A configuration of DeepSpeed, or a key that names one.
std::optional<KeyPlace> deepspeed_of_run(const Reading& reading) {
  for (const LostKey& lost : reading.lost) {
    if (lost.key == "deepspeed" && lost.is_file && lost.text.ends_with(".json")) return KeyPlace{lost.key, lost.at};
  }
  std::optional<KeyPlace> found;
  for (const auto& [name, field] : reading.fields) {
    const bool is_stage = reading.table.starts_with("deepspeed") && field.key.starts_with("zero_optimization");
    const bool is_named = name == "strategy.trainer" && field_text(field.value) == "deepspeed" && !field.is_assumed;
    if ((is_stage || is_named) && field.at.line > 0 && (!found || field.at.line < found->at.line)) found = {field.key, field.at};
  }
  return found;
}

bool is_of_running_script(const LostKey& lost) { return lost.reason.starts_with("only the running script knows"); }

// accelerate launch takes its file for what the command does not say (accelerate/commands/launch.py, _validate_launch_command).
void drop_overridden(const Reading& reading, const std::vector<Reading>& readings, ReadFields& fields) {
  if (reading.tool != "accelerate") return;
  for (const Reading& line : readings) {
    if (line.table != "launchers/accelerate.yaml") continue;
    for (const auto& [name, field] : line.fields) {
      if (!field.is_assumed) fields.erase(name);
    }
    for (const LostKey& lost : line.lost) {
      if (is_of_running_script(lost))
        std::erase_if(fields, [&lost](const auto& one) { return is_same_key(one.second.key, lost.key); });
    }
  }
}

// MULTI_GPU and --multi_gpu start as many processes as there are GPUs. What they run is the Trainer's to say: with --deepspeed or
// --fsdp it is that engine (Transformers 5.23.0, training_args.py, sets ACCELERATE_USE_DEEPSPEED; accelerate 1.15.0, state.py, reads
// it).
void drop_processes_of_launch(const Reading& reading, const std::vector<Reading>& readings, ReadFields& fields) {
  const auto sharding = fields.find("strategy.sharding");
  const bool is_launch = reading.tool == "accelerate" || reading.table == "launchers/accelerate.yaml";
  if (!is_launch || sharding == fields.end() || field_text(sharding->second.value) != "ddp") return;
  const bool has_engine = std::any_of(readings.begin(), readings.end(), [&reading](const Reading& other) {
    if (&other == &reading) return false;
    const bool has_file = std::any_of(other.lost.begin(), other.lost.end(), [](const LostKey& one) {  // which is not here
      return one.key == "deepspeed" && one.text != "false";
    });
    const auto form = other.fields.find("strategy.sharding");
    const bool is_fsdp = form != other.fields.end() && form->second.key.starts_with("fsdp");
    return has_file || (other.tool != "accelerate" && (is_fsdp || deepspeed_of_run(other).has_value()));
  });
  if (has_engine)
    for (const char* name : {"strategy.sharding", "strategy.trainer"}) fields.erase(name);
}

// train.py --config a.yaml --learning_rate "$LR": the line is over the file, whatever its value is.
void drop_overridden_by_unknown(const Reading& file, const std::vector<Reading>& readings, ReadFields& fields) {
  for (const Reading& line : readings) {
    if (!line.is_over_file || file.is_over_file || line.table != file.table) continue;
    for (const LostKey& lost : line.lost) {
      if (!is_of_running_script(lost)) continue;
      std::erase_if(fields, [&lost](const auto& one) { return is_same_key(one.second.key, lost.key); });
    }
  }
}

// What says that accelerate launch starts FSDP: the first of its settings; nullptr: it does not.
const ReadField* fsdp_of_launch(const Reading& reading) {
  const auto trainer = reading.fields.find("strategy.trainer");
  if (reading.tool != "accelerate" || trainer == reading.fields.end() || !field_text(trainer->second.value).starts_with("fsdp"))
    return nullptr;
  for (const auto& one : reading.fields) {
    if (one.second.key.starts_with("fsdp_config.") && one.second.at.line > 0) return &one.second;
  }
  return &trainer->second;
}

// The Trainer takes DeepSpeed's engine where a run has both, and what the file of accelerate says of FSDP is lost.
void refuse_two_engines(const std::vector<Reading>& readings, Diagnostics& diagnostics) {
  const bool is_over = std::any_of(readings.begin(), readings.end(), [](const Reading& one) {
    return one.table == "launchers/accelerate.yaml" && text_of(one.fields, "strategy.trainer") != "";
  });
  for (const Reading& launch : readings) {
    const ReadField* fsdp = is_over ? nullptr : fsdp_of_launch(launch);
    for (const Reading& other : readings) {
      const std::optional<KeyPlace> engine = fsdp == nullptr ? std::nullopt : deepspeed_of_run(other);
      if (!engine) continue;
      Diagnostic conflict = error(code::kConflict, engine->at,
                                  fmt::format("'{}' is a setting of DeepSpeed, '{}' in {}:{} one of FSDP: a run has one of them",
                                              engine->key, fsdp->key, fsdp->at.file, fsdp->at.line));
      conflict.help = "leave one of the files away";
      diagnostics.push_back(std::move(conflict));
      return;
    }
  }
}

bool chooses_parts(const Reading& reading) {
  const ReadChoices& chosen = reading.chosen;
  return !chosen.stage.empty() || !chosen.setup.empty() || !chosen.assignments.empty();
}

// llamafactory-cli train sft.yaml learning_rate=2e-5: the line is over the file.
bool is_over_its_file(const Reading& line, const Reading* file) {
  return file != nullptr && line.is_over_file && !file->is_over_file && line.table == file->table;
}

}  // namespace

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
    drop_defaults_of_part(reading, fields);
    drop_overridden(reading, readings, fields);
    drop_processes_of_launch(reading, readings, fields);
    drop_overridden_by_unknown(reading, readings, fields);
    drop_scheduler_of_trainer(readings, fields);
    shorten_schedule(reading, fields);
    settle_derived(fields);
    shorten_assumed_warmup(reading, fields);
    shorten_schedule(reading, fields);
    count_ranks(reading, fields);
    for (auto& [name, field] : fields) {
      const auto [it, is_new] = merged.try_emplace(name, field);
      if (is_new || it->second.value == field.value) {
        if (is_new) from.emplace(name, &reading);
        if (it->second.is_assumed && !field.is_assumed && !field.is_guess) it->second = field;  // said, too
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
      const bool is_given = !field.is_assumed && !it->second.is_assumed;
      if (is_given && other != nullptr && is_over_its_file(*other, &reading)) continue;
      if ((is_given && is_over_its_file(reading, other)) || is_less_of_hosts(reading, field, other, it->second)) {
        it->second = field;
        other = &reading;
        continue;
      }
      if (other != nullptr && is_less_of_hosts(*other, it->second, &reading, field)) continue;
      if (is_plain_trainer(name, field)) continue;
      if (is_plain_trainer(name, it->second)) {
        it->second = field;
        other = &reading;
        continue;
      }
      if (!field.is_assumed && !it->second.is_assumed && other != nullptr && reading.is_over_script != other->is_over_script) {
        if (reading.is_over_script) it->second = field, other = &reading;
        continue;
      }
      const auto is_weak = [](const ReadField& one) { return one.is_assumed || one.is_guess; };
      if (is_weak(it->second) || is_weak(field)) {
        if (!is_weak(field) || it->second.is_assumed) it->second = field;
        continue;
      }
      const bool is_over = is_switched_on_by(name, field, it->second) || is_precision_over(name, &reading, field, other, it->second);
      if (is_over) it->second = field;
      if (is_over || is_precision_over(name, other, it->second, &reading, field) || is_switched_on_by(name, it->second, field))
        continue;
      diagnostics.push_back(contradiction(name, it->second, field));
    }
  }
  refuse_two_engines(readings, diagnostics);
  drop_unread_choices(readings, merged);
  settle_derived(merged);
  drop_loaded_type(readings, merged);
  // "fp16": {"enabled": "auto", "loss_scale": 0}: of no meaning where another type is computed in.
  if (text_of(merged, "precision.compute") != "fp16")
    std::erase_if(merged, [](const auto& one) { return one.second.key.starts_with("fp16.") && one.first != "precision.compute"; });
  if (has_error(diagnostics)) return diagnostics;
  return merged;
}

}  // namespace distsetup
