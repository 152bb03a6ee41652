#include "text/template/read_chat_template.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/names.h"

namespace distsetup {
namespace {

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

Result<OrderedJson> read_json(const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.diagnostics;
  OrderedJson json = ordered_json_from_text(*text);
  if (!json.is_object()) return error(code::kSyntax, {path}, "expected a JSON object");
  return json;
}

struct NamedSource {
  std::string name, source;
};

// `chat_template`: a text, or a list of {name, template}.
Result<std::vector<NamedSource>> sources_of(const OrderedJson& json, const std::string& path) {
  const auto found = json.find("chat_template");
  if (found == json.end() || found->is_null()) return std::vector<NamedSource>{};
  if (found->is_string()) return std::vector<NamedSource>{{"default", found->get<std::string>()}};
  std::vector<NamedSource> sources;
  if (found->is_array()) {
    for (const OrderedJson& one : *found) {
      const bool is_pair = one.is_object() && one.contains("name") && one["name"].is_string() && one.contains("template") &&
                           one["template"].is_string();
      if (!is_pair)
        return error(code::kWrongType, {path}, "expected each chat template of the list to have a 'name' and a 'template'");
      sources.push_back({one["name"].get<std::string>(), one["template"].get<std::string>()});
    }
    return sources;
  }
  return error(code::kWrongType, {path},
               fmt::format("'chat_template' is {}, expected a text or a list of named ones", found->type_name()));
}

// A token is a text, or an object with its text in `content`.
OrderedJson special_tokens_of(const OrderedJson& config) {
  OrderedJson tokens = OrderedJson::object();
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const auto found = config.find(name);
    if (found == config.end()) continue;
    if (found->is_string()) tokens[name] = *found;
    if (found->is_object() && found->contains("content") && (*found)["content"].is_string()) tokens[name] = (*found)["content"];
  }
  return tokens;
}

// The template called `name`; the only one, or "default", when it is empty.
Result<NamedSource> chosen(const std::vector<NamedSource>& sources, const std::string& name, const std::string& path) {
  std::vector<std::string> names;
  for (const NamedSource& one : sources) {
    if (one.name == (name.empty() ? "default" : name)) return one;
    names.push_back(one.name);
  }
  if (name.empty() && sources.size() == 1) return sources[0];
  if (name.empty()) {
    return error(code::kMissingArgument, {path},
                 fmt::format("the model has {} chat templates and none is called 'default'", sources.size()),
                 fmt::format("choose one: {}", fmt::join(names, ", ")));
  }
  return error(code::kUnknownValue, {path}, fmt::format("the model has no chat template '{}'", name), suggest(name, names));
}

Result<std::vector<NamedSource>> folder_sources(const std::string& folder, const OrderedJson& config, std::string& path) {
  path = folder + "/chat_template.jinja";
  std::vector<NamedSource> sources;
  if (exists(path)) {
    const Result<std::string> text = read_file(path);
    if (!text.ok()) return text.diagnostics;
    sources.push_back({"default", *text});
  }
  std::error_code ignored;
  const std::string more = folder + "/additional_chat_templates";
  if (std::filesystem::is_directory(more, ignored)) {
    for (const auto& entry : std::filesystem::directory_iterator(more, ignored)) {
      if (entry.path().extension() != ".jinja") continue;
      const Result<std::string> text = read_file(entry.path().string());
      if (!text.ok()) return text.diagnostics;
      sources.push_back({entry.path().stem().string(), *text});
    }
  }
  if (!sources.empty()) return sources;
  path = folder + "/chat_template.json";
  if (exists(path)) {
    const Result<OrderedJson> json = read_json(path);
    if (!json.ok()) return json.diagnostics;
    return sources_of(*json, path);
  }
  path = folder + "/tokenizer_config.json";
  return sources_of(config, path);
}

}  // namespace

Result<ModelTemplate> read_chat_template(const std::string& path, const std::string& name) {
  std::error_code ignored;
  ModelTemplate model;
  if (!std::filesystem::is_directory(path, ignored)) {
    const Result<std::string> text = read_file(path);
    if (!text.ok()) return text.diagnostics;
    Result<ChatTemplate> chat = parse_template(*text, path);
    if (!chat.ok()) return chat.diagnostics;
    model.chat = std::move(*chat);
    return model;
  }
  OrderedJson config = OrderedJson::object();
  if (const std::string file = path + "/tokenizer_config.json"; exists(file)) {
    Result<OrderedJson> json = read_json(file);
    if (!json.ok()) return json.diagnostics;
    config = std::move(*json);
  }
  model.special_tokens = special_tokens_of(config);
  std::string from;
  const Result<std::vector<NamedSource>> sources = folder_sources(path, config, from);
  if (!sources.ok()) return sources.diagnostics;
  if (sources->empty()) {
    return error(code::kMissingKey, {path},
                 "the model has no chat template: no chat_template.jinja, no 'chat_template' in tokenizer_config.json",
                 "a base model has none; name a template file instead");
  }
  const Result<NamedSource> source = chosen(*sources, name, from);
  if (!source.ok()) return source.diagnostics;
  Result<ChatTemplate> chat = parse_template(source->source, from);
  if (!chat.ok()) return chat.diagnostics;
  model.chat = std::move(*chat);
  return model;
}

}  // namespace distsetup
