#include "planner/spec/data_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/map_reader.h"
#include "base/text.h"
#include "base/value_yaml.h"
#include "data/source_rows.h"

namespace distsetup {
namespace {

std::optional<double> weight_of(const std::string& text) {
  double weight = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), weight);
  const bool is_whole = failed == std::errc() && end == text.data() + text.size();
  return is_whole && weight > 0 && weight < 1e9 ? std::optional(weight) : std::nullopt;
}

Diagnostics take_field_names(const Value& fields, DataSource& source) {
  if (fields.kind != Value::Kind::kMap)
    return {error(code::kWrongType, fields.location, "fields is no map, expected {prompt: question}")};
  Diagnostics said;
  for (const auto& [ours, theirs] : fields.entries) {
    const Result<std::string> text = as_text(theirs);
    append(said, text.diagnostics);
    if (text.ok()) source.fields[ours] = *text;
  }
  return said;
}

Result<DataSource> source_from_map(const Value& value) {
  DataSource source;
  Diagnostics said;
  MapReader keys(value, "source", said);
  keys.require("path");
  keys.get("path", source.path);
  keys.get("subset", source.subset);
  if (keys.get("weight", source.weight) && !(source.weight > 0 && source.weight < 1e9))
    said.push_back(error(code::kOutOfRange, value.find("weight")->location,
                         fmt::format("weight is {}, expected a number above 0", source.weight)));
  keys.get("format", source.format);
  append(said, check_source_format(source.format, value.location));
  if (const Value* fields = keys.child("fields")) append(said, take_field_names(*fields, source));
  keys.finish();
  if (has_error(said)) return said;
  return source;
}

// A path, or a map.
Result<DataSource> source_from(const Value& value) {
  if (value.kind == Value::Kind::kMap) return source_from_map(value);
  const Result<std::string> path = as_text(value);
  if (!path.ok() || path->empty())
    return error(code::kWrongType, value.location, "a source is no path and no map, expected {path: FILE, weight: NUMBER}");
  return DataSource{*path, "", 0, "", {}};
}

std::string item_of(const DataSource& source) {
  if (source.subset.empty() && source.weight == 0 && source.format.empty() && source.fields.empty()) return source.path;
  Json json = {{"path", source.path}};
  if (!source.subset.empty()) json["subset"] = source.subset;
  if (source.weight > 0) json["weight"] = source.weight;
  if (!source.format.empty()) json["format"] = source.format;
  if (!source.fields.empty()) json["fields"] = source.fields;
  return json.dump();
}

}  // namespace

Diagnostics check_source_format(const std::string& format, const Location& at) {
  const std::vector<std::string>& known = source_formats();
  if (format.empty() || std::find(known.begin(), known.end(), format) != known.end()) return {};
  return {error(code::kUnknownValue, at, fmt::format("format is '{}', expected one of: {}", format, fmt::join(known, ", ")),
                "leave it out: the file's ending says it")};
}

Result<Setting> sources_setting(const Value& value) {
  const bool is_list = value.kind == Value::Kind::kList;
  if (is_list && value.items.empty())
    return error(code::kWrongType, value.location, "data.sources is empty, expected a list of files",
                 "data: {sources: [{path: chats.jsonl, weight: 1}]}");
  Setting setting;
  setting.at = value.location;
  std::vector<std::string> items;
  Diagnostics said;
  for (const Value& one : is_list ? value.items : std::vector<Value>{value}) {
    const Result<DataSource> source = source_from(one);
    append(said, source.diagnostics);
    if (source.ok()) items.push_back(item_of(*source));
  }
  if (has_error(said)) return said;
  setting.text = fmt::format("{}", fmt::join(items, ","));
  setting.value = std::move(items);
  return setting;
}

Result<Setting> sources_setting(const std::string& text, const Location& at) {
  if (text.starts_with('[') || text.starts_with('{')) {
    const Result<Value> value = parse_yaml(text, at.file);
    if (!value.ok()) return value.diagnostics;
    Result<Setting> setting = sources_setting(*value);
    for (Diagnostic& d : setting.diagnostics) d.location = at;
    if (setting.ok()) setting->at = at;
    return setting;
  }
  Value list;
  list.kind = Value::Kind::kList;
  list.location = at;
  for (std::string& path : split_words(text, ',')) {
    Value item;
    item.kind = Value::Kind::kScalar;
    item.text = std::move(path);
    item.location = at;
    list.items.push_back(std::move(item));
  }
  return sources_setting(list);
}

Result<DataSource> source_of(const std::string& item, const Location& at) {
  if (!item.starts_with('{')) return DataSource{item, "", 0, "", {}};
  const Result<Value> value = parse_yaml(item, at.file);
  if (!value.ok()) return value.diagnostics;
  Result<DataSource> source = source_from(*value);
  for (Diagnostic& d : source.diagnostics) d.location = at;
  return source;
}

Result<std::map<std::string, std::string>> fields_of(const std::vector<std::string>& items, const std::string& what,
                                                     const Location& at) {
  std::map<std::string, std::string> fields;
  for (const std::string& item : items) {
    const size_t sign = item.find('=');
    if (sign == std::string::npos || sign == 0 || sign + 1 == item.size())
      return error(code::kWrongType, at, fmt::format("{} has '{}', expected OURS=THEIRS", what, item),
                   "text=content, or prompt=question,completion=answer");
    fields[item.substr(0, sign)] = item.substr(sign + 1);
  }
  return fields;
}

Diagnostics take_weights(const std::vector<std::string>& weights, const std::string& what, const Location& at,
                         std::vector<DataSource>& sources) {
  if (weights.size() != sources.size())
    return {error(code::kConflict, at, fmt::format("{} has {} numbers for {} sources", what, weights.size(), sources.size()),
                  "one for each source, in their order: 0.7,0.3")};
  for (size_t i = 0; i < weights.size(); ++i) {
    const std::optional<double> weight = weight_of(weights[i]);
    if (!weight.has_value())
      return {error(code::kWrongType, at, fmt::format("{} has '{}', expected a number above 0", what, weights[i]))};
    sources[i].weight = *weight;
  }
  return {};
}

Result<std::vector<DataSource>> sources_of(const Spec& spec) {
  const Location at = spec.at("data.sources");
  std::vector<DataSource> sources;
  Diagnostics said;
  for (const std::string& item : spec.list("data.sources").value_or(std::vector<std::string>{})) {
    Result<DataSource> source = source_of(item, at);
    append(said, source.diagnostics);
    if (source.ok()) sources.push_back(std::move(*source));
  }
  const auto named = fields_of(spec.list("data.fields").value_or(std::vector<std::string>{}), "data.fields", spec.at("data.fields"));
  append(said, named.diagnostics);
  if (has_error(said)) return said;
  for (DataSource& source : sources)
    if (source.fields.empty()) source.fields = *named;
  if (const auto weights = spec.list("data.weights"))
    append(said, take_weights(*weights, "data.weights", spec.at("data.weights"), sources));
  const auto weighted = std::count_if(sources.begin(), sources.end(), [](const DataSource& s) { return s.weight > 0; });
  if (!has_error(said) && weighted != 0 && weighted != static_cast<int64_t>(sources.size()))
    said.push_back(error(code::kConflict, at,
                         fmt::format("{} of {} sources have a weight, expected all of them or none", weighted, sources.size())));
  if (has_error(said)) return said;
  return sources;
}

}  // namespace distsetup
