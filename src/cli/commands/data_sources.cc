#include "cli/commands/data_sources.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/map_reader.h"
#include "base/text.h"
#include "base/value_yaml.h"
#include "data/megatron_files.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

// Of Megatron-LM's pairs one file stands for both.
void drop_second_of_pairs(std::vector<std::string>& files) {
  const std::vector<std::string> all = files;
  std::erase_if(files, [&](const std::string& file) {
    const fs::path path = file;
    return path.extension() == ".bin" && std::find(all.begin(), all.end(), fs::path(path).replace_extension(".idx")) != all.end();
  });
}

// The file, or all that are below the folder, in order of their names.
Result<std::vector<std::string>> files_of_source(const std::string& path) {
  std::error_code failure;
  if (!fs::is_directory(path, failure)) return std::vector<std::string>{path};
  Result<std::vector<std::string>> below = files_below(path);
  if (!below.ok()) return below.diagnostics;
  std::sort(below->begin(), below->end());
  drop_second_of_pairs(*below);
  if (below->empty()) return error(code::kData, {path}, fmt::format("the folder '{}' has no files", path));
  return std::move(*below);
}

// "text=content,prompt=question" -> {text: content, prompt: question}
Result<std::map<std::string, std::string>> fields_of(const std::string& text) {
  std::map<std::string, std::string> fields;
  if (text.empty()) return fields;
  for (const std::string& part : split(text, ',')) {
    const size_t sign = part.find('=');
    if (sign == std::string::npos || sign == 0 || sign + 1 == part.size())
      return error(code::kWrongType, {"command line"}, fmt::format("--fields has '{}', expected OURS=THEIRS", part),
                   "--fields text=content, or --fields prompt=question,completion=answer");
    fields[part.substr(0, sign)] = part.substr(sign + 1);
  }
  return fields;
}

Diagnostics check_format(const std::string& format, const Location& at) {
  const std::vector<std::string>& known = source_formats();
  if (format.empty() || std::find(known.begin(), known.end(), format) != known.end()) return {};
  return {error(code::kUnknownValue, at, fmt::format("format is '{}', expected one of: {}", format, fmt::join(known, ", ")),
                "leave it out: the file's ending says it")};
}

std::optional<double> weight_of(const std::string& text) {
  double weight = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), weight);
  const bool is_whole = failed == std::errc() && end == text.data() + text.size();
  return is_whole && weight > 0 && weight < 1e9 ? std::optional(weight) : std::nullopt;
}

// "0.7,0.3": one for each source.
Diagnostics take_weights(const std::string& text, std::vector<PrepareSource>& sources) {
  const std::vector<std::string> parts = split(text, ',');
  if (parts.size() != sources.size())
    return {error(code::kConflict, {"command line"},
                  fmt::format("--weights has {} numbers for {} sources", parts.size(), sources.size()),
                  "one for each SOURCE, in their order: --weights 0.7,0.3")};
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::optional<double> weight = weight_of(parts[i]);
    if (!weight.has_value())
      return {error(code::kWrongType, {"command line"}, fmt::format("--weights has '{}', expected a number above 0", parts[i]))};
    sources[i].weight = *weight;
  }
  return {};
}

Result<PrepareInputs> inputs_of_line(const Arguments& arguments) {
  Result<std::map<std::string, std::string>> fields = fields_of(arguments.text("fields"));
  if (!fields.ok()) return fields.diagnostics;
  Diagnostics said = check_format(arguments.text("format"), {"command line"});
  if (has_error(said)) return said;
  std::vector<std::string> paths = arguments.positionals;
  drop_second_of_pairs(paths);
  PrepareInputs inputs;
  for (const std::string& path : paths) {
    Result<std::vector<std::string>> files = files_of_source(path);
    if (!files.ok()) return files.diagnostics;
    inputs.sources.push_back({path, std::move(*files), 0, {*fields, arguments.text("format")}});
  }
  if (arguments.has("weights")) said = take_weights(arguments.text("weights"), inputs.sources);
  if (has_error(said)) return said;
  return inputs;
}

// A source of a run file.
class RunSources {
 public:
  RunSources(const std::string& path, Diagnostics& said) : folder_(fs::path(path).parent_path()), said_(said) {}

