// Finds presets by any of their names. The idea: a lookup by id opens one file; only when no id matches are the files that contain
// the asked name at all opened for their `label`, `hub` and `aliases`.
#include "model/presets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <filesystem>

#include "base/diagnostic_codes.h"
#include "base/embedded.h"
#include "base/file.h"
#include "base/names.h"
#include "base/value_yaml.h"
#include "model/geometry_value.h"
#include "model/hf_config.h"
#include "model/near_names.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

// Indexes beside the models: bare sizes, and names that are no file's.
constexpr std::string_view kSizesId = "sizes", kNamesId = "names";

bool is_index(const PresetFile& file) { return file.id == kSizesId || file.id == kNamesId; }

bool before(const PresetFile& a, const PresetFile& b) { return a.folder != b.folder ? a.folder < b.folder : a.id < b.id; }

// "presets/models/tiny.yaml" -> folder "models", id "tiny".
bool split_path(const fs::path& path, PresetFile& file) {
  if (path.extension() != ".yaml") return false;
  file.folder = path.parent_path().filename().string();
  file.id = path.stem().string();
  return true;
}

void add_or_replace(std::vector<PresetFile>& files, PresetFile file) {
  const auto place = std::lower_bound(files.begin(), files.end(), file, before);
  if (place != files.end() && place->folder == file.folder && place->id == file.id) {
    *place = std::move(file);
  } else {
    files.insert(place, std::move(file));
  }
}

Diagnostics add_directory(std::vector<PresetFile>& files, const std::string& directory) {
  std::error_code failure;
  if (!fs::is_directory(directory, failure)) {
    return {error(code::kUnreadableFile, {directory, 0, 0}, fmt::format("no directory of presets '{}'", directory))};
  }
  for (fs::recursive_directory_iterator it(directory, failure), end; !failure && it != end; it.increment(failure)) {
    PresetFile file;
    if (it.depth() != 1 || !it->is_regular_file() || !split_path(it->path(), file)) continue;
    file.path = it->path().string();
    add_or_replace(files, std::move(file));
  }
  if (failure)
    return {error(code::kUnreadableFile, {directory, 0, 0}, fmt::format("cannot list '{}': {}", directory, failure.message()))};
  return {};
}

// The other names a file states for itself.
Result<std::vector<std::string>> stated_names(const PresetFile& file) {
  const Result<Value> value = read_preset(file);
  if (!value.ok()) return value.diagnostics;
  std::vector<std::string> names;
  for (const char* key : {"label", "hub"}) {
    if (const Value* name = value->find(key)) names.push_back(name->text);
  }
  if (const Value* hub = value->find("hub")) names.push_back(fs::path(hub->text).filename().string());
  if (const Value* aliases = value->find("aliases")) {
    for (const Value& alias : aliases->items) names.push_back(alias.text);
  }
  return names;
}

// The text to prefilter on; an unreadable file counts as a candidate, so that its error is said.
bool may_state(const PresetFile& file, const std::string& normal) {
  if (file.is_embedded) return normal_name(file.text).find(normal) != std::string::npos;
  const Result<std::string> text = read_file(file.path);
  return !text.ok() || normal_name(*text).find(normal) != std::string::npos;
}

// What may have been meant: of ids and stated names.
std::string nearest(const Presets& presets, std::string_view folder, std::string_view name) {
  std::vector<std::string> stated;
  for (const PresetFile& file : presets.files) {
    if (file.folder != folder || is_index(file)) continue;
    if (const Result<std::vector<std::string>> names = stated_names(file); names.ok())
      stated.insert(stated.end(), names->begin(), names->end());
  }
  return suggest_preset(name, preset_ids(presets, folder), stated);
}

struct PresetMatch {
  const PresetFile* file = nullptr;  // nullptr: not found, or `diagnostics` say why
  Diagnostics diagnostics;
};

