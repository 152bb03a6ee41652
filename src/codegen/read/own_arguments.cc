#include "codegen/read/own_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "base/names.h"
#include "codegen/read/best_table.h"
#include "codegen/read/match.h"
#include "codegen/tables/fields.h"
#include "model/presets.h"

namespace distsetup {

void name_file(LostKey& lost) {
  lost.is_file = true;
  lost.reason = "it is a file of its own: give it beside this one";
  lost.why = LostKey::Why::kNotSupported;
  lost.help.clear();
}

std::optional<Result<Reading>> over_file_of_torchtitan(const TemplateSet& templates, const std::vector<FoundKey>& found,
                                                       const std::string& file) {
  const auto names_file = [](const FoundKey& one) { return is_same_key(one.key, "job.config_file") && !one.stands_alone; };
  const auto named = std::find_if(found.begin(), found.end(), names_file);
  std::vector<FoundKey> rest;
  std::remove_copy_if(found.begin(), found.end(), std::back_inserter(rest), names_file);
  if (named == found.end() || rest.empty()) return std::nullopt;
  Result<Reading> over = reading_by(templates, "torchtitan-0.2/keys.yaml", {nullptr, std::move(rest), nullptr}, file);
  if (!over.ok()) return over;
  std::erase_if(over->fields, [](const auto& one) { return one.second.is_assumed; });
  over->is_over_file = true;
  LostKey lost{named->key, named->text, named->unknown, named->at};
  if (named->unknown.empty()) name_file(lost);
  over->lost.push_back(std::move(lost));
  return over;
}

bool is_settings_file(std::string_view path) {
  return path.ends_with(".yaml") || path.ends_with(".yml") || path.ends_with(".json") || path.ends_with(".toml");
}

const foreign::ShellWord* file_of_tool(const foreign::LaunchStage& stage, const foreign::LaunchLine& line) {
  if (stage.program != foreign::LaunchProgram::kScript) return nullptr;
  const std::string name = stage.name.substr(stage.name.rfind('/') + 1);
  // These take one as their first argument alone (swift/cli/main.py, llamafactory/hparams/parser.py).
  const bool is_first = name == "swift" || name == "megatron" || name == "llamafactory-cli";
  // transformers' examples take a file as their only argument (run_clm.py: len(sys.argv) == 2), and so do scripts and modules that
  // follow them.
  const bool is_only_argument =
      name.find('.') != std::string::npos && !name.ends_with(".sh") && stage.positionals.size() == 1 && line.stages.size() > 1 &&
      std::all_of(stage.options.begin(), stage.options.end(), [](const auto& one) { return one.name == "local_rank"; });
  // Flags behind a YAML file go over it (alignment-handbook, H4ArgumentParser.parse_yaml_and_args, and scripts that follow it).
  const bool is_in_front = name.ends_with(".py") && stage.positionals.size() == 1 && line.stages.size() > 1 &&
                           !stage.options.empty() && stage.positionals[0].span.begin < stage.options.front().span.begin &&
                           (stage.positionals[0].text.ends_with(".yaml") || stage.positionals[0].text.ends_with(".yml"));
  if (!is_first && !is_only_argument && !is_in_front && name != "axolotl" && name != "axolotl.cli.train" && name != "automodel")
    return nullptr;
  for (const foreign::ShellWord& word : stage.positionals) {
    if (word.text.find('=') != std::string::npos || !is_settings_file(word.text)) continue;
    // Behind an option it is one more of that option's values: --dataset a.json b.json.
    const bool is_behind_option = !stage.options.empty() && stage.options.front().span.begin < word.span.begin;
    return is_first && is_behind_option ? nullptr : &word;
  }
  return nullptr;
}

bool names_model(const std::string& text) {
  const size_t slash = text.rfind('/');
  if (slash == std::string::npos || text.find(':') != std::string::npos) return false;
  return text.find_first_not_of("0123456789", slash + 1) != std::string::npos || text.find('/') != slash;
}

namespace {

// Scripts of diffusers, and those that follow them, name steps and checkpoints in their own way, and their batch is of a device.
// Another tool's batch of that name is of all ranks, which a script of one's own does not have.
void take_batch_of_diffusers(Reading& reading) {
  const auto is_given_by = [&reading](const char* field, std::string_view key) {
    const auto it = reading.fields.find(field);
    return it != reading.fields.end() && is_same_key(it->second.key, key);
  };
  const auto global = reading.fields.find("train.global_batch");
  const bool is_other = global != reading.fields.end() && is_same_key(global->second.key, "train_batch_size");
  if (is_other && reading.table.empty()) {
    reading.lost.push_back({global->second.key, field_text(global->second.value), "", global->second.at, LostKey::Why::kUnknownKey});
    reading.fields.erase(global);
  }
  const auto batch = std::find_if(reading.lost.begin(), reading.lost.end(), [](const LostKey& one) {
    return is_same_key(one.key, "train_batch_size") && number_of(one.text).has_value();
  });
  const bool is_of_diffusers =
      is_given_by("train.steps", "max_train_steps") && is_given_by("checkpoint.every_steps", "checkpointing_steps");
  if (batch != reading.lost.end() && is_of_diffusers && reading.fields.count("micro_batch") == 0) {
    reading.fields["micro_batch"] = {value_of_text(batch->text), batch->key, batch->at};
    reading.lost.erase(batch);
  }
}

// "--mixed_precision bf16" of accelerate's loops goes over what its launcher says (Accelerator(mixed_precision=…)).
void take_precision(Reading& reading) {
  const auto precision = std::find_if(reading.lost.begin(), reading.lost.end(), [](const LostKey& one) {
    const bool is_its = is_same_key(one.key, "mixed_precision") || is_same_key(one.key, "precision");
    return is_its && (one.text == "bf16" || one.text == "fp16");
  });
  const auto computed = reading.fields.find("precision.compute");
  if (precision != reading.lost.end() && (computed == reading.fields.end() || computed->second.is_assumed)) {
    reading.fields["precision.compute"] = {Json(precision->text), precision->key, precision->at};
    reading.lost.erase(precision);
  }
}

// "--use_lora --lora_rank 10" beside another tool's names.
void take_adapters(Reading& reading) {
  const auto lost_key = [&reading](std::initializer_list<std::string_view> keys) {
    return std::find_if(reading.lost.begin(), reading.lost.end(), [&keys](const LostKey& one) {
      return std::any_of(keys.begin(), keys.end(), [&one](std::string_view key) { return is_same_key(one.key, key); });
    });
  };
  const auto on = lost_key({"use_lora", "enable_lora"}), rank = lost_key({"lora_rank", "lora_r"});
  const bool is_on = on != reading.lost.end() && same_name(on->text, "true");
  // alpaca-lora's script and its many children have no switch: who names a rank and its scale or matrices trains adapters.
  const bool is_implied = lost_key({"use_lora", "enable_lora", "lora_enable", "use_peft", "peft", "lora"}) == reading.lost.end() &&
                          rank != reading.lost.end() &&
                          lost_key({"lora_alpha", "lora_target_modules", "lora_targets"}) != reading.lost.end();
  if (!(is_on || is_implied) || reading.fields.count("train.finetune") != 0) return;
  const LostKey& told = is_on ? *on : *rank;
  reading.fields["train.finetune"] = {Json("lora"), told.key, told.at};
  if (is_on) reading.lost.erase(on);
  struct OfAdapters {
    const char* field;
    std::initializer_list<std::string_view> keys;
  };
  for (const OfAdapters& one : {OfAdapters{"train.lora_rank", {"lora_rank", "lora_r"}}, OfAdapters{"train.lora_alpha", {"lora_alpha"}},
                                OfAdapters{"train.lora_dropout", {"lora_dropout"}}}) {
    const auto found = lost_key(one.keys);
    if (found == reading.lost.end() || !number_of(found->text) || reading.fields.count(one.field) != 0) continue;
    reading.fields[one.field] = {value_of_text(found->text), found->key, found->at};
    reading.lost.erase(found);
  }
}

}  // namespace

// Arguments that mean one thing wherever a script has them.
void take_usual_names(Reading& reading) {
  struct Usual {
    std::string_view field;
    std::vector<std::string_view> keys;
    bool is_whole = true;
  };
  static const std::vector<Usual> kUsual = {
      {"train.sequence_length", {"sequence_length", "max_seq_len", "max_seq_length", "seq_length", "seq_len", "cutoff_len"}},
      {"train.learning_rate", {"lr", "learning_rate", "actor_learning_rate"}, false},
      {"micro_batch", {"per_device_train_batch_size", "per_device_batch_size", "per_gpu_train_batch_size", "per_gpu_batch_size"}},
      {"train.steps", {"max_train_steps", "num_training_steps"}},
      {"train.min_learning_rate", {"min_lr", "lr_min", "final_lr"}, false},
      {"derived.min_learning_rate_factor", {"min_lr_ratio"}, false},
      {"train.grad_clip", {"clip_grad", "grad_clip", "clip_grad_norm", "gradient_clip_val"}, false},
      {"train.warmup_steps", {"lr_warmup_steps", "num_warmup_steps"}},
      {"checkpoint.every_steps", {"checkpointing_steps"}},
      {"checkpoint.keep", {"checkpoints_total_limit"}},
      {"gradient_accumulation",
       {"gradient_accumulation_steps", "grad_accum_steps", "grad_accumulation_steps", "accumulation_steps", "accum_iter"}}};
  for (const Usual& usual : kUsual) {
    const auto given = reading.fields.find(usual.field);
    // Where the rate ends the schedule's name says, too, if nothing else does.
    const bool is_implied = given != reading.fields.end() && is_same_key(given->second.key, "lr_scheduler_type");
    if (given != reading.fields.end() && !given->second.is_assumed && !is_implied) continue;
    const auto is_it = [&usual](const LostKey& one) {
      const std::optional<double> number = number_of(one.text);
      const double least = usual.field == "train.warmup_steps" ? 0 : 1;
      const bool is_whole =
          number && *number >= least && *number < 1e7 && one.text.find_first_not_of("0123456789") == std::string::npos;
      return number && (is_whole || !usual.is_whole) &&
             std::any_of(usual.keys.begin(), usual.keys.end(), [&one](std::string_view key) { return is_same_key(one.key, key); });
    };
    const auto lost = std::find_if(reading.lost.begin(), reading.lost.end(), is_it);
    if (lost == reading.lost.end()) continue;
    const bool is_end = usual.field == "derived.min_learning_rate_factor";  // over what a table assumes of the rate at the end
    const auto end = reading.fields.find("train.min_learning_rate");
    const bool is_said = end != reading.fields.end() && !end->second.is_assumed && !is_same_key(end->second.key, "lr_scheduler_type");
    if (is_end && is_said) continue;
    if (is_end && end != reading.fields.end()) reading.fields.erase(end);
    Json value = usual.is_whole ? value_of_text(lost->text) : Json(*number_of(lost->text));
    reading.fields[std::string(usual.field)] = {std::move(value), lost->key, lost->at};
    reading.lost.erase(lost);
  }
  take_batch_of_diffusers(reading);
  take_precision(reading);
  take_adapters(reading);
  // "--peft_method lora": adapters, by the name of what makes them.
  const auto is_adapters = [](const LostKey& one) {
    const bool is_its =
        is_same_key(one.key, "peft_method") || is_same_key(one.key, "peft_type") || is_same_key(one.key, "tuning_method");
    return is_its && (one.text == "lora" || one.text == "qlora");
  };
  const auto adapters = std::find_if(reading.lost.begin(), reading.lost.end(), is_adapters);
  if (adapters == reading.lost.end() || reading.fields.count("train.finetune") != 0) return;
  reading.fields["train.finetune"] = {Json(adapters->text), adapters->key, adapters->at};
  reading.lost.erase(adapters);
}

bool switches_adapters_on(const std::vector<FoundKey>& found) {
  return std::any_of(found.begin(), found.end(), [](const FoundKey& one) {
    const bool is_switch = one.key.starts_with("use_") || one.key.starts_with("enable_");
    const bool is_of_adapters = one.key.find("lora") != std::string::npos || one.key.find("peft") != std::string::npos;
    return is_switch && is_of_adapters && one.unknown.empty() && is_same(one, Json(true));
  });
}

// "--zero-stage 1" without a file of DeepSpeed's, as in SwissArmyTransformer, which makes the file of it.
static void take_zero_stage_of_line(Reading& reading) {
  const auto has_file = [](const LostKey& one) { return one.key.find("deepspeed_config") != std::string::npos || one.is_file; };
  const auto stage = std::find_if(reading.lost.begin(), reading.lost.end(), [](const LostKey& one) {
    return is_same_key(one.key, "zero_stage") && one.text.size() == 1 && one.text[0] >= '0' && one.text[0] <= '3';
  });
  if (stage == reading.lost.end() || std::any_of(reading.lost.begin(), reading.lost.end(), has_file)) return;
  if (reading.fields.count("derived.zero_stage") != 0 || reading.fields.count("strategy.sharding") != 0) return;
  reading.fields.emplace("derived.zero_stage", ReadField{Json(stage->text[0] - '0'), stage->key, stage->at});
  reading.lost.erase(stage);  // whether DeepSpeed runs it the launcher says
}

void take_sharding(Reading& reading) {
  const auto is_given = [&reading](const char* field) { return reading.fields.count(field) != 0; };
  // "--ds_stage 3": DeepSpeed's, by its name; DeepSpeed-Chat's actor is what is trained.
  const auto stage = std::find_if(reading.lost.begin(), reading.lost.end(), [](const LostKey& one) {
    const bool is_stage =
        is_same_key(one.key, "ds_stage") || is_same_key(one.key, "deepspeed_stage") || is_same_key(one.key, "actor_zero_stage");
    return is_stage && one.text.size() == 1 && one.text[0] >= '0' && one.text[0] <= '3';
  });
  if (stage != reading.lost.end() && !is_given("derived.zero_stage")) {
    reading.fields.emplace("derived.zero_stage", ReadField{Json(stage->text[0] - '0'), stage->key, stage->at});
    reading.fields.emplace("strategy.trainer", ReadField{Json("deepspeed"), stage->key, stage->at, true});
    reading.lost.erase(stage);
  }
  take_zero_stage_of_line(reading);
  // Megatron's word for states that are sharded, whatever else a script adds to its arguments; its own FSDP shards more.
  const auto lost_key = [&reading](std::string_view key) {
    return std::find_if(reading.lost.begin(), reading.lost.end(), [key](const LostKey& one) { return is_same_key(one.key, key); });
  };
  const auto own = lost_key("use_distributed_optimizer");
  const bool is_on = own != reading.lost.end() && same_name(own->text, "true") && lost_key("use_megatron_fsdp") == reading.lost.end();
  if (!is_on || is_given("strategy.sharding") || is_given("derived.zero_stage")) return;
  reading.fields.emplace("strategy.sharding", ReadField{Json("zero1"), own->key, own->at});
  reading.fields.try_emplace("strategy.trainer", ReadField{Json("megatron"), own->key, own->at, true});
  reading.lost.erase(own);
}

constexpr std::array<std::string_view, 4> kFileOfDeepspeed = {"deepspeed_config", "deepspeed_cfg", "ds_config", "ds_cfg"};

void name_file_of_deepspeed(Reading& reading) {
  for (LostKey& lost : reading.lost) {
    const bool is_path = is_settings_file(lost.text) && lost.text.find_first_of("`<(") == std::string::npos;
    std::string key = lower(lost.key);
    std::replace(key.begin(), key.end(), '-', '_');
    const bool is_its = key == "deepspeed" || std::any_of(kFileOfDeepspeed.begin(), kFileOfDeepspeed.end(),
                                                          [&key](auto name) { return key.find(name) != std::string::npos; });
    if (is_its && is_path) name_file(lost);
  }
}

void explain_epochs(LostKey& lost) {
  for (const std::string_view key : {"epochs", "num_epochs", "num_train_epochs", "max_epochs", "n_epochs"}) {
    if (is_same_key(lost.key, key)) lost.reason = "epochs depend on the data: --steps";
  }
}

void take_model(Reading& reading) {
  if (reading.fields.count("model.name") != 0 || reading.fields.count("model.hub_id") != 0) return;
  const auto is_model = [](const LostKey& one) {
    const bool is_its = is_same_key(one.key, "model_name") || is_same_key(one.key, "model_name_or_path") ||
                        is_same_key(one.key, "base_model") || is_same_key(one.key, "model_id");
    const bool is_word = one.key == "model" && names_model(one.text);  // else it may be a word of the script's own
    if ((!is_its && !is_word) || one.text.find_first_of("$`{<") != std::string::npos) return false;
    if (names_model(one.text)) return true;
    const Result<Presets> presets = load_presets();
    return presets.ok() && find_model(*presets, one.text).ok();
  };
  const auto model = std::find_if(reading.lost.begin(), reading.lost.end(), is_model);
  if (model == reading.lost.end()) return;
  reading.fields.emplace("model.hub_id", ReadField{Json(model->text), model->key, model->at});
  reading.lost.erase(model);
}

void explain_own_arguments(const std::string& program, Reading& reading) {
  const bool is_module = program.find('.') != std::string::npos && program.find('/') == std::string::npos;  // python -m own.train
  if (!program.ends_with(".py") && !is_module) return;
  for (LostKey& lost : reading.lost) {
    if (lost.why != LostKey::Why::kUnknownKey) continue;
    lost.reason = reading.table == "config-argument/keys.yaml"
                      ? "no table knows the arguments of " + program
                      : fmt::format("none of the arguments of {}: the script declares it, or stops at it", reading.tool);
  }
}

}  // namespace distsetup
