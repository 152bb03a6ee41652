#include "codegen/lint/layer_classes.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/check.h"
#include "base/map_reader.h"
#include "base/names.h"
#include "base/value_yaml.h"
#include "codegen/lint/misspelt.h"
#include "codegen/tables/name_table.h"
#include "codegen/tables/templates.h"

namespace distsetup::lint {
namespace {

using ClassNames = std::set<std::string, std::less<>>;

ClassNames read_classes() {
  const std::string* text = find_file(embedded_templates(), "_layer_classes.yaml");
  CHECK(text != nullptr, "templates/_layer_classes.yaml");
  const Result<Value> root = parse_yaml(*text, "templates/_layer_classes.yaml");
  CHECK(root.ok(), "{}", format_diagnostics(root.diagnostics));
  const Value* list = root->find("classes");
  CHECK(list != nullptr, "templates/_layer_classes.yaml has no classes");
  ClassNames out;
  for (NameEntry& one : read_entries(list->text)) out.insert(std::move(one.name));
  return out;
}

const ClassNames& layer_classes() {
  static const ClassNames kClasses = read_classes();
  return kClasses;
}

// "LlamaDecoderLayer": "DecoderLayer"
std::string_view last_word(std::string_view name) {
  for (const std::string_view end : {"DecoderLayer", "EncoderLayer", "Block", "Layer"}) {
    if (name.size() > end.size() && name.substr(name.size() - end.size()) == end) return name.substr(name.size() - end.size());
  }
  return "";
}

}  // namespace

std::string misspelt_layer_class(std::string_view name) {
  constexpr size_t kShortestFamily = 4;
  if (layer_classes().count(name) > 0) return "";
  for (const std::string& known : layer_classes()) {
    if (lower(known) == lower(name)) return known;
    const std::string_view word = last_word(known);
    const std::string_view family = std::string_view(known).substr(0, known.size() - word.size());
    if (word.empty() || family.size() < kShortestFamily || name.substr(0, family.size()) != family) continue;
    const std::array<std::string, 1> right = {std::string(word)};
    if (!misspelt_name(name.substr(family.size()), right).empty()) return known;
  }
  return "";
}

}  // namespace distsetup::lint
