// Reading templates/_lint/*.yaml, whose grammar is in templates/README.md. The tables are our own: a mistake in one is a bug, found by
// the first test that runs.
#include "codegen/lint/rule_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "base/check.h"
#include "base/map_reader.h"
#include "base/value.h"
#include "base/value_yaml.h"
#include "codegen/tables/templates.h"

namespace distsetup {
namespace {

constexpr std::string_view kLintFolder = "_lint/";

Severity lint_severity(const std::string& word) {
  CHECK(word == "error" || word == "warning" || word == "note", "severity '{}'", word);
  return word == "error" ? Severity::kError : word == "warning" ? Severity::kWarning : Severity::kNote;
}

LintContext lint_context(const Value* with, Diagnostics& diagnostics) {
  LintContext context;
  if (with == nullptr) return context;
  MapReader reader(*with, "with", diagnostics);
  double memory_gib = 0;
  reader.get("nodes", context.nodes);
  reader.get("gpus", context.gpus_per_node);
  reader.get("gpu", context.gpu);
  if (reader.get("gpu_memory_gib", memory_gib)) context.gpu_memory_bytes = static_cast<int64_t>(memory_gib * (1LL << 30));
  reader.get("gpu_has_bf16", context.gpu_has_bf16);
  reader.get("layer_class", context.layer_class);
  reader.get("model_parameters", context.model_parameters);
  reader.get("consumer", context.consumer);
  reader.get("as", context.as);
  if (const Value* tools = reader.child("tools")) {
    for (const auto& [name, version] : tools->entries) context.tools[name] = version.text;
  }
  reader.finish();
  return context;
}

// A text: one file of the usual name; a map: several files by name.
std::vector<LintFile> example_files(const Value& value, const std::string& usual_name) {
  if (value.kind == Value::Kind::kScalar) return {{usual_name, value.text}};
  CHECK(value.kind == Value::Kind::kMap, "{}:{}: an example is a text or a map", value.location.file, value.location.line);
  std::vector<LintFile> files;
  for (const auto& [name, text] : value.entries) files.push_back({name, text.text});
  return files;
}

LintRule read_rule(const Value& value, const std::string& usual_name, const std::string& source, Diagnostics& diagnostics) {
  LintRule rule;
  std::string severity = "error", file = usual_name;
  rule.source = source;
  MapReader reader(value, "a lint rule", diagnostics);
  for (const char* key : {"code", "title", "why", "fix", "bites", "bad", "good"}) reader.require(key);
  reader.get("code", rule.code);
  reader.get("severity", severity);
  reader.get("bites", rule.bites);
  reader.get("title", rule.title);
  reader.get("why", rule.why);
  reader.get("fix", rule.fix);
  reader.get("fix_elsewhere", rule.fix_elsewhere);
  reader.get("source", rule.source);
  reader.get("file", file);
  const Value* with = reader.child("with");
  const Value* good_with = reader.child("good_with");  // where the good example differs in what the files do not say
  rule.severity = lint_severity(severity);
  CHECK(rule.bites == "parse" || rule.bites == "start" || rule.bites == "run" || rule.bites == "silent", "{}: bites '{}'", rule.code,
        rule.bites);
  if (const Value* bad = reader.child("bad")) rule.bad = {example_files(*bad, file), lint_context(with, diagnostics)};
  if (const Value* good = reader.child("good"))
    rule.good = {example_files(*good, file), lint_context(good_with != nullptr ? good_with : with, diagnostics)};
  reader.finish();
  return rule;
}

std::vector<LintRule> read_rules(const std::string& path, std::string_view text) {
  std::vector<LintRule> rules;
  const Result<Value> root = parse_yaml(text, "templates/" + path);
  CHECK(root.ok(), "{}", format_diagnostics(root.diagnostics));
  Diagnostics diagnostics;
  int64_t version = 0;
  std::string source, usual_name;
  MapReader reader(*root, "a table of lint rules", diagnostics);
  reader.get("version", version);
  reader.get("source", source);
  reader.get("file", usual_name);
  const Value* list = reader.child("rules");
  reader.finish();
  CHECK(version == 1 && list != nullptr, "{}", path);
  for (const Value& item : list->items) rules.push_back(read_rule(item, usual_name, source, diagnostics));
  CHECK(diagnostics.empty(), "{}", format_diagnostics(diagnostics));
  return rules;
}

// Each is read when one of its rules is asked for: the rules' pages are most of the tables, and a file breaks few rules.
class RuleTables {
 public:
  RuleTables() {
    for (const auto& [path, text] : embedded_templates().files) {
      const bool is_table = path.compare(0, kLintFolder.size(), kLintFolder) == 0 && path.find("_keys.") == std::string::npos &&
                            path.find("/names/") == std::string::npos;
      if (is_table) tables_.push_back({path, text, std::nullopt});
    }
  }

  const LintRule* find(std::string_view code) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Table& table : tables_) {
      if (table.text.find(fmt::format("code: {}\n", code)) == std::string::npos) continue;
      for (const LintRule& rule : read(table))
        if (rule.code == code) return &rule;
    }
    return nullptr;
  }
  std::vector<LintRule> all() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<LintRule> rules;
    for (Table& table : tables_) rules.insert(rules.end(), read(table).begin(), read(table).end());
    return rules;
  }

 private:
  struct Table {
    std::string path;
    std::string_view text;
    std::optional<std::vector<LintRule>> rules;
  };
  static const std::vector<LintRule>& read(Table& table) {
    if (!table.rules.has_value()) table.rules = read_rules(table.path, table.text);
    return *table.rules;
  }

  std::vector<Table> tables_;
  std::mutex mutex_;
};

RuleTables& rule_tables() {
  static RuleTables tables;
  return tables;
}

}  // namespace

const std::vector<LintRule>& lint_rules() {
  static const std::vector<LintRule> kRules = rule_tables().all();
  return kRules;
}

const LintRule* find_lint_rule(std::string_view code) { return rule_tables().find(code); }

}  // namespace distsetup