  void take(const Value& value) {
    if (value.kind != Value::Kind::kMap) {
      said_.push_back(error(code::kWrongType, value.location, "a source is no map, expected {path: FILE, weight: NUMBER}"));
      return;
    }
    PrepareSource source;
    MapReader keys(value, "source", said_);
    keys.require("path");
    std::string path;
    double weight = 0;
    keys.get("path", path);
    if (keys.get("weight", weight) && !(weight > 0 && weight < 1e9))
      said_.push_back(
          error(code::kOutOfRange, value.find("weight")->location, fmt::format("weight is {}, expected a number above 0", weight)));
    keys.get("format", source.rows.format);
    append(said_, check_format(source.rows.format, value.location));
    if (const Value* fields = keys.child("fields")) take_fields(*fields, source);
    keys.finish();
    if (path.empty()) return;
    source.weight = weight;
    source.path = (folder_ / path).lexically_normal().string();
    Result<std::vector<std::string>> files = files_of_source(source.path);
    append(said_, files.diagnostics);
    if (files.ok()) source.files = std::move(*files);
    sources.push_back(std::move(source));
  }

  std::vector<PrepareSource> sources;

 private:
  void take_fields(const Value& fields, PrepareSource& source) {
    if (fields.kind != Value::Kind::kMap) {
      said_.push_back(error(code::kWrongType, fields.location, "fields is no map, expected {prompt: question}"));
      return;
    }
    for (const auto& [ours, theirs] : fields.entries) {
      const Result<std::string> text = as_text(theirs);
      append(said_, text.diagnostics);
      if (text.ok()) source.rows.fields[ours] = *text;
    }
  }

  fs::path folder_;
  Diagnostics& said_;
};

Result<PrepareInputs> inputs_of_run(const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.diagnostics;
  const Result<Value> run = parse_yaml(*text, path);
  if (!run.ok()) return run.diagnostics;
  const Value* const data = run->find("data");
  const Value* const list = data == nullptr ? nullptr : data->find("sources");
  if (list == nullptr || list->kind != Value::Kind::kList || list->items.empty())
    return error(code::kMissingKey, list == nullptr ? Location{path} : list->location, "no list data.sources in this run file",
                 "data: {sources: [{path: chats.jsonl, weight: 1}]}");
  Diagnostics said;
  RunSources sources(path, said);
  for (const Value& item : list->items) sources.take(item);
  PrepareInputs inputs;
  const fs::path folder = fs::path(path).parent_path();
  for (const auto& [key, to] : {std::pair{"tokenizer", &inputs.tokenizer}, {"template", &inputs.chat_template}}) {
    const Value* const value = data->find(key);
    if (value == nullptr) continue;
    const Result<std::string> named = as_text(*value);
    append(said, named.diagnostics);
    if (named.ok()) *to = (folder / *named).lexically_normal().string();
  }
  const auto is_weighted = [](const PrepareSource& s) { return s.weight > 0; };
  const auto weighted = std::count_if(sources.sources.begin(), sources.sources.end(), is_weighted);
  if (!has_error(said) && weighted != 0 && weighted != static_cast<int64_t>(sources.sources.size()))
    said.push_back(
        error(code::kConflict, list->location,
              fmt::format("{} of {} sources have a weight, expected all of them or none", weighted, sources.sources.size())));
  if (has_error(said)) return said;
  inputs.sources = std::move(sources.sources);
  return inputs;
}

bool is_run_file(const std::string& path) {
  const std::string ending = fs::path(path).extension().string();
  return ending == ".yaml" || ending == ".yml";
}

}  // namespace

Result<PrepareInputs> prepare_inputs(const Arguments& arguments) {
  if (arguments.positionals.size() != 1 || !is_run_file(arguments.positionals[0])) return inputs_of_line(arguments);
  Diagnostics idle = refuse_idle(arguments, {"weights", "fields", "format"}, "without a run file, which says them for each source");
  if (has_error(idle)) return idle;
  return inputs_of_run(arguments.positionals[0]);
}

Result<int64_t> whole_number(const Arguments& arguments, std::string_view flag, int64_t absent) {
  const std::string text = arguments.text(flag);
  if (!arguments.has(flag)) return absent;
  int64_t number = -1;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed == std::errc() && end == text.data() + text.size() && number >= 0) return number;
  return error(code::kWrongType, {"command line"}, fmt::format("--{} is '{}', expected a whole number from 0 on", flag, text));
}

}  // namespace distsetup
