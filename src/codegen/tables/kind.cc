#include "codegen/tables/kind.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/diagnostic_codes.h"
#include "base/map_reader.h"
#include "base/names.h"
#include "base/value.h"
#include "base/value_yaml.h"
#include "codegen/tables/table_cache.h"

namespace distsetup {
namespace {

const std::string kKindsFile = "_kinds.yaml";

// The one of `names` that is `word`, by its place; an unknown word is a mistake of the table.
template <class T, size_t N>
T word_of(const std::pair<std::string_view, T> (&names)[N], const std::string& word, const Value& at, Diagnostics& diagnostics) {
  for (const auto& [name, value] : names) {
    if (name == word) return value;
  }
  diagnostics.push_back(error(code::kTemplate, at.location, fmt::format("unknown word '{}' in a kind of files", word)));
  return names[0].second;
}

FileKind read_kind(const Value& value, Diagnostics& diagnostics) {
  static constexpr std::pair<std::string_view, KindForm> kForms[] = {{"tree", KindForm::kTree},
                                                                     {"toml", KindForm::kToml},
                                                                     {"script", KindForm::kScript},
                                                                     {"arguments", KindForm::kArguments},
                                                                     {"lines", KindForm::kLines}};
  static constexpr std::pair<std::string_view, LineShape> kShapes[] = {
      {"", LineShape::kNone}, {"package", LineShape::kPackage}, {"setting", LineShape::kSetting}};
  FileKind kind;
  std::string form, every_line;
  MapReader reader(value, "a kind of files", diagnostics);
  for (const char* key : {"name", "describes", "form"}) reader.require(key);
  reader.get("name", kind.name);
  reader.get("describes", kind.says);
  reader.get("form", form);
  reader.get("keys", kind.keys);
  reader.get("also", kind.also);
  reader.get("tables", kind.tables);
  reader.get("needs", kind.needs);
  reader.get("needs_too", kind.needs_too);
  reader.get("one_of", kind.one_of);
  reader.get("within", kind.within);
  reader.get("lines", kind.lines);
  reader.get("words", kind.words);
  reader.get("file_names", kind.file_names);
  reader.get("every_line", every_line);
  reader.get("takes_training_arguments", kind.takes_training_arguments);
  reader.get("commands_of_containers", kind.has_containers);
  reader.get("scripts", kind.scripts);
  reader.get("environment", kind.environment);
  reader.get("names", kind.names);
  reader.get("foreign", kind.is_foreign);
  kind.has_lint_rules = !kind.is_foreign;
  reader.get("has_lint_rules", kind.has_lint_rules);
  reader.get("instead", kind.instead);
  if (const Value* sets = reader.child("decided_by")) {
    for (const Value& set : sets->items) {
      kind.decided_by.emplace_back();
      for (const Value& key : set.items) kind.decided_by.back().push_back(key.text);
    }
  }
  if (const Value* values = reader.child("values")) {
    for (const auto& [key, wanted] : values->entries) kind.values.emplace_back(key, wanted.text);
  }
  if (const Value* words = reader.child("instead_of")) {
    for (const auto& [word, key] : words->entries) kind.instead_of.emplace_back(word, key.text);
  }
  if (const Value* words = reader.child("handed_on")) {
    for (const auto& [word, key] : words->entries) kind.handed_on.emplace_back(word, key.text);
  }
  reader.finish();
  kind.form = word_of(kForms, form, value, diagnostics);
  kind.every_line = word_of(kShapes, every_line, value, diagnostics);
  return kind;
}

Result<FileKinds> read_kinds(const std::string& text, const std::string& file) {
  const Result<Value> root = parse_yaml(text, file);
  if (!root.ok()) return root.diagnostics;
  FileKinds kinds;
  Diagnostics diagnostics;
  int64_t version = 0;
  MapReader reader(*root, "the table of kinds", diagnostics);
  reader.require("kinds");
  reader.get("version", version);
  const Value* list = reader.child("kinds");
  reader.finish();
  if (version != 1)
    diagnostics.push_back(error(code::kTemplate, root->location, fmt::format("table of kinds of version {}, expected 1", version)));
  if (list != nullptr) {
    for (const Value& item : list->items) kinds.all.push_back(read_kind(item, diagnostics));
  }
  if (has_error(diagnostics)) return diagnostics;
  return kinds;
}

}  // namespace

const FileKind* FileKinds::find(std::string_view name) const {
  const auto it = std::find_if(all.begin(), all.end(), [name](const FileKind& one) { return same_name(one.name, name); });
  return it == all.end() ? nullptr : &*it;
}

std::vector<std::string> FileKinds::lint_names() const {
  std::vector<std::string> names;
  for (const FileKind& one : all) {
    if (one.has_lint_rules) names.push_back(one.name);
  }
  return names;
}

Result<std::shared_ptr<const FileKinds>> load_kinds(const TemplateSet& templates) {
  const std::string file = "templates/" + kKindsFile;
  const std::string* text = find_file(templates, kKindsFile);
  if (text == nullptr) return error(code::kTemplate, {file, 0, 0}, fmt::format("no template '{}'", kKindsFile));
  return cached(templates, &TableCache::kinds, kKindsFile, *text, [&] { return read_kinds(*text, file); });
}

const FileKinds& built_in_kinds() {
  static const std::shared_ptr<const FileKinds> kKinds = [] {
    const Result<std::shared_ptr<const FileKinds>> kinds = load_kinds(embedded_templates());
    CHECK(kinds.ok(), "{}", format_diagnostics(kinds.diagnostics));
    return *kinds;
  }();
  return *kKinds;
}

}  // namespace distsetup
