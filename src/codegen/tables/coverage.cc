#include "codegen/tables/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/diagnostic_codes.h"
#include "base/value.h"
#include "base/value_yaml.h"
#include "codegen/tables/field_sources.h"
#include "codegen/tables/load_table.h"
#include "codegen/tables/target.h"
#include "plan/plan_json.h"

namespace distsetup {
namespace {

constexpr char kTable[] = "coverage.yaml";

void leaves(const Json& json, const std::string& prefix, std::vector<std::string>& out) {
  for (const auto& [key, value] : json.items()) {
    const std::string name = prefix.empty() ? key : prefix + "." + key;
    if (value.is_object()) {
      leaves(value, name, out);
    } else {
      out.push_back(name);
    }
  }
}

// "train.*", "hardware.memory_bytes".
bool is_like(std::string_view pattern, std::string_view field) {
  if (pattern.empty() || pattern.back() != '*') return pattern == field;
  return field.substr(0, pattern.size() - 1) == pattern.substr(0, pattern.size() - 1);
}

class Coverer {
 public:
  Coverer(const TemplateSet& templates, const std::string& target) : templates_(templates), target_(target) {}

  Result<std::vector<FieldCoverage>> run() {
    read_target();
    read_reasons();
    if (has_error(diagnostics_)) return diagnostics_;
    std::vector<FieldCoverage> out;
    for (const std::string& field : plan_fields()) {
      FieldCoverage one{field, Coverage::kGap, ""};
      if (reads_plan_ || written_.count(field) != 0) {
        one.how = Coverage::kEmitted;
      } else if (refused_.count(field) != 0) {
        one.how = Coverage::kRefused;
      } else if (const std::string* reason = reason_for(field)) {
        one.how = Coverage::kNotApplicable;
        one.reason = *reason;
      }
      out.push_back(std::move(one));
    }
    return {std::move(out), std::move(diagnostics_)};
  }

 private:
  static void add(std::set<std::string>& to, const std::string& field) {
    to.insert(field);
    for (const std::string& source : sources_of(field)) to.insert(source);
  }
  static void add(std::set<std::string>& to, const FieldCondition& condition) {
    for (const auto& entry : condition) add(to, entry.first);
  }

  void read_table(const std::string& path) {
    const auto loaded = load_key_table(templates_, path.find('/') == std::string::npos ? target_ + "/" + path : path, {});
    append(diagnostics_, loaded.diagnostics);
    if (!loaded.ok()) return;
    const std::shared_ptr<const KeyTable>& table = *loaded;
    for (const KeyRow& row : table->rows) {
      if (!row.field.empty()) add(written_, row.field);
      add(written_, row.when);
      add(written_, row.unless);
    }
    for (const Rule& rule : table->rules) {
      if (rule.severity != Severity::kError) continue;
      add(refused_, rule.when);
      add(refused_, rule.unless);
    }
  }

  void read_value(const Value& from) {
    if (from.kind == Value::Kind::kScalar) return add(written_, from.text);
    for (const auto& [kind, argument] : from.entries) {
      if (kind == "keys") {
        read_table(argument.text);
      } else if (kind == "switch") {
        for (const auto& entry : argument.entries) add(written_, entry.first);
      } else {
        add(written_, argument.text);
      }
    }
  }

  void read_target() {
    const std::string* text = find_file(templates_, target_ + "/target.yaml");
    if (text == nullptr) {
      diagnostics_.push_back(error(code::kUnknownTarget, {"command line", 0, 0}, fmt::format("unknown target '{}'", target_)));
      return;
    }
    const Result<Value> root = parse_yaml(*text, "templates/" + target_ + "/target.yaml");
    append(diagnostics_, root.diagnostics);
    if (!root.ok()) return;
    if (const Value* own = root->find("not_applicable")) reasons(*own);
    if (const Value* rules = root->find("rules")) read_table(rules->text);
    const Value* files = root->find("files");
    for (const Value& file : files == nullptr ? std::vector<Value>{} : files->items) {
      if (const Value* keys = file.find("keys")) read_table(keys->text);
      for (const char* which : {"values", "also"}) {
        const Value* values = file.find(which);
        if (values == nullptr) continue;
        for (const auto& entry : values->entries) read_value(entry.second);
      }
      for (const char* condition : {"when", "unless"}) {
        const Value* map = file.find(condition);
        for (const auto& entry : map == nullptr ? std::vector<Value::Entry>{} : map->entries) add(written_, entry.first);
      }
    }
  }

  void reasons(const Value& map) {
    for (const auto& [pattern, reason] : map.entries) reasons_.emplace_back(pattern, reason.text);
  }

  // The target's own reasons come before those of its groups, these before those of every target.
  void read_reasons() {
    const std::string* text = find_file(templates_, kTable);
    if (text == nullptr) return;
    const Result<Value> root = parse_yaml(*text, "templates/coverage.yaml");
    append(diagnostics_, root.diagnostics);
    if (!root.ok()) return;
    const Value *all = root->find("every_target"), *plans = root->find("reads_plan"), *groups = root->find("groups");
    const Value* targets = root->find("targets");
    for (const Value& one : plans == nullptr ? std::vector<Value>{} : plans->items) reads_plan_ = reads_plan_ || one.text == target_;
    const Value* own = targets == nullptr ? nullptr : targets->find(target_);
    if (own != nullptr) {
      for (const auto& [pattern, reason] : own->entries) {
        if (pattern != "groups") reasons_.emplace_back(pattern, reason.text);
      }
      const Value* names = own->find("groups");
      for (const Value& one : names == nullptr ? std::vector<Value>{} : names->items) {
        const Value* group = groups == nullptr ? nullptr : groups->find(one.text);
        if (group == nullptr) {
          diagnostics_.push_back(error(code::kTemplate, one.location, fmt::format("no group '{}' of reasons", one.text)));
        } else {
          reasons(*group);
        }
      }
    }
    if (all != nullptr) reasons(*all);
  }

  const std::string* reason_for(const std::string& field) const {
    const auto found = std::find_if(reasons_.begin(), reasons_.end(), [&field](const auto& one) { return is_like(one.first, field); });
    return found == reasons_.end() ? nullptr : &found->second;
  }

  const TemplateSet& templates_;
  const std::string target_;
  bool reads_plan_ = false;
  std::set<std::string> written_, refused_;
  std::vector<std::pair<std::string, std::string>> reasons_;
  Diagnostics diagnostics_;
};

}  // namespace

std::string_view name(Coverage coverage) {
  switch (coverage) {
    case Coverage::kEmitted: return "emitted";
    case Coverage::kRefused: return "refused";
    case Coverage::kNotApplicable: return "not applicable";
    case Coverage::kGap: return "gap";
  }
  return "";
}

std::vector<std::string> plan_fields() {
  std::vector<std::string> fields;
  leaves(to_json(Plan{}), "", fields);
  std::sort(fields.begin(), fields.end());
  return fields;
}

Result<std::vector<FieldCoverage>> target_coverage(const TemplateSet& templates, const std::string& target) {
  return Coverer(templates, target).run();
}

}  // namespace distsetup
