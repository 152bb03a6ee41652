#include "code_bases.h"

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/value_yaml.h"

namespace distsetup::accuracy {
namespace {

std::vector<std::string> texts(const Value& entry, std::string_view key) {
  std::vector<std::string> all;
  if (const Value* list = entry.find(key)) {
    for (const Value& item : list->items) all.push_back(item.text);
  }
  return all;
}

bool holds(const std::vector<std::string>& all, const std::string& one) { return std::find(all.begin(), all.end(), one) != all.end(); }

bool begins_cell(const CodeBase& base, const std::string& cell) {
  return std::any_of(base.frameworks.begin(), base.frameworks.end(),
                     [&](const std::string& start) { return cell.starts_with(start); });
}

Diagnostics read_first_sight(const std::string& path, std::map<std::string, FirstSight>& out) {
  const Result<Value> file = read_yaml_file(path);
  if (!file) return file.diagnostics;
  const Value* rows = file->find("first_sight");
  if (rows == nullptr) return {error(code::kMissingKey, file->location, "expected 'first_sight'")};
  for (const Value::Entry& row : rows->entries) {
    FirstSight& first = out[row.first];
    if (const Value* program = row.second.find("program")) first.program = program->text;
    for (const Metric metric : kMetrics) {
      const Value* number = row.second.find(name(metric));
      if (number == nullptr) continue;
      const Result<double> predicted = as_double(*number);
      if (!predicted) return predicted.diagnostics;
      first.predicted[static_cast<size_t>(metric)] = *predicted;
    }
  }
  return {};
}

}  // namespace

Result<CodeBases> read_code_bases(const std::string& path, const std::string& first_sight_path) {
  const Result<Value> file = read_yaml_file(path);
  if (!file) return file.diagnostics;
  const Value* entries = file->find("code_bases");
  const Value* loose = file->find("loose");
  if (entries == nullptr || loose == nullptr || loose->find("weight") == nullptr)
    return error(code::kMissingKey, file->location, "expected 'code_bases' and 'loose' with a 'weight'");
  const Result<double> weight = as_double(*loose->find("weight"));
  if (!weight) return weight.diagnostics;
  const std::vector<std::string> loose_names = texts(*loose, "code_bases");
  CodeBases bases;
  for (const Value& entry : entries->items) {
    const Value* name = entry.find("name");
    if (name == nullptr) return error(code::kMissingKey, entry.location, "a code base without a name");
    CodeBase base{name->text, texts(entry, "blocks"), texts(entry, "frameworks"), 1};
    if (holds(loose_names, base.name)) base.weight = *weight;
    bases.all.push_back(std::move(base));
  }
  if (Diagnostics wrong = read_first_sight(first_sight_path, bases.first_sight); has_error(wrong)) return wrong;
  for (const std::string& name : loose_names) {
    if (std::none_of(bases.all.begin(), bases.all.end(), [&](const CodeBase& b) { return b.name == name; }))
      return error(code::kUnknownKey, loose->location, "'" + name + "' is no code base");
  }
  return bases;
}

const CodeBase* code_base_of(const CodeBases& bases, const Row& row) {
  const std::string& cell = row.text("framework");
  for (const CodeBase& base : bases.all) {
    if (holds(base.blocks, row.block) && (base.frameworks.empty() || begins_cell(base, cell))) return &base;
  }
  for (const CodeBase& base : bases.all) {
    if (begins_cell(base, cell)) return &base;
  }
  return nullptr;
}

}  // namespace distsetup::accuracy
