#include "cli/read_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "cli/run_source.h"

namespace distsetup {
namespace {

std::string place(const Location& at) { return at.line > 0 ? fmt::format("{}:{}", at.file, at.line) : at.file; }

// model.hidden and its like: an inline geometry, whose keys keep their places.
void add_geometry(std::optional<Value>& model, const ReadSetting& setting) {
  if (!model.has_value()) {
    model.emplace();
    model->kind = Value::Kind::kMap;
    model->location = setting.at;
  }
  Value value;
  value.kind = Value::Kind::kScalar;
  value.text = setting.text;
  value.location = setting.at;
  model->entries.push_back({setting.path.substr(6), std::move(value)});
  model->key_locations.push_back(setting.at);
}

}  // namespace

Result<std::vector<Reading>> read_foreign_files(const TemplateSet& templates, const std::vector<std::string>& paths,
                                                const std::string& as) {
  std::vector<Reading> readings;
  Diagnostics diagnostics;
  for (const std::string& path : paths) {
    const Result<std::string> text = read_file(path);
    if (!text.ok()) {
      append(diagnostics, text.diagnostics);
      continue;
    }
    Result<std::vector<Reading>> read = read_config(templates, *text, path, as);
    append(diagnostics, read.diagnostics);
    if (!read.value) continue;
    for (Reading& one : *read) readings.push_back(std::move(one));
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
    out += fmt::format("  {:<{}}  {} = {}: {}\n", place(one.at), width, one.key, text, one.reason);
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
  return {std::move(out), std::move(diagnostics)};
}

Result<Spec> spec_over_files(const std::vector<std::string>& paths, const std::string& templates, const Spec& stronger) {
  Result<TemplateSet> set = templates.empty() ? Result<TemplateSet>(embedded_templates()) : load_templates(templates);
  if (!set.ok()) return set.diagnostics;
  const Result<std::vector<Reading>> readings = read_foreign_files(*set, paths, "");
  if (!readings.ok()) return readings.diagnostics;
  Result<ReadFields> fields = merge_readings(*readings);
  if (!fields.ok()) return fields.diagnostics;
  Result<ForeignSpec> read = spec_of_fields(*fields, stronger);
  if (!read.ok()) return read.diagnostics;
  Diagnostics diagnostics = readings.diagnostics;
  append(diagnostics, read.diagnostics);
  for (const Reading& one : *readings) read->lost.insert(read->lost.end(), one.lost.begin(), one.lost.end());
  if (!read->lost.empty()) {
    std::string first;
    for (size_t i = 0; i < read->lost.size() && i < 3; ++i) first += (i > 0 ? ", " : "") + read->lost[i].key;
    std::vector<std::string> words = {"distsetup", "convert", "--to", "run"};
    words.insert(words.end(), paths.begin(), paths.end());
    diagnostics.push_back(note(code::kKeyNotRead, {},
                               fmt::format("{} key{} could not be carried over: {}{}", read->lost.size(),
                                           read->lost.size() == 1 ? "" : "s", first, read->lost.size() > 3 ? ", …" : ""),
                               join_command(words) + " lists them with the reasons"));
  }
  return {merge(merge(read->assumed, read->given), stronger), std::move(diagnostics)};
}

}  // namespace distsetup
