#include "cli/settings/data_sources.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/clock.h"
#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/text.h"
#include "base/value_yaml.h"
#include "data/hub_dataset.h"
#include "data/megatron_files.h"
#include "planner/resolve/read_inputs.h"
#include "planner/spec/data_source.h"
#include "text/tokenizer/read_tokenizer.h"
#include "weights/hub_cache.h"

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

// What is there by a source's name, or a data set of the hub that was downloaded.
struct SourcePlace {
  std::string path;
  bool is_of_hub = false;
};
Result<SourcePlace> place_of(const DataSource& source, const fs::path& folder) {
  const std::string path = folder.empty() ? source.path : (folder / source.path).lexically_normal().string();
  std::error_code failure;
  if (fs::exists(path, failure) || !is_hub_id(source.path)) return SourcePlace{path, !source.subset.empty() || is_hub_dataset(path)};
  Result<std::string> found = find_in_hub_cache(source.path, {}, environment_variable, HubKind::kDataset);
  if (!found.ok()) return found.diagnostics;
  return SourcePlace{std::move(*found), true};
}

// Of one of a run's sources the files; a path that is not absolute starts at `folder`.
Result<PrepareSource> find_source(const DataSource& source, const fs::path& folder) {
  const Result<SourcePlace> place = place_of(source, folder);
  if (!place.ok()) return place.diagnostics;
  Result<std::vector<std::string>> files =
      place->is_of_hub ? training_files({place->path, source.path, source.subset}, {}) : files_of_source(place->path);
  if (!files.ok()) return files.diagnostics;
  return PrepareSource{place->path, std::move(*files), source.weight, {source.fields, source.format, {}}};
}

Diagnostics take_prompt_format(const std::string& text, const Location& at, std::vector<PrepareSource>& sources) {
  const Result<PromptFormat> format = parse_prompt_format(text, at);
  if (!format.ok()) return format.diagnostics;
  for (PrepareSource& source : sources) source.rows.prompt_format = *format;
  return {};
}

Result<PrepareInputs> inputs_of_line(const Arguments& arguments) {
  const std::string fields_text = arguments.text("fields"), format = arguments.text("format");
  const auto fields =
      fields_of(fields_text.empty() ? std::vector<std::string>{} : split(fields_text, ','), "--fields", command_line());
  if (!fields.ok()) return fields.diagnostics;
  std::vector<std::string> paths = arguments.positionals;
  drop_second_of_pairs(paths);
  std::vector<DataSource> sources;
  for (const std::string& path : paths) sources.push_back({path, "", 0, format, *fields});
  if (Diagnostics said = check_source_format(format, command_line()); has_error(said)) return said;
  if (arguments.has("weights")) {
    Diagnostics said = take_weights(split(arguments.text("weights"), ','), "--weights", command_line(), sources);
    if (has_error(said)) return said;
  }
  if (arguments.has("validation")) sources.push_back({arguments.text("validation"), "", 0, format, *fields});
  PrepareInputs inputs;
  for (const DataSource& source : sources) {
    Result<PrepareSource> found = find_source(source, "");
    if (!found.ok()) return found.diagnostics;
    inputs.sources.push_back(std::move(*found));
  }
  if (arguments.has("validation")) inputs.sources.back().is_validation = true;
  if (arguments.has("prompt-format")) {
    const Diagnostics bad = take_prompt_format(arguments.text("prompt-format"), command_line(), inputs.sources);
    if (has_error(bad)) return bad;
  }
  return inputs;
}

// The section `data` of a run file: the rest of it is not looked at.
Result<Spec> data_of_run(const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.diagnostics;
  const Result<Value> run = parse_yaml(*text, path);
  if (!run.ok()) return run.diagnostics;
  const Value* const data = run->find("data");
  if (data == nullptr || data->find("sources") == nullptr)
    return error(code::kMissingKey, {path}, "no list data.sources in this run file",
                 "data: {sources: [{path: chats.jsonl, weight: 1}]}");
  Value alone;
  alone.kind = Value::Kind::kMap;
  alone.location = run->location;
  Value version;
  version.kind = Value::Kind::kScalar;
  version.text = "1";
  alone.entries = {{"version", std::move(version)}, {"data", *data}};
  return spec_from_value(alone);
}

bool is_run_file(const std::string& path) {
  const std::string ending = fs::path(path).extension().string();
  return ending == ".yaml" || ending == ".yml";
}

}  // namespace

Result<PrepareInputs> inputs_of_run(const Spec& spec) {
  const Result<std::vector<DataSource>> sources = sources_of(spec);
  if (!sources.ok()) return sources.diagnostics;
  PrepareInputs inputs;
  Diagnostics said;
  for (const DataSource& source : *sources) {
    Result<PrepareSource> found = find_source(source, folder_of_setting(spec, "data.sources"));
    for (Diagnostic& d : found.diagnostics)
      if (d.location.line == 0) d.location = spec.at("data.sources");
    append(said, found.diagnostics);
    if (found.ok()) inputs.sources.push_back(std::move(*found));
  }
  if (has_error(said)) return said;
  const auto path_of = [&spec](std::string_view key) {
    const auto named = spec.text(key);
    return named.has_value() ? (folder_of_setting(spec, key) / *named).lexically_normal().string() : std::string();
  };
  if (const auto format = spec.text("data.prompt_format")) {
    const Diagnostics bad = take_prompt_format(*format, spec.at("data.prompt_format"), inputs.sources);
    if (has_error(bad)) return bad;
  }
  inputs.tokenizer = path_of("data.tokenizer");
  inputs.chat_template = path_of("data.template");
  return inputs;
}

Result<PrepareInputs> prepare_inputs(const Arguments& arguments) {
  if (arguments.positionals.size() != 1 || !is_run_file(arguments.positionals[0])) return inputs_of_line(arguments);
  Diagnostics idle = refuse_idle(arguments, {"weights", "fields", "format", "prompt-format", "validation"},
                                 "without a run file, which says them for each source");
  if (has_error(idle)) return idle;
  const Result<Spec> spec = data_of_run(arguments.positionals[0]);
  if (!spec.ok()) return spec.diagnostics;
  return inputs_of_run(*spec);
}

Result<ReadyInputs> open_inputs(PrepareInputs inputs) {
  ReadyInputs ready;
  Result<Tokenizer> tokenizer = read_tokenizer(inputs.tokenizer);
  if (!tokenizer.ok()) return tokenizer.diagnostics;
  ready.tokenizer = std::move(*tokenizer);
  // A folder's own template is taken where there is one; one that is named must be there.
  const bool is_named = !inputs.chat_template.empty();
  Result<ModelTemplate> chat = read_chat_template(is_named ? inputs.chat_template : inputs.tokenizer, "");
  if (is_named && !chat.ok()) return chat.diagnostics;
  if (chat.ok())
    ready.chat = std::move(*chat);
  else
    ready.why_no_chat = chat.diagnostics;
  ready.sources = std::move(inputs.sources);
  return ready;
}

PrepareRequest request_of(const ReadyInputs& inputs) {
  PrepareRequest request;
  request.sources = inputs.sources;
  request.tokenizer = &inputs.tokenizer;
  request.chat = inputs.chat.has_value() ? &*inputs.chat : nullptr;
  request.why_no_chat = inputs.why_no_chat;
  request.now = local_time();
  return request;
}

std::string why_not_here(const DataSource& source) {
  const Result<SourcePlace> place = place_of(source, "");
  if (!place.ok()) return place.diagnostics.front().help;
  std::error_code failure;
  return fs::exists(place->path, failure) ? "" : "there is no such file or folder here: --data";
}

}  // namespace distsetup
