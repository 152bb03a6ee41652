#include "codegen/read/best_table.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/names.h"
#include "codegen/read/key_reading.h"
#include "codegen/read/known_keys.h"
#include "codegen/read/match.h"
#include "codegen/read/own_arguments.h"
#include "codegen/read/parts.h"
#include "codegen/read/read_keys.h"
#include "codegen/tables/accepted_names.h"
#include "codegen/tables/fields.h"
#include "codegen/tables/load_table.h"

namespace distsetup {
namespace {

bool says_format(std::string_view table, std::string_view format) {
  return table.find("\nformat: " + std::string(format)) != std::string_view::npos;
}

size_t num_known(const KeyTable& table, const std::vector<FoundKey>& found) {
  return static_cast<size_t>(std::count_if(found.begin(), found.end(), [&table](const FoundKey& one) {
    std::string key = one.key;
    for (const auto& [from, to] : table.read_as) {
      if (key.size() >= from.size() && is_same_key(std::string_view(key).substr(0, from.size()), from))
        key = to + key.substr(from.size());
    }
    return std::any_of(table.rows.begin(), table.rows.end(), [&key](const KeyRow& row) { return is_same_key(row.key, key); }) ||
           std::any_of(table.reads.begin(), table.reads.end(), [&key](const ReadRow& row) { return is_same_key(row.key, key); });
  }));
}

TakenParts parts_of(const KeyTable& table, const FileSource& source) {
  TakenParts out;
  if (source.root != nullptr) {
    out = take_parts(table, *source.root, *source.choices);
    out.found.insert(out.found.end(), source.found.begin(), source.found.end());
    return out;
  }
  out.found = source.found;
  return out;
}

Reading reading_of(const KeyTable& table, TakenParts parts, const std::string& path, const std::string& file) {
  Reading reading = read_keys(table, parts.found, file);
  reading.table = path;
  reading.lost.insert(reading.lost.end(), parts.lost.begin(), parts.lost.end());
  reading.stage = std::move(parts.stage);
  reading.setup = std::move(parts.setup);
  reading.assigned = std::move(parts.assigned);
  return reading;
}

// Of a file without a key that the table has a row of its own for: sections it takes one entry of, keys below a "wandb.*" of it.
size_t num_half_known(const KeyTable& table, const FileSource& source, const TakenParts& parts) {
  if (source.root == nullptr) return 0;
  const auto is_known = [&table](const FoundKey& one) {
    return std::any_of(table.reads.begin(), table.reads.end(), [&one](const ReadRow& row) { return is_below(row.key, one.key); });
  };
  return parts.num_sections + static_cast<size_t>(std::count_if(parts.found.begin(), parts.found.end(), is_known));
}

// The tool has this argument, in whatever form.
bool takes(const KeyTable& table, const FoundKey& found) {
  const std::string key = named(table, found.key);
  const auto is_it = [&key](const auto& row) { return is_below(row.key, key); };
  return std::any_of(table.rows.begin(), table.rows.end(), is_it) || std::any_of(table.reads.begin(), table.reads.end(), is_it) ||
         table.accepted.count(accepted_form(key)) != 0;
}

// "--stage 2" of ZeRO where the tool's stage is a word.
bool is_number_for_word(const KeyTable& table, const FoundKey& found) {
  const bool is_number = !found.text.empty() && found.text.find_first_not_of("0123456789") == std::string::npos;
  return is_number && std::any_of(table.rows.begin(), table.rows.end(), [&found](const KeyRow& row) {
           return row.type == KeyType::kText && !row.value_map.empty() && is_same_key(row.key, found.key);
         });
}

bool is_told(const KeyTable& table, const std::vector<FoundKey>& found) {
  const auto is_there = [&](const std::string& mark) {
    return std::any_of(found.begin(), found.end(),
                       [&](const FoundKey& one) { return is_below(mark, one.key) && !is_number_for_word(table, one); });
  };
  if (std::any_of(table.not_told_by.begin(), table.not_told_by.end(), is_there)) return false;
  const bool is_of_files = table.format != TableFormat::kArguments && table.told_by.empty();
  if (is_of_files) return false;  // its keys stand in a file, not on a command line
  const std::vector<std::string>& marks = table.told_by.empty() ? table.marks : table.told_by;
  const auto num_taken =
      static_cast<size_t>(std::count_if(found.begin(), found.end(), [&table](const FoundKey& one) { return takes(table, one); }));
  if (!is_most(num_taken, found.size())) return false;
  return marks.empty() ? num_taken >= 3 : std::any_of(marks.begin(), marks.end(), is_there);
}

// trl sft, python -m trl.scripts.dpo, trl/scripts/sft.py: the programs that TRL is released with.
bool is_script_of_trl(const std::string& program) {
  return program.substr(program.rfind('/') + 1) == "trl" || program.starts_with("trl.scripts.") ||
         program.starts_with("trl/scripts/") || program.find("/trl/scripts/") != std::string::npos;
}

// What a script that takes a tool's arguments has beside them.
void take_names_of_scripts(const std::string& program, Reading& reading) {
  take_usual_names(reading);
  take_sharding(reading);
  take_model(reading);
  explain_own_arguments(program, reading);
  name_file_of_deepspeed(reading);
}

}  // namespace

Reading as_own_script(Reading reading, const std::string& program, const std::vector<FoundKey>& found) {
  reading.table.clear();
  const std::string tool = reading.tool;
  reading.tool = "arguments of " + program + ", by their usual names";
  const auto is_rank = [](const std::string& key) { return is_same_key(key, "lora_r") || is_same_key(key, "lora_rank"); };
  std::vector<ReadField> guessed;
  std::erase_if(reading.fields, [&](const auto& one) {
    // "--use_lora": of 4 bits or not, adapters.
    const bool is_switch = one.first == "train.finetune" && (!is_rank(one.second.key) || switches_adapters_on(found));
    // Transformers' own name of a schedule, whose end goes with it.
    const bool is_end = one.first == "train.min_learning_rate" && is_same_key(one.second.key, "lr_scheduler_type");
    const bool is_guess = one.second.is_guess && !is_switch && !is_end && !one.second.is_assumed;
    if (is_guess) guessed.push_back(one.second);
    return one.second.is_assumed || is_guess;
  });
  take_usual_names(reading);
  const auto lose = [&reading, &found](const ReadField& field) {
    const std::string& key = field.key;
    const auto as_given = std::find_if(found.begin(), found.end(), [&key](const FoundKey& one) { return is_same_key(one.key, key); });
    reading.lost.push_back(
        {key, as_given == found.end() ? field_text(field.value) : as_given->text, "", field.at, LostKey::Why::kUnknownKey});
  };
  // What another tool would make of it is not known here, and it is no word that means one thing everywhere.
  for (const ReadField& one : guessed) {
    const auto is_lost = [&one](const LostKey& lost) { return is_same_key(lost.key, one.key); };
    const auto is_taken = [&one](const auto& field) { return is_same_key(field.second.key, one.key); };
    const bool is_known = std::any_of(reading.lost.begin(), reading.lost.end(), is_lost) ||
                          std::any_of(reading.fields.begin(), reading.fields.end(), is_taken);
    if (!is_known && !one.key.starts_with("(")) lose(one);
  }
  const auto lose_if = [&reading, &lose](const std::string& field, const auto& is_own) {
    const auto it = reading.fields.find(field);
    if (it == reading.fields.end() || !is_own(it->second)) return;
    lose(it->second);
    reading.fields.erase(it);
  };
  // "--model" is a word of the script's own, unless it looks like a path or a name on the Hub.
  lose_if("model.name", [](const auto& one) { return !names_model(field_text(one.value)); });
  // A rank is of whatever the script puts adapters on, unless it says that the model is tuned by them.
  for (const char* field : {"train.lora_rank", "train.lora_alpha", "train.lora_targets", "train.rslora"})
    lose_if(field, [&reading](const auto&) { return reading.fields.count("train.finetune") == 0; });
  // SwAV's is of its clustering, others' of an attack: an epsilon of Adam is small.
  lose_if("train.epsilon", [](const auto& one) {
    constexpr double kMostOfAdam = 1e-3;
    const std::optional<double> value = number_of(field_text(one.value));
    return is_same_key(one.key, "epsilon") && value && *value > kMostOfAdam;
  });
  // A seed is a seed, whatever Megatron makes of 0.
  if (auto seed = reading.fields.extract("derived.positive_seed"); !seed.empty())
    reading.fields.emplace("train.seed", std::move(seed.mapped()));
  // So is "--method", unless it is one of a run's.
  lose_if("train.method", [](const auto& one) {
    const std::string text = field_text(one.value);
    return text != "pretrain" && text != "sft" && text != "dpo";
  });
  // "--mixed-precision" alone says that there is some, and not of what.
  lose_if("precision.compute", [&found](const auto& one) {
    const auto it = std::find_if(found.begin(), found.end(), [&one](const FoundKey& key) { return is_same_key(key.key, one.key); });
    return is_same_key(one.key, "mixed_precision") && it != found.end() && it->stands_alone;
  });
  // Some sizes of a model make none: the script has the others, or the model they are of is only a part.
  const auto is_given = [&reading](const char* field) { return reading.fields.count(field) != 0; };
  if (!is_given("model.hidden") || !is_given("model.num_layers") || !is_given("model.num_heads")) {
    std::vector<std::string> sizes;
    for (const auto& [field, value] : reading.fields) {
      if (field.starts_with("model.") && field != "model.name" && field != "model.hub_id" && field != "model.family")
        sizes.push_back(field);
    }
    for (const std::string& field : sizes) lose_if(field, [](const auto&) { return true; });
  }
  // "--batch_size" is of a process in one script and of all of them in the next.
  lose_if("micro_batch", [](const auto& one) { return is_same_key(one.key, "batch_size"); });
  // Beside a micro-batch by name "--per_device_train_batch_size" is of all steps that are accumulated.
  lose_if("micro_batch", [&found](const auto& one) {
    const auto is_other = [&one](const FoundKey& key) {
      const bool is_micro = is_same_key(key.key, "micro_train_batch_size") || is_same_key(key.key, "micro_batch_size");
      return is_micro && !is_same_key(key.key, one.key) && key.text != field_text(one.value);
    };
    return std::any_of(found.begin(), found.end(), is_other);
  });
  take_sharding(reading);
  // "--enable_fsdp" alone: of which form it does not say, unless another of its words does.
  const auto fsdp = std::find_if(reading.lost.begin(), reading.lost.end(), [](const LostKey& one) {
    return (is_same_key(one.key, "enable_fsdp") || is_same_key(one.key, "use_fsdp")) && same_name(one.text, "true");
  });
  if (fsdp != reading.lost.end() && reading.fields.count("strategy.sharding") == 0) {
    reading.fields.emplace("strategy.sharding", ReadField{Json("zero3"), fsdp->key, fsdp->at, false, true});
    reading.lost.erase(fsdp);
  }
  // AdamW by its plain name, whatever another tool calls its own.
  const auto plain = std::find_if(reading.lost.begin(), reading.lost.end(), [](const LostKey& one) {
    return (is_same_key(one.key, "optimizer") || is_same_key(one.key, "optim")) && same_name(one.text, "adamw");
  });
  if (plain != reading.lost.end()) {
    ReadField field{Json("adamw"), plain->key, plain->at};
    reading.fields.try_emplace("train.optimizer", std::move(field));
    reading.lost.erase(plain);
  }
  take_model(reading);
  reading.contradictions.clear();
  reading.complaints.clear();
  for (LostKey& lost : reading.lost) {
    // What another tool makes of a key of that name is no reason here.
    const bool is_config = is_same_key(lost.key, "config_file") || is_same_key(lost.key, "config");
    if (is_config && (lost.is_file || is_settings_file(lost.text))) {
      name_file(lost);
      continue;
    }
    if (lost.why == LostKey::Why::kNotSupported && lost.reason.find(tool) == std::string::npos) continue;
    lost.why = LostKey::Why::kNotSupported;
    lost.reason = "no table knows the arguments of " + program;
    lost.help.clear();
  }
  for (LostKey& lost : reading.lost) explain_epochs(lost);
  name_file_of_deepspeed(reading);
  return reading;
}

FoundKey script_of_trl(const std::string& program) {
  FoundKey script;
  script.key = "trl_script";
  script.text = program;
  script.is_assumed = true;
  return script;
}

std::vector<std::string> tables_of(const TemplateSet& templates, const std::vector<std::string_view>& formats) {
  std::vector<std::string> out;
  for (const auto& [path, text] : templates.files) {
    const bool is_table = path[0] != '_' && path.ends_with("keys.yaml");
    if (is_table &&
        std::any_of(formats.begin(), formats.end(), [&t = text](std::string_view format) { return says_format(t, format); }))
      out.push_back(path);
  }
  return out;
}

Result<Reading> best_reading(const TemplateSet& templates, const std::vector<std::string>& tables, const FileSource& source,
                             const std::string& file) {
  struct Candidate {
    const std::string* path;
    std::shared_ptr<const KeyTable> table;
    TakenParts parts;
  };
  std::vector<Candidate> nearest;  // those that know the most keys: only they are read, which takes long
  std::pair<size_t, size_t> most;
  for (const std::string& path : tables) {
    const auto table = load_read_table(templates, path, {file, 0, 0});
    if (!table.ok()) return table.diagnostics;
    TakenParts parts = parts_of(**table, source);
    if ((*table)->is_told_only && !is_told(**table, parts.found)) continue;
    std::pair<size_t, size_t> known = {num_known(**table, parts.found), 0};
    if (known.first == 0) known.second = num_half_known(**table, source, parts);
    if (known == std::pair<size_t, size_t>() || known < most) continue;
    if (known > most) nearest.clear();
    most = known;
    nearest.push_back({&path, *table, std::move(parts)});
  }
  const auto rest = [](const Reading& one) {
    const auto is_assumed = [](const auto& field) { return field.second.is_assumed; };
    return std::tuple(one.lost.size(), one.num_missing, std::count_if(one.fields.begin(), one.fields.end(), is_assumed));
  };
  Reading best;
  Diagnostics diagnostics;
  for (Candidate& one : nearest) {
    Diagnostics said = std::move(one.parts.diagnostics);
    Reading reading = reading_of(*one.table, std::move(one.parts), *one.path, file);
    if (&one != &nearest.front() && rest(reading) >= rest(best)) continue;
    best = std::move(reading);
    diagnostics = std::move(said);
  }
  if (has_error(diagnostics)) return diagnostics;
  return best;
}

namespace {

// --training_args.bf16 true: the fields of a dataclass that tyro, quinine and jsonargparse name by the argument that holds it.
std::vector<FoundKey> without_dataclass(std::vector<FoundKey> found) {
  for (FoundKey& one : found) {
    const size_t dot = one.key.find('.');
    const std::string head = lower(one.key.substr(0, dot));
    const bool is_trainers = head == "training_args" || head == "training_arguments" || head == "train_args" || head == "trainer_args";
    if (dot != std::string::npos && is_trainers) one.key.erase(0, dot + 1);
  }
  return found;
}

}  // namespace

Result<Reading> reading_of_program(const TemplateSet& templates, const std::string& program, const std::vector<FoundKey>& keys,
                                   const std::string& file) {
  const std::vector<FoundKey> found = without_dataclass(keys);
  const std::vector<std::string> tables = tables_of(templates, {"arguments", "json", "yaml"});
  const FileSource source{nullptr, found, nullptr};
  // A tool's own command line takes its own names, however few of them there are.
  static const std::map<std::string, std::string, std::less<>> kOfTools = {{"llamafactory-cli", "llamafactory/keys.yaml"},
                                                                           {"swift", "ms-swift/keys.yaml"},
                                                                           {"axolotl", "axolotl/keys.yaml"},
                                                                           {"axolotl.cli.train", "axolotl/keys.yaml"},
                                                                           {"automodel", "automodel/keys.yaml"},
                                                                           {"megatron", "ms-swift-megatron/keys.yaml"}};
  if (const auto own = kOfTools.find(program.substr(program.rfind('/') + 1)); own != kOfTools.end())
    return reading_by(templates, own->second, source, file);
  if (is_script_of_trl(program)) {
    std::vector<FoundKey> with_script = found;
    with_script.push_back(script_of_trl(program));
    Result<Reading> own = reading_by(templates, "trl/keys.yaml", {nullptr, with_script, nullptr}, file);
    if (!own.ok()) return own;
    explain_own_arguments(program, *own);
    own->is_own_program = true;
    return own;
  }
  // torchtitan takes its whole configuration by flags since 0.3, by --module and --config; before, the flag of a TOML file.
  const bool is_torchtitan = program == "torchtitan.train" && std::any_of(found.begin(), found.end(), [](const FoundKey& one) {
                               return is_same_key(one.key, "module") && !one.stands_alone;
                             });
  if (is_torchtitan) return reading_by(templates, "torchtitan/keys.yaml", source, file);
  if (std::optional<Result<Reading>> over = over_file_of_torchtitan(templates, found, file)) return std::move(*over);
  Result<Reading> best = best_reading(templates, tables, source, file);
  if (!best.ok() || best->table.empty()) return best;
  std::vector<std::string> told;
  for (const std::string& path : tables) {
    const auto table = load_read_table(templates, path, {file, 0, 0});
    if (!table.ok()) return table.diagnostics;
    if (!is_told(**table, found)) continue;
    if (path == best->table) {
      take_names_of_scripts(program, *best);
      return best;
    }
    if (!(*table)->told_by.empty()) told.push_back(path);
  }
  if (told.empty()) return as_own_script(std::move(*best), program, found);
  best = best_reading(templates, told, source, file);
  if (!best.ok()) return best;
  take_names_of_scripts(program, *best);
  return best;
}

Result<Reading> reading_by(const TemplateSet& templates, const std::string& path, const FileSource& source, const std::string& file) {
  const auto table = load_read_table(templates, path, {file, 0, 0});
  if (!table.ok()) return table.diagnostics;
  TakenParts parts = parts_of(**table, source);
  if (has_error(parts.diagnostics)) return parts.diagnostics;
  return reading_of(**table, std::move(parts), path, file);
}

}  // namespace distsetup