PresetMatch look_up(const Presets& presets, std::string_view folder, std::string_view name, const char* unknown_code, const char* what,
                    const Location& at) {
  const std::string normal = normal_name(name);
  for (const PresetFile& file : presets.files) {
    if (file.folder == folder && !is_index(file) && normal_name(file.id) == normal) return {&file, {}};
  }
  PresetMatch result;
  std::vector<std::string> found;
  for (const PresetFile& file : presets.files) {
    if (normal.empty() || file.folder != folder || is_index(file) || !may_state(file, normal)) continue;
    const Result<std::vector<std::string>> names = stated_names(file);
    append(result.diagnostics, names.diagnostics);
    if (!names.ok()) continue;
    for (const std::string& stated : *names) {
      if (normal_name(stated) != normal) continue;
      found.push_back(file.id);
      result.file = &file;
      break;
    }
  }
  if (found.size() == 1 || has_error(result.diagnostics)) return result;
  result.file = nullptr;
  if (found.empty()) {
    result.diagnostics.push_back(
        error(unknown_code, at, fmt::format("unknown {} '{}'", what, name),
              fmt::format("{}; or describe it: distsetup explain {}", nearest(presets, folder, name), unknown_code)));
  } else {
    result.diagnostics.push_back(error(unknown_code, at, fmt::format("{} '{}' can be any of {}", what, name, fmt::join(found, ", ")),
                                       fmt::format("write one of these names, such as '{}'", found.front())));
  }
  return result;
}

// "70B" -> the id that models/sizes.yaml names; empty when it names none.
Result<std::string> id_of_size(const Presets& presets, std::string_view name) {
  const PresetFile* file = find_preset(presets, "models", kSizesId);
  if (file == nullptr || name.empty() || !is_digit(name.front())) return std::string();
  const Result<Value> sizes = read_preset(*file);
  if (!sizes.ok()) return sizes.diagnostics;
  const std::string normal = normal_name(name);
  for (const auto& [size, id] : sizes->entries) {
    if (normal_name(size) == normal) return id.text;
  }
  return std::string();
}

// "8xH100-80GB" -> 8 and "H100-80GB"; a count of 0 when there is none.
GpuChoice split_count(std::string_view name, std::string_view& rest) {
  GpuChoice choice;
  rest = name;
  int64_t count = 0;
  const char* end = name.data() + name.size();
  const auto [stop, failure] = std::from_chars(name.data(), end, count);
  if (failure != std::errc() || stop == end || count < 1) return choice;
  std::string_view tail(stop, static_cast<size_t>(end - stop));
  while (tail.starts_with(' ')) tail.remove_prefix(1);
  if (tail.starts_with("×")) {
    tail.remove_prefix(std::string_view("×").size());
  } else if (tail.starts_with('x') || tail.starts_with('X') || tail.starts_with('*')) {
    tail.remove_prefix(1);
  } else {
    return choice;
  }
  while (tail.starts_with(' ')) tail.remove_prefix(1);
  choice.count = count;
  rest = tail;
  return choice;
}

}  // namespace

Result<Presets> load_presets(const std::vector<std::string>& directories) {
  Presets presets;
  for (const EmbeddedFile& embedded : embedded_files()) {
    PresetFile file;
    if (!embedded.path.starts_with("presets/") || !split_path(fs::path(embedded.path), file)) continue;
    file.path = embedded.path;
    file.text = embedded.text;
    file.is_embedded = true;
    presets.files.push_back(std::move(file));
  }
  std::sort(presets.files.begin(), presets.files.end(), before);
  Diagnostics diagnostics;
  for (const std::string& directory : directories) append(diagnostics, add_directory(presets.files, directory));
  if (has_error(diagnostics)) return diagnostics;
  return presets;
}

std::vector<std::string> preset_ids(const Presets& presets, std::string_view folder) {
  std::vector<std::string> ids;
  for (const PresetFile& file : presets.files) {
    if (file.folder == folder && !is_index(file)) ids.push_back(file.id);
  }
  return ids;
}

const PresetFile* find_preset(const Presets& presets, std::string_view folder, std::string_view id) {
  const auto name_of = [](const PresetFile& file) { return std::pair<std::string_view, std::string_view>(file.folder, file.id); };
  const auto at = std::lower_bound(presets.files.begin(), presets.files.end(), std::pair(folder, id),
                                   [&](const PresetFile& file, const auto& wanted) { return name_of(file) < wanted; });
  return at != presets.files.end() && at->folder == folder && at->id == id ? &*at : nullptr;
}

Result<Value> read_preset(const PresetFile& file) {
  return file.is_embedded ? parse_yaml(file.text, file.path) : read_yaml_file(file.path);
}

