#include "cli/settings/read_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/json.h"
#include "base/names.h"
#include "cli/settings/bundled_settings.h"
#include "cli/settings/file_origins.h"
#include "cli/settings/files_to_read.h"
#include "cli/settings/line_over_file.h"
#include "cli/settings/named_file.h"
#include "codegen/shell/directives.h"
#include "codegen/shell/quote.h"
#include "planner/resolve/named_model.h"
#include "planner/spec/spec_lookup.h"
#include "planner/spec/spec_table.h"

namespace distsetup {
namespace {

Value scalar_at(const ReadSetting& setting) { return scalar_value(setting.text, setting.at); }

// model.hidden and its like: an inline geometry, whose keys keep their places.
void add_geometry(std::optional<Value>& model, const ReadSetting& setting) {
  if (!model.has_value()) {
    model.emplace();
    model->kind = Value::Kind::kMap;
    model->location = setting.at;
  }
  model->entries.push_back({setting.path.substr(6), scalar_at(setting)});
  model->key_locations.push_back(setting.at);
}

// A model by name with a vocabulary of the file's own: {base: NAME, vocabulary: N}.
void put_vocabulary(const std::vector<ReadSetting>& settings, Spec& given, Spec& assumed) {
  const ReadSetting *model = nullptr, *vocabulary = nullptr;
  for (const ReadSetting& one : settings) {
    if (one.path == "model") model = &one;
    if (one.path == "model.vocabulary") vocabulary = &one;
  }
  if (model == nullptr || vocabulary == nullptr) return;
  Value map;
  map.kind = Value::Kind::kMap;
  map.location = model->at;
  map.entries = {{"base", scalar_at(*model)}, {"vocabulary", scalar_at(*vocabulary)}};
  map.key_locations = {model->at, vocabulary->at};
  for (Spec* spec : {&given, &assumed}) spec->settings.erase("model");
  given.model = std::move(map);
}

// What command lines among the files say of the others, below what the user says; nothing new: false.
bool add_choices(const std::vector<Reading>& readings, ReadChoices& choices) {
  bool is_new = false;
  for (const Reading& one : readings) {
    const auto take = [&is_new](std::string& into, const std::string& from) {
      is_new = is_new || (into.empty() && !from.empty());
      if (into.empty()) into = from;
    };
    take(choices.stage, one.chosen.stage);
    take(choices.setup, one.chosen.setup);
    for (const auto& [key, text] : one.chosen.assignments) {
      const bool is_said = std::any_of(choices.assignments.begin(), choices.assignments.end(),
                                       [&wanted = key](const auto& said) { return said.first == wanted; });
      if (is_said) continue;
      choices.assignments.emplace_back(key, text);
      is_new = true;
    }
  }
  return is_new;
}

// What a command line chose and no file has.
void tell_choices(std::vector<Reading>& readings) {
  const auto none = [&readings](auto has) { return std::none_of(readings.begin(), readings.end(), has); };
  for (Reading& one : readings) {
    const auto lose = [&one](std::string key, const std::string& text) {
      one.lost.push_back(
          {std::move(key), text, "it names a part of a config.yaml, which is not given: give it beside this file", {one.file}});
    };
    if (!one.chosen.stage.empty() && none([](const Reading& other) { return !other.stage.empty(); })) lose("stage", one.chosen.stage);
    for (const auto& [key, text] : one.chosen.assignments) {
      const auto takes = [&wanted = key](const Reading& other) {
        return std::find(other.assigned.begin(), other.assigned.end(), wanted) != other.assigned.end();
      };
      if (none(takes)) lose(key.substr(key.rfind('.') + 1), text);
    }
  }
}

// `said`: what of the choices the user said, who is told when no file has it. `input`: what standard input has, which is read once.
Result<std::vector<Reading>> read_files_once(const TemplateSet& templates, const std::vector<std::string>& paths,
                                             const std::string& as, const ReadChoices& choices, const ReadChoices& said,
                                             const Result<std::string>& input) {
  std::vector<Reading> readings;
  Diagnostics diagnostics;
  FilesToRead all(paths);
  std::set<std::string> below_config;
  std::vector<foreign::DocumentPointer> scripts;
  while (const FileToRead* next = all.next()) {
    const FileToRead file = *next;
    const bool is_input = file.is_given && file.path == "-";
    const std::string path = is_input ? "standard input" : file.path;
    if (file.is_below_config) below_config.insert(path);
    const Result<std::string> text = is_input ? input : read_file(path);
    if (!text.ok()) {
      append(diagnostics, text.diagnostics);
      continue;
    }
    const Result<foreign::DocumentPointer> document =
        foreign::parse_document(templates, path, foreign::with_options(*text, file.directives), file.given, read_beside(path));
    if (!document.ok()) return document.diagnostics;
    if ((*document)->is_script()) scripts.push_back(*document);
    Result<std::vector<Reading>> read = read_document(templates, **document, file.is_given ? as : file.table, choices);
    if (file.is_started && (!read.ok() || says_nothing_of_a_run(file, *read))) {
      if (file.is_helper) continue;
      diagnostics.push_back(warning(code::kUnknownValue, {path, 0, 0},
                                    "the job starts this script, and nothing that it starts is known",
                                    "give --trainer, --sharding and the model beside it"));
      continue;
    }
    if (file.is_config && (!read.ok() || is_of_own_form(**document, *read))) {
      const std::string why = read.ok()                  ? fmt::format("'{}' has keys of its own", path)
                              : read.diagnostics.empty() ? ""
                                                         : read.diagnostics[0].message;
      diagnostics.push_back(note(code::kUnknownValue, {path, 0, 0},
                                 fmt::format("the file that --{} names is not read: {}", file.option, why),
                                 "say beside it what it sets: --model, --trainer, --sharding"));
      continue;
    }
    append(diagnostics, read.diagnostics);
    if (!read.value) continue;
    for (Reading& one : *read) {
      for (auto& [name, field] : one.fields) {
        const bool is_of_job = name.starts_with("hardware.") || name == "derived.world" || name.starts_with("job.");
        field.is_guess = field.is_guess || (file.is_started && !file.is_submitted && is_of_job);
      }
      for (const Complaint& complaint : one.complaints) {
        if (complaint.trainer.empty()) diagnostics.push_back(complaint.diagnostic);
      }
      std::erase_if(one.lost, [&](const LostKey& lost) { return lost.is_file && all.add_named(lost, one, **document, diagnostics); });
      readings.push_back(std::move(one));
    }
  }
  for (const foreign::DocumentPointer& one : scripts) add_written_files(templates, *one, choices, readings, diagnostics);
  if (!has_error(diagnostics)) append(diagnostics, nothing_but_started(readings));
  append(diagnostics, read_lines_over_files(templates, readings));
  leave_sharding_to_the_line(readings, below_config, diagnostics);
  const auto none = [&readings](auto has) { return std::none_of(readings.begin(), readings.end(), has); };
  if (!said.stage.empty() && none([](const Reading& one) { return !one.stage.empty(); }) && !has_error(diagnostics)) {
    diagnostics.push_back(error(code::kUnknownValue, command_line(),
                                fmt::format("'--stage {}' is given, and no file has stages", said.stage), "leave --stage out"));
  }
  for (const auto& [key, value] : said.assignments) {
    const auto is_known = [&wanted = key](const Reading& one) {
      return std::find(one.assigned.begin(), one.assigned.end(), wanted) != one.assigned.end();
    };
    if (none(is_known) && !has_error(diagnostics)) {
      std::vector<std::string> known;
      for (const SpecKey& one : spec_keys()) known.emplace_back(one.path);
      for (const Reading& one : readings) {
        for (const auto& [name, field] : one.fields) known.push_back(field.key);
      }
      if (find_spec_key(key) != nullptr) {
        diagnostics.push_back(
            error(code::kUnknownKey, command_line(),
                  fmt::format("'--set {}={}': it is a key of a run, and only keys of the files are set here", key, value),
                  "plan and emit set keys of a run"));
        continue;
      }
      diagnostics.push_back(error(code::kUnknownKey, command_line(),
                                  fmt::format("'--set {}={}': neither a run nor the files have a key '{}'", key, value, key),
                                  suggest(key, known)));
    }
  }
  if (has_error(diagnostics)) return diagnostics;
  return {std::move(readings), std::move(diagnostics)};
}

}  // namespace

Result<std::vector<Reading>> read_foreign_files(const TemplateSet& templates, const std::vector<std::string>& paths,
                                                const std::string& as, const ReadChoices& choices) {
  ReadChoices all = choices;
  const bool has_input = std::find(paths.begin(), paths.end(), "-") != paths.end();
  const Result<std::string> input = has_input ? read_file("/dev/stdin") : Result<std::string>(std::string());
  Result<std::vector<Reading>> readings = read_files_once(templates, paths, as, all, choices, input);
  if (readings.ok() && add_choices(*readings, all)) readings = read_files_once(templates, paths, as, all, choices, input);
  if (readings.ok()) tell_choices(*readings);
  return readings;
}

Diagnostic mistake_of(const LostKey& lost) {
  Diagnostic one = lost.why == LostKey::Why::kUnknownKey
                       ? error(code::kUnknownKey, lost.at, fmt::format("'{}' is {}", lost.key, lost.reason))
                       : error(code::kUnknownValue, lost.at, fmt::format("'{}' is '{}': {}", lost.key, shown_text(lost), lost.reason));
  one.help = lost.help;
  one.length = static_cast<int>(lost.key.size() - std::min(lost.key.size(), lost.key.rfind('.') + 1));
  return one;
}

std::string readings_text(const std::vector<Reading>& readings) {
  std::string out;
  for (const Reading& reading : readings) {
    const auto given = std::count_if(reading.fields.begin(), reading.fields.end(), [](const auto& one) {
      const bool is_manner = one.first == "options.half_of_gpu" || one.first == "options.clips_as_told";  // of saying another one
      return !one.second.is_assumed && !is_manner;
    });
    out += fmt::format("{}: read as {}, {} setting{}\n", reading.file, reading.tool, given, given == 1 ? "" : "s");
  }
  return out;
}

// Every key by name; those of a section that is lost as a whole for one reason, as the section.
static std::string lost_names(const std::vector<LostKey>& lost) {
  std::string out;
  for (size_t i = 0; i < lost.size();) {
    const std::string section = lost[i].key.substr(0, lost[i].key.find('.'));
    size_t end = i + 1;
    while (end < lost.size() && lost[end].reason == lost[i].reason && lost[end].key.substr(0, lost[end].key.find('.')) == section)
      ++end;
    if (end - i > 3) {
      out += (out.empty() ? "" : ", ") + fmt::format("{}.* ({} keys)", section, end - i);
      i = end;
    }
    for (; i < end; ++i) out += (out.empty() ? "" : ", ") + lost[i].key;
  }
  return out;
}

Json readings_json(const std::vector<Reading>& readings, const std::vector<LostKey>& lost) {
  Json read = Json::array();
  for (const Reading& reading : readings) {
    Json fields = Json::array();
    for (const auto& [name, field] : reading.fields) {
      fields.push_back(
          {{"field", name}, {"value", field.value}, {"key", field.key}, {"line", field.at.line}, {"assumed", field.is_assumed}});
    }
    read.push_back({{"file", reading.file}, {"as", reading.tool}, {"fields", std::move(fields)}});
  }
  Json not_carried = Json::array();
  for (const LostKey& one : lost) {
    not_carried.push_back({{"key", one.key},
                           {"value", shown_text(one)},
                           {"file", one.at.file},
                           {"line", one.at.line},
                           {"reason", one.reason},
                           {"help", one.help}});
  }
  return {{"read", std::move(read)}, {"not_carried", std::move(not_carried)}};
}

void settle_by_model(ReadFields& fields, const Presets& presets, const Spec& stronger) {
  if (fields.count("derived.layers_per_virtual_stage") == 0 || fields.count("model.num_layers") != 0) return;
  std::string name = stronger.text("model").value_or("");
  for (const char* field : {"model.name", "model.hub_id"}) {
    const auto it = fields.find(field);
    if (name.empty() && it != fields.end()) name = field_text(it->second.value);
  }
  if (name.empty()) return;
  const Result<Geometry> model = named_model(presets, name, {});
  if (!model.ok()) return;
  ReadField layers = fields.find("derived.layers_per_virtual_stage")->second;
  layers.value = model->num_layers;
  fields.emplace("model.num_layers", std::move(layers));
  settle_derived(fields);
  fields.erase("model.num_layers");
}

Result<ForeignSpec> spec_of_fields(const ReadFields& read_fields, const Presets& presets, const Spec& stronger) {
  ReadFields fields = read_fields;
  settle_by_model(fields, presets, stronger);
  ForeignSpec out;
  Diagnostics diagnostics;
  ReadSettings read = settings_of(fields);
  out.lost = std::move(read.lost);
  const bool names_model =
      std::any_of(read.settings.begin(), read.settings.end(), [](const ReadSetting& one) { return one.path == "model"; }) ||
      stronger.find("model") != nullptr || stronger.model.has_value();
  const bool has_sizes = std::any_of(read.settings.begin(), read.settings.end(), [](const ReadSetting& one) {
    return one.path.starts_with("model.") && one.path != "model.family";
  });
  const BundledSettings bundled(read.settings, stronger);
  for (const ReadSetting& setting : read.settings) {
    if (setting.path.compare(0, 6, "model.") == 0) {
      if (!names_model && !has_sizes) {
        out.lost.push_back({setting.key, setting.text, "no size of it is known here: --model", setting.at});
      } else if (!names_model) {
        add_geometry(out.given.model, setting);
      }
      continue;
    }
    if (stronger.find(setting.path) != nullptr) continue;
    if (find_spec_key(setting.path) == nullptr) {
      out.lost.push_back({setting.key, setting.text, "a run has no such setting", setting.at});
      continue;
    }
    if (setting.path == "hardware.gpu" && setting.text != "cpu" && !find_gpu(presets, setting.text).ok()) {
      out.lost.push_back({setting.key, setting.text, "no preset has this GPU: --gpu", setting.at});
      continue;
    }
    if (std::optional<LostKey> lost = bundled.lost(setting)) {
      if (!setting.is_assumed) out.lost.push_back(std::move(*lost));
      continue;
    }
    Spec& into = setting.is_assumed ? out.assumed : out.given;
    // Keys of several settings of a file are items of one list here.
    const Setting* before = setting.path == "data.fields" ? into.find(setting.path) : nullptr;
    Diagnostics problems = set(into, setting.path, before == nullptr ? setting.text : before->text + "," + setting.text, setting.at);
    for (Diagnostic& one : problems) {
      one.message = fmt::format("'{}': {}", setting.key, one.message);
      one.length = 1;
    }
    append(diagnostics, std::move(problems));
  }
  if (has_error(diagnostics)) return diagnostics;
  if (stronger.find("model") == nullptr && !stronger.model.has_value()) put_vocabulary(read.settings, out.given, out.assumed);
  return {std::move(out), std::move(diagnostics)};
}

void give_way(Spec& assumed, const Spec& said) {
  const auto drop_if = [&assumed](bool is_wrong, const char* path) {
    if (is_wrong) assumed.settings.erase(path);
  };
  const Spec all = merge(assumed, said);
  const auto warmup = all.integer("train.warmup_steps"), steps = all.integer("train.steps");
  drop_if(warmup && steps && *warmup > *steps, "train.warmup_steps");
  const auto least = all.number("train.min_learning_rate"), peak = all.number("train.learning_rate");
  const bool stays = all.text("train.lr_schedule").value_or("") == "constant";
  drop_if(stays || (least && peak && *least > *peak), "train.min_learning_rate");
  const std::string sharding = all.text("parallel.sharding").value_or("");
  drop_if(sharding != "zero3", "parallel.reshard_after_forward");
  const bool shards = sharding == "zero1" || sharding == "zero2" || sharding == "zero3";
  drop_if(!shards || said.find("parallel.dp_shard") != nullptr, "parallel.dp_replicate");
  // Another trainer's default; the bundled one has no tensor parallelism without it, and says that it assumes it.
  drop_if(all.text("trainer.name") == std::string(kNative), "parallel.sequence_parallel");
}

Result<ForeignFiles> open_foreign_files(const std::vector<std::string>& paths, const ReadChoices& choices,
                                        const TemplateSet& templates) {
  ForeignFiles files;
  files.paths = paths;
  std::string setup = choices.setup;
  Diagnostics diagnostics;
  if (!paths.empty()) {
    Result<std::vector<Reading>> readings = read_foreign_files(templates, paths, "", choices);
    if (!readings.ok()) return readings.diagnostics;
    diagnostics = std::move(readings.diagnostics);
    files.readings = std::move(*readings);
  }
  for (const Reading& one : files.readings) {
    if (setup.empty()) setup = one.chosen.setup;
  }
  const bool is_there =
      std::any_of(files.readings.begin(), files.readings.end(), [](const Reading& one) { return !one.setup.empty(); });
  if (!setup.empty() && !is_there) files.other_setups = {setup};
  return {std::move(files), std::move(diagnostics)};
}

Result<LayerSpec> read_foreign_layer(const ForeignFiles& files, const Presets& presets, const Spec& stronger) {
  if (files.paths.empty()) return LayerSpec{};
  const Result<ReadFields> fields = merge_readings(files.readings);
  if (!fields.ok()) return fields.diagnostics;
  Result<ForeignSpec> read = spec_of_fields(*fields, presets, stronger);
  if (!read.ok()) return read.diagnostics;
  Diagnostics diagnostics = std::move(read.diagnostics);
  for (const Reading& one : files.readings) read->lost.insert(read->lost.end(), one.lost.begin(), one.lost.end());
  // A value that is none is told in full: whoever runs the file may take it for another one. It is no error here, as the tool may know
  // more than the table. A flag that is repeated is told once.
  std::set<std::string> told;
  for (const LostKey& one : read->lost) {
    if (one.why != LostKey::Why::kValue || !told.insert(one.key + "=" + one.text).second) continue;
    diagnostics.push_back(mistake_of(one));
    diagnostics.back().severity = Severity::kWarning;
  }
  std::erase_if(read->lost, [](const LostKey& one) { return one.why == LostKey::Why::kValue; });
  const std::string names = files.paths.size() == 1 ? files.paths[0] : "the files";
  diagnostics.push_back(tell_file_origins(names, read->given, read->assumed, stronger));
  if (stronger.find("parallel.sharding") == nullptr) append(diagnostics, unread_strategy(files.readings));
  if (!read->lost.empty()) {
    std::vector<std::string> words = {"distsetup", "convert", "--to", "run"};
    words.insert(words.end(), files.paths.begin(), files.paths.end());
    diagnostics.push_back(
        note(code::kKeyNotRead, {},
             fmt::format("{} key{} of {} {} not supported here: {}", read->lost.size(), read->lost.size() == 1 ? "" : "s", names,
                         read->lost.size() == 1 ? "is" : "are", lost_names(read->lost)),
             join_command(words) + " lists them with the reasons"));
  }
  return {LayerSpec{std::move(read->given), std::move(read->assumed)}, std::move(diagnostics)};
}

}  // namespace distsetup
