#include "planner/resolve/method_defaults.h"

#include <fmt/format.h>

#include "base/diagnostic_codes.h"
#include "base/map_reader.h"

namespace distsetup {
namespace {

MethodDefaults read_row(const Value& row, Diagnostics& diagnostics) {
  MethodDefaults out;
  std::string unused;
  MapReader reader(row, "a method", diagnostics);
  for (const char* key : {"method", "learning_rate", "weight_decay", "beta1", "beta2", "epsilon", "source"}) reader.require(key);
  reader.get("method", unused);
  reader.get("finetune", unused);
  reader.get("learning_rate", out.learning_rate);
  reader.get("weight_decay", out.weight_decay);
  reader.get("beta1", out.beta1);
  reader.get("beta2", out.beta2);
  reader.get("epsilon", out.epsilon);
  reader.get("batch_tokens", out.batch_tokens);
  reader.get("batch_samples", out.batch_samples);
  reader.get("source", out.source);
  reader.finish();
  return out;
}

bool says(const Value& row, std::string_view key, std::string_view text) {
  const Value* value = row.find(key);
  return value != nullptr && value->text == text;
}

Result<std::vector<Value>> read_rows(const Presets& presets, std::string_view list) {
  const PresetFile* file = find_preset(presets, "training", "defaults");
  if (file == nullptr) return error(code::kMissingKey, {}, "no presets/training/defaults.yaml");
  const Result<Value> table = read_preset(*file);
  if (!table.ok()) return table.diagnostics;
  const Value* rows = table->find(list);
  if (rows == nullptr) return error(code::kMissingKey, {file->path, 1, 1}, fmt::format("no '{}'", list));
  return rows->items;
}

}  // namespace

Result<MethodDefaults> method_defaults(const Presets& presets, std::string_view method, std::string_view finetune) {
  const Result<std::vector<Value>> rows = read_rows(presets, "methods");
  if (!rows.ok()) return rows.diagnostics;
  for (const Value& row : *rows) {
    if (!says(row, "method", method) || (row.find("finetune") != nullptr && !says(row, "finetune", finetune))) continue;
    Diagnostics diagnostics;
    MethodDefaults out = read_row(row, diagnostics);
    if (has_error(diagnostics)) return diagnostics;
    return out;
  }
  return error(code::kMissingKey, {}, fmt::format("presets/training/defaults.yaml has no row for method '{}'", method));
}

Diagnostics apply_optimizer_defaults(const Presets& presets, std::string_view optimizer, MethodDefaults& defaults) {
  const Result<std::vector<Value>> rows = read_rows(presets, "optimizers");
  if (!rows.ok()) return rows.diagnostics;
  Diagnostics diagnostics;
  for (const Value& row : *rows) {
    if (!says(row, "optimizer", optimizer)) continue;
    std::string unused;
    MapReader reader(row, "an optimizer", diagnostics);
    reader.require("source");
    reader.get("optimizer", unused);
    reader.get("weight_decay", defaults.weight_decay);
    reader.get("beta1", defaults.beta1);
    reader.get("beta2", defaults.beta2);
    reader.get("epsilon", defaults.epsilon);
    reader.get("momentum", defaults.momentum);
    reader.get("learning_rate_note", defaults.learning_rate_note);
    reader.get("source", defaults.source);
    reader.finish();
  }
  return diagnostics;
}

}  // namespace distsetup