namespace {

// "v0.1" for "v#", "128k" for "#k": '#' stands for digits and points.
bool is_ending(std::string_view word, std::string_view ending) {
  const size_t sign = ending.find('#');
  if (sign == std::string_view::npos) return word == ending;
  const std::string_view before = ending.substr(0, sign), behind = ending.substr(sign + 1);
  if (word.size() <= before.size() + behind.size() || !word.starts_with(before) || !word.ends_with(behind)) return false;
  const std::string_view number = word.substr(before.size(), word.size() - before.size() - behind.size());
  return number.find_first_not_of("0123456789.") == std::string_view::npos;
}

// What else a published name may be called here, nearest first: without its owner, without the endings of models/names.yaml, and the
// names that stand there for other files.
std::vector<std::string> other_names(const Presets& presets, std::string_view name) {
  std::vector<std::string> out;
  const PresetFile* file = find_preset(presets, "models", kNamesId);
  const Result<Value> index = file != nullptr ? read_preset(*file) : Result<Value>(Diagnostics{});
  const Value* endings = index.value ? index->find("endings") : nullptr;
  const Value* others = index.value ? index->find("names") : nullptr;
  const auto add = [&](const std::string& one) {
    for (const auto& [known, id] : others != nullptr ? others->entries : std::vector<Value::Entry>{})
      if (normal_name(known) == normal_name(one)) out.push_back(id.text);
    out.push_back(one);
  };
  std::string rest(name.substr(name.rfind('/') == std::string_view::npos ? 0 : name.rfind('/') + 1));
  for (;;) {
    add(rest);
    const size_t dash = rest.find_last_of("-_ ");
    if (dash == std::string::npos || endings == nullptr) return out;
    const std::string word = lower(rest.substr(dash + 1));
    const bool is_known =
        std::any_of(endings->items.begin(), endings->items.end(), [&](const Value& ending) { return is_ending(word, ending.text); });
    if (!is_known) return out;
    rest.resize(dash);
  }
}

Result<const PresetFile*> model_file(const Presets& presets, std::string_view name, const Location& at) {
  Result<std::string> id = id_of_size(presets, name);
  if (!id.ok()) return id.diagnostics;
  if (id->empty() && look_up(presets, "models", name, code::kUnknownModel, "model", at).file == nullptr) {
    for (const std::string& other : other_names(presets, name)) {
      const PresetMatch found = look_up(presets, "models", other, code::kUnknownModel, "model", at);
      if (found.file != nullptr && !has_error(found.diagnostics)) return found.file;
    }
  }
  const PresetMatch found = look_up(presets, "models", id->empty() ? name : *id, code::kUnknownModel, "model", at);
  if (found.file == nullptr || has_error(found.diagnostics)) return found.diagnostics;
  return found.file;
}

// The maker and the series stand before a GPU's name where nvidia-smi, rocm-smi and device plugins print it: "NVIDIA A100-SXM4-80GB",
// "Tesla V100-SXM2-32GB", "AMD Instinct MI300X".
std::string_view without_maker(std::string_view name) {
  constexpr std::array<std::string_view, 5> kMakers = {"nvidia", "amd", "geforce", "tesla", "instinct"};
  for (;;) {
    const size_t end = name.find_first_of(" -_");
    if (end == std::string_view::npos || end + 1 == name.size()) return name;
    if (std::find(kMakers.begin(), kMakers.end(), lower(name.substr(0, end))) == kMakers.end()) return name;
    name.remove_prefix(end + 1);
  }
}

// The first names of a list by the alphabet say nothing of one that is not like any of them; devices of other makers are not in it.
void say_which_gpus(std::string_view name, Diagnostics& said) {
  constexpr std::array<std::string_view, 13> kOthers = {"tpu", "apple", "mac", "m1",    "m2",  "m3",    "m4",
                                                        "m5",  "mps",   "trn", "gaudi", "hpu", "ascend"};
  const std::string own = lower(name);
  const bool is_other = std::any_of(kOthers.begin(), kOthers.end(), [&own](std::string_view one) {
    return own.starts_with(one) && (own.size() == one.size() || std::isalpha(static_cast<unsigned char>(own[one.size()])) == 0);
  });
  for (Diagnostic& one : said) {
    if (one.code != code::kUnknownGpu || !(is_other || one.help.starts_with("known: "))) continue;
    one.help = fmt::format("distsetup list gpus names them: GPUs of NVIDIA and AMD, and cpu; or describe it: distsetup explain {}",
                           code::kUnknownGpu);
  }
}

}  // namespace

