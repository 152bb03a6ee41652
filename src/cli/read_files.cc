#include "cli/read_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "cli/run_source.h"

namespace distsetup {
namespace {

std::string place(const Location& at) { return at.line > 0 ? fmt::format("{}:{}", at.file, at.line) : at.file; }

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

}  // namespace

Result<std::vector<Reading>> read_foreign_files(const TemplateSet& templates, const std::vector<std::string>& paths,
                                                const std::string& as, const ReadChoices& choices) {
  std::vector<Reading> readings;
  Diagnostics diagnostics;
  for (const std::string& path : paths) {
    const Result<std::string> text = read_file(path);
    if (!text.ok()) {
      append(diagnostics, text.diagnostics);
      continue;
    }
    Result<std::vector<Reading>> read = read_config(templates, *text, path, as, choices);
    append(diagnostics, read.diagnostics);
    if (!read.value) continue;
    for (Reading& one : *read) {
      for (const Complaint& complaint : one.complaints) {
        if (complaint.trainer.empty()) diagnostics.push_back(complaint.diagnostic);
      }
      readings.push_back(std::move(one));
    }
  }
  const auto none = [&readings](auto has) { return std::none_of(readings.begin(), readings.end(), has); };
  if (!choices.stage.empty() && none([](const Reading& one) { return !one.stage.empty(); }) && !has_error(diagnostics)) {
    diagnostics.push_back(error(code::kUnknownValue, command_line(),
                                fmt::format("'--stage {}' is given, and no file has stages", choices.stage), "leave --stage out"));
  }
  for (const auto& [key, value] : choices.assignments) {
    const auto is_known = [&wanted = key](const Reading& one) {
      return std::find(one.assigned.begin(), one.assigned.end(), wanted) != one.assigned.end();
    };
    if (none(is_known) && !has_error(diagnostics)) {
      std::vector<std::string> known;
      for (const SpecKey& one : spec_keys()) known.emplace_back(one.path);
      for (const Reading& one : readings) {
        for (const auto& [name, field] : one.fields) known.push_back(field.key);
      }
      diagnostics.push_back(error(code::kUnknownKey, command_line(),
                                  fmt::format("'--set {}={}': neither a run nor the files have a key '{}'", key, value, key),
                                  suggest(key, known)));
    }
  }
  if (has_error(diagnostics)) return diagnostics;
  return {std::move(readings), std::move(diagnostics)};
}

std::string readings_text(const std::vector<Reading>& readings) {
  std::string out;
  for (const Reading& reading : readings) {
    const auto given =
        std::count_if(reading.fields.begin(), reading.fields.end(), [](const auto& one) { return !one.second.is_assumed; });
    out += fmt::format("{}: read as {}, {} setting{}\n", reading.file, reading.tool, given, given == 1 ? "" : "s");
  }
  return out;
}

std::string lost_text(const std::vector<LostKey>& lost) {
  if (lost.empty()) return "";
  std::string out = "could not be carried over:\n";
  size_t width = 0;
  for (const LostKey& one : lost) width = std::max(width, place(one.at).size());
  width = std::min<size_t>(width, 32);
  for (const LostKey& one : lost) {
    const std::string text = one.text.size() > 48 ? one.text.substr(0, 45) + "..." : one.text;
    out += fmt::format("  {:<{}}  {}{}: {}\n", place(one.at), width, one.key, text.empty() ? "" : " = " + text, one.reason);
  }
  return out;
}

// Every key by name; those of a section that is lost as a whole for one reason, as the section.
std::string lost_names(const std::vector<LostKey>& lost) {
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
    not_carried.push_back(
        {{"key", one.key}, {"value", one.text}, {"file", one.at.file}, {"line", one.at.line}, {"reason", one.reason}});
  }
  return {{"read", std::move(read)}, {"not_carried", std::move(not_carried)}};
}

Result<ForeignSpec> spec_of_fields(const ReadFields& fields, const Spec& stronger) {
  ForeignSpec out;
  Diagnostics diagnostics;
  ReadSettings read = settings_of(fields);
  out.lost = std::move(read.lost);
  const bool names_model =
      std::any_of(read.settings.begin(), read.settings.end(), [](const ReadSetting& one) { return one.path == "model"; }) ||
      stronger.find("model") != nullptr || stronger.model.has_value();
  for (const ReadSetting& setting : read.settings) {
    if (setting.path.compare(0, 6, "model.") == 0) {
      if (!names_model) add_geometry(out.given.model, setting);
      continue;
    }
    if (stronger.find(setting.path) != nullptr) continue;
    if (find_spec_key(setting.path) == nullptr) {
      out.lost.push_back({setting.key, setting.text, "a run has no such setting", setting.at});
      continue;
    }
    Diagnostics problems = set(setting.is_assumed ? out.assumed : out.given, setting.path, setting.text, setting.at);
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

Result<Spec> spec_over_files(const ForeignFiles& files, const Spec& stronger, bool& has_setup) {
  Result<TemplateSet> set = files.templates.empty() ? Result<TemplateSet>(embedded_templates()) : load_templates(files.templates);
  if (!set.ok()) return set.diagnostics;
  const Result<std::vector<Reading>> readings = read_foreign_files(*set, files.paths, "", files.choices);
  if (!readings.ok()) return readings.diagnostics;
  for (const Reading& one : *readings) has_setup = has_setup || !one.setup.empty();
  Result<ReadFields> fields = merge_readings(*readings);
  if (!fields.ok()) return fields.diagnostics;
  Result<ForeignSpec> read = spec_of_fields(*fields, stronger);
  if (!read.ok()) return read.diagnostics;
  Diagnostics diagnostics = readings.diagnostics;
  append(diagnostics, read.diagnostics);
  for (const Reading& one : *readings) read->lost.insert(read->lost.end(), one.lost.begin(), one.lost.end());
  if (!read->lost.empty()) {
    std::vector<std::string> words = {"distsetup", "convert", "--to", "run"};
    words.insert(words.end(), files.paths.begin(), files.paths.end());
    diagnostics.push_back(note(code::kKeyNotRead, {},
                               fmt::format("{} key{} of {} {} not supported here: {}", read->lost.size(),
                                           read->lost.size() == 1 ? "" : "s", files.paths.size() == 1 ? files.paths[0] : "the files",
                                           read->lost.size() == 1 ? "is" : "are", lost_names(read->lost)),
                               join_command(words) + " lists them with the reasons"));
  }
  return {merge(merge(read->assumed, read->given), stronger), std::move(diagnostics)};
}

}  // namespace distsetup
