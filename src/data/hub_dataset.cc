#include "data/hub_dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/value_yaml.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

constexpr std::string_view kCard = "README.md", kFence = "---\n";

// The lines between the fences at the top of the card; "": there are none.
std::string front_matter(const std::string& folder) {
  const Result<std::string> card = read_file((fs::path(folder) / kCard).string());
  if (!card.ok() || !card->starts_with(kFence)) return "";
  const size_t end = card->find("\n---", kFence.size() - 1);
  return end == std::string::npos ? "" : card->substr(kFence.size(), end + 1 - kFence.size());
}

// Below the folder, as patterns name them.
Result<Names> data_files(const std::string& folder) {
  const Result<Names> all = files_below(folder);
  if (!all.ok()) return all.diagnostics;
  Names files;
  for (const std::string& path : *all) {
    const std::string ending = fs::path(path).extension().string();
    constexpr std::array<std::string_view, 6> kRead = {".jsonl", ".json", ".csv", ".tsv", ".parquet", ".txt"};
    constexpr std::array<std::string_view, 3> kPacked = {".gz", ".zst", ".bz2"};  // reading them says what to do
    const auto is_it = [&ending](std::string_view one) { return ending == one; };
    if (std::any_of(kRead.begin(), kRead.end(), is_it) || std::any_of(kPacked.begin(), kPacked.end(), is_it))
      files.push_back(fs::path(path).lexically_relative(folder).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// `word` between characters that belong to no word: "train-00000-of-00002", "data/train/a.jsonl".
bool has_word(const std::string& path, std::string_view word) {
  const auto is_letter = [&path](size_t i) { return std::isalpha(static_cast<unsigned char>(path[i])) != 0; };
  for (size_t at = path.find(word); at != std::string::npos; at = path.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !is_letter(at - 1)) && (end == path.size() || !is_letter(end))) return true;
  }
  return false;
}

template <size_t N>
bool has_any(const std::string& path, const std::array<std::string_view, N>& words) {
  return std::any_of(words.begin(), words.end(), [&path](std::string_view word) { return has_word(path, word); });
}

// Files named for training; where none is, those that are not named for anything else.
Names named_for_training(const Names& files) {
  constexpr std::array<std::string_view, 2> kTraining = {"train", "training"};
  constexpr std::array<std::string_view, 8> kOther = {"validation", "valid", "dev", "val", "test", "testing", "eval", "evaluation"};
  Names named, rest;
  for (const std::string& file : files) {
    if (has_any(file, kTraining)) named.push_back(file);
    if (!has_any(file, kOther)) rest.push_back(file);
  }
  return named.empty() ? rest : named;
}

Names below(const Names& files, const std::string& folder) {
  const std::string start = fs::path(folder + "/").lexically_normal().string();
  Names out;
  std::copy_if(files.begin(), files.end(), std::back_inserter(out), [&start](const std::string& f) { return f.starts_with(start); });
  return out;
}

void add_matching(const Names& files, const Value& patterns, Names& out) {
  if (patterns.kind == Value::Kind::kList) {
    for (const Value& one : patterns.items) add_matching(files, one, out);
    return;
  }
  const int flags = patterns.text.find("**") == std::string::npos ? FNM_PATHNAME : 0;
  for (const std::string& file : files)
    if (::fnmatch(patterns.text.c_str(), file.c_str(), flags) == 0 && std::find(out.begin(), out.end(), file) == out.end())
      out.push_back(file);
}

// Of one configuration of the card.
Result<Names> files_of(const Value& config, const Names& files, const Location& at) {
  if (const Value* directory = config.find("data_dir")) return named_for_training(below(files, directory->text));
  const Value* const data = config.find("data_files");
  if (data == nullptr) return named_for_training(files);
  const bool has_splits = data->kind == Value::Kind::kList && !data->items.empty() && data->items[0].kind == Value::Kind::kMap;
  Names out, splits;
  if (!has_splits) {  // one pattern, or several: all of it is for training
    add_matching(files, *data, out);
    return out;
  }
  for (const Value& one : data->items) {
    const Value *split = one.find("split"), *path = one.find("path");
    if (split == nullptr || path == nullptr) continue;
    splits.push_back(split->text);
    if (split->text == "train") add_matching(files, *path, out);
  }
  if (std::find(splits.begin(), splits.end(), "train") == splits.end())
    return error(code::kData, at, fmt::format("its splits are {}, expected one that is called train", fmt::join(splits, ", ")),
                 "name the files themselves as sources");
  return out;
}

std::string name_of(const Value& config) {
  const Value* const name = config.find("config_name");
  return name == nullptr ? "default" : name->text;
}

// nullopt: the card lists none.
Result<std::optional<Value>> configuration(const HubDataset& dataset, const Location& at) {
  const Result<Value> card = parse_yaml(front_matter(dataset.folder), (fs::path(dataset.folder) / kCard).string());
  if (!card.ok()) return card.diagnostics;
  const Value* const configs = card->find("configs");
  if (configs == nullptr || configs->kind != Value::Kind::kList || configs->items.empty()) return std::optional<Value>();
  const auto is_default = [](const Value& one) {
    const Value* const said = one.find("default");
    return name_of(one) == "default" || (said != nullptr && said->text == "true");
  };
  Names names;
  for (const Value& one : configs->items) {
    names.push_back(name_of(one));
    if (dataset.subset.empty() ? is_default(one) : names.back() == dataset.subset) return std::optional<Value>(one);
  }
  if (dataset.subset.empty() && names.size() == 1) return std::optional<Value>(configs->items[0]);
  if (dataset.subset.empty())
    return error(code::kData, at, fmt::format("'{}' has several subsets, and none is named", dataset.name),
                 fmt::format("{{path: {}, subset: NAME}} with one of: {}", dataset.name, fmt::join(names, ", ")));
  return error(code::kData, at, fmt::format("'{}' has no subset '{}'", dataset.name, dataset.subset),
               fmt::format("it has: {}", fmt::join(names, ", ")));
}

}  // namespace

bool is_hub_dataset(const std::string& folder) { return !front_matter(folder).empty(); }

Result<Names> training_files(const HubDataset& dataset, const Location& at) {
  const Result<Names> files = data_files(dataset.folder);
  if (!files.ok()) return files.diagnostics;
  const Result<std::optional<Value>> config = configuration(dataset, at);
  if (!config.ok()) return config.diagnostics;
  Result<Names> chosen = config->has_value()      ? files_of(**config, *files, at)
                         : dataset.subset.empty() ? named_for_training(*files)
                                                  : named_for_training(below(*files, dataset.subset));
  if (!chosen.ok()) return chosen.diagnostics;
  if (chosen->empty()) {
    const std::string of = dataset.subset.empty() ? "" : fmt::format(" of '{}'", dataset.subset);
    return error(code::kData, at, fmt::format("'{}' has no files of a training split{}", dataset.name, of),
                 "download them, or name the files themselves as sources");
  }
  for (std::string& file : *chosen) file = (fs::path(dataset.folder) / file).string();
  std::sort(chosen->begin(), chosen->end());
  return chosen;
}

}  // namespace distsetup