Result<Geometry> find_model(const Presets& presets, std::string_view name, const Location& at) {
  const Result<const PresetFile*> file = model_file(presets, name, at);
  if (!file.ok()) return file.diagnostics;
  const Result<Value> value = read_preset(**file);
  if (!value.ok()) return value.diagnostics;
  Result<Geometry> model = geometry_from_value(presets, *value, (*file)->id);
  // Another model of the same sizes: "owner/Model-7B-Instruct" is what is loaded, and not the one that the sizes were published with.
  const bool is_published = name.find('/') != std::string_view::npos && !name.ends_with(".json") && !name.ends_with(".yaml");
  if (model.ok() && is_published && normal_name(name) != normal_name(model->hub_id)) model->hub_id = name;
  return model;
}

Result<Geometry> model_over_base(const Presets& presets, const Value& own) {
  const Value* base = own.find("base");
  const Result<const PresetFile*> file = model_file(presets, base->text, base->location);
  if (!file.ok()) return file.diagnostics;
  const Result<Value> value = read_preset(**file);
  if (!value.ok()) return value.diagnostics;
  Value merged = own;  // its places, its keys first
  merged.entries.clear();
  merged.key_locations.clear();
  const auto add = [&merged](const Value& from, size_t i) {
    merged.entries.push_back(from.entries[i]);
    merged.key_locations.push_back(i < from.key_locations.size() ? from.key_locations[i] : from.entries[i].second.location);
  };
  for (size_t i = 0; i < own.entries.size(); ++i) {
    if (own.entries[i].first != "base") add(own, i);
  }
  for (size_t i = 0; i < value->entries.size(); ++i) {
    const std::string& key = value->entries[i].first;
    if (own.find(key) == nullptr && key != "hub") add(*value, i);  // changed, it is no published model any more
  }
  return geometry_from_value(presets, merged, (*file)->id);
}

Result<Geometry> resolve_model(const Presets& presets, const std::string& name, const Location& at) {
  std::error_code failure;
  const fs::path path(name);
  const bool is_directory = fs::is_directory(path, failure);
  const fs::path config = is_directory ? path / "config.json" : path;
  const bool is_config = fs::is_regular_file(config, failure) && config.filename() == "config.json";
  if (!is_config) {
    Result<Geometry> preset = find_model(presets, name, at);
    if (preset.ok() || (!is_directory && !path.is_absolute() && !name.starts_with("."))) return preset;
    return error(
        code::kUnreadableFile, at,
        is_directory ? fmt::format("no config.json in '{}'", name) : fmt::format("no directory '{}' with a config.json", name));
  }
  const Result<std::string> text = read_file(config.string());
  if (!text.ok()) return text.diagnostics;
  const Result<Value> value = parse_hf_config(*text, config.string());
  if (!value.ok()) return value.diagnostics;
  const fs::path directory = fs::absolute(config, failure).lexically_normal().parent_path();
  return geometry_from_hf_config(presets, *value, directory.filename().string(), directory.string());
}

Result<GpuChoice> find_gpu(const Presets& presets, std::string_view name, const Location& at) {
  std::string_view rest;
  GpuChoice choice = split_count(name, rest);
  PresetMatch found = look_up(presets, "gpus", rest, code::kUnknownGpu, "GPU", at);
  if (const std::string_view own = without_maker(rest); found.file == nullptr && own.size() < rest.size())
    found = look_up(presets, "gpus", own, code::kUnknownGpu, "GPU", at);
  if (found.file == nullptr) say_which_gpus(rest, found.diagnostics);
  if (found.file == nullptr || has_error(found.diagnostics)) return found.diagnostics;
  const Result<Value> value = read_preset(*found.file);
  if (!value.ok()) return value.diagnostics;
  Result<Gpu> gpu = gpu_from_value(*value, found.file->id);
  if (!gpu.ok()) return gpu.diagnostics;
  choice.gpu = std::move(*gpu);
  return {std::move(choice), std::move(gpu.diagnostics)};
}

Result<Machine> find_machine(const Presets& presets, std::string_view name, const Location& at) {
  const PresetMatch found = look_up(presets, "machines", name, code::kUnknownMachine, "machine", at);
  if (found.file == nullptr || has_error(found.diagnostics)) return found.diagnostics;
  const Result<Value> value = read_preset(*found.file);
  if (!value.ok()) return value.diagnostics;
  return machine_from_value(*value, found.file->id);
}

}  // namespace distsetup
