// The walk that writes, asked backwards: the first row of a key whose conditions hold is the one that wrote it.
#include "codegen/read/key_reading.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/names.h"
#include "base/text.h"
#include "codegen/read/match.h"

namespace distsetup {

bool is_below(const std::string& pattern, const std::string& key) {
  if (pattern.size() < 2 || pattern.compare(pattern.size() - 2, 2, ".*") != 0) return is_same_key(pattern, key);
  return key.size() >= pattern.size() &&
         is_same_key(std::string_view(key).substr(0, pattern.size() - 1), std::string_view(pattern).substr(0, pattern.size() - 1));
}

std::string named(const KeyTable& table, const std::string& key) {
  for (const auto& [from, to] : table.read_as) {
    const bool has_it =
        to.size() > from.size() && key.size() >= to.size() && is_same_key(std::string_view(key).substr(0, to.size()), to);
    if (has_it) continue;  // fsdp_config.: fsdp_config.fsdp_
    if (key.size() >= from.size() && is_same_key(std::string_view(key).substr(0, from.size()), from))
      return to + key.substr(from.size());
  }
  return key;
}

static std::string text_of_key(const std::string& key, const std::vector<FoundKey>& found) {
  const auto it = std::find_if(found.begin(), found.end(), [&key](const FoundKey& one) { return is_same_key(key, one.key); });
  return it == found.end() ? "null" : it->text;
}

bool given_holds(const FieldCondition& given, const std::vector<FoundKey>& found) {
  return std::all_of(given.begin(), given.end(), [&found](const auto& wanted) {
    const auto other =
        std::find_if(found.begin(), found.end(), [&key = wanted.first](const FoundKey& one) { return is_below(key, one.key); });
    const std::string text = other == found.end() ? "null" : other->text;
    if (other != found.end() && other->is_maybe) return false;
    return std::any_of(wanted.second.begin(), wanted.second.end(), [&text, &found](const std::string& one) {
      if (one.starts_with("!@")) return text != "null" && text != text_of_key(one.substr(2), found);
      if (one.starts_with("~")) return text != "null" && text.find(one.substr(1)) != std::string::npos;
      return one == "*" ? text != "null" : same_name(one, text);
    });
  });
}

Explainer::Explainer(const KeyTable& table, const std::vector<FoundKey>& found) : table_(table), variables_(read_variables(table)) {
  for (size_t i = 0; i < variables_.size(); ++i) index_.emplace(variables_[i].field, i);
  for (const FoundKey& one : found) keys_.push_back(key_of(one, found));
  chosen_.assign(variables_.size(), "");
  for (const Rule& rule : table.rules) {
    std::vector<size_t> asked;
    for (const FieldCondition* condition : {&rule.when, &rule.unless}) {
      for (const auto& entry : *condition) asked.push_back(variable(entry.first));
    }
    const bool is_known = !asked.empty() && std::find(asked.begin(), asked.end(), variables_.size()) == asked.end();
    if (rule.severity == Severity::kError && is_known) refusals_.emplace_back(&rule, std::move(asked));
  }
}

int Explainer::num_refusals(const std::vector<size_t>& among) const {
  return static_cast<int>(std::count_if(refusals_.begin(), refusals_.end(), [&](const auto& refusal) {
    const auto& [rule, asked] = refusal;
    const auto is_chosen = [this](size_t v) { return !chosen_[v].empty(); };
    const bool is_here = std::any_of(asked.begin(), asked.end(),
                                     [&among](size_t v) { return std::find(among.begin(), among.end(), v) != among.end(); });
    return is_here && std::all_of(asked.begin(), asked.end(), is_chosen) && applies(rule->when, rule->unless);
  }));
}

FileKey Explainer::key_of(const FoundKey& found, const std::vector<FoundKey>& all) const {
  FileKey key;
  key.found = &found;
  std::set<size_t> variables;
  const auto ask = [&](const FieldCondition& when, const FieldCondition& unless, const std::string& field) {
    for (const FieldCondition* condition : {&when, &unless}) {
      for (const auto& entry : *condition) variables.insert(variable(entry.first));
    }
    if (variable(field) < variables_.size()) variables.insert(variable(field));
  };
  for (const KeyRow& row : table_.rows) {
    if (!is_same_key(row.key, found.key)) continue;
    key.rows.push_back(&row);
    ask(row.when, row.unless, row.field);
  }
  for (const ReadRow& row : table_.reads) {
    if (!is_below(row.key, found.key) || (!row.has_absent && !given_holds(row.given, all))) continue;
    key.reads.push_back(&row);
    ask(row.when, row.unless, row.field);
  }
  key.variables.assign(variables.begin(), variables.end());
  return key;
}

size_t Explainer::variable(std::string_view field) const {
  const auto it = index_.find(field);
  return it == index_.end() ? variables_.size() : it->second;
}

std::string_view Explainer::text_of(std::string_view field) const {
  const size_t i = variable(field);
  return i < variables_.size() ? std::string_view(chosen_[i]) : std::string_view();
}

bool Explainer::holds_now(const FieldCondition& condition) const {
  return std::all_of(condition.begin(), condition.end(), [this](const auto& entry) {
    const std::string_view text = text_of(entry.first);
    return std::find(entry.second.begin(), entry.second.end(), text) != entry.second.end();
  });
}
bool Explainer::applies(const FieldCondition& when, const FieldCondition& unless) const {
  return holds_now(when) && (unless.empty() || !holds_now(unless));
}

// "true" and "false" of a row stand for all their spellings (1, yes); "*name.json" is a text that ends so.
static bool is_of(const FoundKey& found, const Json& one) {
  const std::string text = one.is_string() ? one.get<std::string>() : "";
  if ((text == "true" || text == "false") && is_same(found, Json(text == "true"))) return true;
  if (text.size() < 2 || text[0] != '*') return is_same(found, one);
  const std::string end = text.substr(1);
  return found.text.size() >= end.size() && found.text.compare(found.text.size() - end.size(), end.size(), end) == 0;
}

// No field counts below zero: -1 is how tools write that a number is not given.
static std::optional<Json> value_of(const KeyRow& row, const FoundKey& found) {
  std::optional<Json> value = read_backwards(row, found);
  const bool is_below_zero = value && row.type == KeyType::kInt && value->is_number_integer() && value->get<int64_t>() < 0;
  return is_below_zero ? std::nullopt : value;
}

static bool is_not_given(const FileKey& key) {
  const auto counts = [](const auto* row) { return row->type == KeyType::kInt && !row->field.empty(); };
  return key.found->text == "-1" &&
         (std::any_of(key.rows.begin(), key.rows.end(), counts) || std::any_of(key.reads.begin(), key.reads.end(), counts));
}

// "auto" is filled in by whoever reads the file: it speaks for no value of a field, unless a row says what the tool makes of it.
bool Explainer::leaves_open(const FileKey& key) const {
  if (!key.found->unknown.empty() || !same_name(key.found->text, "auto")) return false;
  const auto names_auto = [](const ReadRow* row) {
    return std::any_of(row->of.begin(), row->of.end(), [](const Json& one) { return one == "auto"; });
  };
  if (std::any_of(key.reads.begin(), key.reads.end(), names_auto)) return false;
  return std::any_of(key.variables.begin(), key.variables.end(),
                     [this](size_t v) { return variables_[v].field.compare(0, 10, "precision.") == 0; });
}

// A field read from a key must be what is tried for it.
bool Explainer::agrees(const std::string& field, const Json& value) const {
  const size_t i = variable(field);
  if (i == variables_.size()) return true;
  const std::string text = field_text(value);
  if (chosen_[i] != kAnyOther) return chosen_[i] == text;
  const std::vector<std::string>& domain = variables_[i].domain;
  return std::find(domain.begin(), domain.end(), text) == domain.end();
}

// What is written where a value is not known (plain "cosine" without an end) gives way to a row that reads it and knows the value.
bool Explainer::is_read_otherwise(const KeyRow& row, const FileKey& key) const {
  const bool is_for_unknown =
      std::any_of(row.when.begin(), row.when.end(), [this](const auto& one) { return text_of(one.first) == "null"; });
  return is_for_unknown && std::any_of(key.reads.begin(), key.reads.end(), [&key](const ReadRow* read) {
           return std::any_of(read->of.begin(), read->of.end(), [&key](const Json& one) { return is_of(*key.found, one); });
         });
}

KeyReading Explainer::explain(const FileKey& key) const {
  const FoundKey& found = *key.found;
  if (leaves_open(key)) return {KeyReading::How::kAutomatic, "", {}, ""};
  if (KeyReading first = explain_by_reads(key, true); first.how != KeyReading::How::kNone) return first;
  const bool is_false = found.unknown.empty() && is_same(found, Json(false));
  bool is_switch = false, writes_other = false;
  for (const KeyRow* of_key : key.rows) {
    const KeyRow& row = *of_key;
    is_switch = is_switch || row.type == KeyType::kBool;
    if (!applies(row.when, row.unless)) continue;
    if (row.field.empty() && is_read_otherwise(row, key)) continue;
    if (row.field.empty()) {
      if (found.unknown.empty() && is_same(found, row.value)) return {KeyReading::How::kConstant, "", {}, ""};
      writes_other = true;
      break;
    }
    const std::string_view tried = text_of(row.field);
    if (tried == "null") continue;
    // Several texts of the field may be written the same: the one that is tried counts. Not of a list, which is read whole.
    const bool is_list = row.type == KeyType::kTextList || row.type == KeyType::kCommaList;
    if (!is_list && !tried.empty() && found.unknown.empty()) {
      for (const auto& [ours, theirs] : row.value_map) {
        if (is_same(found, theirs) && agrees(row.field, value_of_text(ours)))
          return {KeyReading::How::kField, row.field, value_of_text(ours), ""};
      }
    }
    if (const std::optional<Json> value = value_of(row, found); value && agrees(row.field, *value))
      return {KeyReading::How::kField, row.field, *value, ""};
    if (!tried.empty() && tried != kAnyOther) {
      writes_other = true;
      break;
    }
  }
  // "false" of a key that is only ever written as true is the same as leaving it out.
  if (is_switch && is_false && !writes_other) return {KeyReading::How::kConstant, "", {}, ""};
  if (KeyReading by_reads = explain_by_reads(key, false); by_reads.how != KeyReading::How::kNone) return by_reads;
  if (is_not_given(key)) return {KeyReading::How::kConstant, "", {}, ""};
  if (same_name(found.text, "auto")) return {KeyReading::How::kAutomatic, "", {}, ""};
  return {};
}

// "0,1", "0,", [0, 1]: so many; one number alone is no list.
static std::optional<Json> count_in_list(const FoundKey& found) {
  std::string text = found.text;
  const bool is_list = found.is_list || text.find(',') != std::string::npos;
  if (!found.unknown.empty() || !is_list) return std::nullopt;
  if (!found.is_list && text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  int64_t count = 0;
  for (const std::string& item : found.is_list ? found.items : split_words(text, ',')) {
    if (item.empty()) continue;
    if (item.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
    ++count;
  }
  return count > 0 ? std::optional<Json>(count) : std::nullopt;
}

// A share of another key's number, where both are known.
static std::optional<Json> product_with(const FoundKey& found, const std::string& other, const std::vector<FileKey>& keys) {
  const auto whole =
      std::find_if(keys.begin(), keys.end(), [&other](const FileKey& one) { return is_same_key(one.found->key, other); });
  if (whole == keys.end() || !found.unknown.empty() || !whole->found->unknown.empty()) return std::nullopt;
  const std::optional<double> share = number_of(found.text), number = number_of(whole->found->text);
  if (!share || !number || *share < 0 || *share > 1 || *number < 0 || *number > 1e12) return std::nullopt;
  return Json(static_cast<int64_t>(std::llround(*share * *number)));
}

KeyReading Explainer::explain_by_reads(const FileKey& key, bool is_first) const {
  const FoundKey& found = *key.found;
  for (const ReadRow* of_key : key.reads) {
    const ReadRow& row = *of_key;
    if (row.is_first != is_first) continue;
    if (!row.of.empty() && std::none_of(row.of.begin(), row.of.end(), [&found](const Json& one) { return is_of(found, one); }))
      continue;
    if (!row.choice.empty() || !applies(row.when, row.unless)) continue;
    const bool is_typed = row.has_type && row.field.empty() && row.of.empty() && found.unknown.empty();
    if (is_typed && !is_of_type(found, row.type)) continue;
    if (!row.drop.empty()) return {KeyReading::How::kDropped, "", {}, row.drop, row.is_file, row.is_file && !row.when.empty()};
    if (!found.unknown.empty()) continue;
    if (row.field.empty()) {
      if (!row.of.empty() || !row.has_absent) return {KeyReading::How::kConstant, "", {}, ""};
      continue;
    }
    KeyRow as_row;
    as_row.type = row.type;
    as_row.field = row.field;
    as_row.value_map = row.values;
    const std::optional<Json> value = !row.part_of.empty() ? product_with(found, row.part_of, keys_)
                                      : row.is_counted     ? count_in_list(found)
                                                           : value_of(as_row, found);
    if (value && agrees(row.field, *value)) return {KeyReading::How::kField, row.field, *value, ""};
  }
  return {};
}

int Explainer::num_missing() const {
  int count = 0;
  std::set<std::string_view> seen;
  const auto has = [this](const std::string& key) {
    return std::any_of(keys_.begin(), keys_.end(), [&key](const FileKey& one) { return is_same_key(one.found->key, key); });
  };
  for (const KeyRow& row : table_.rows) {
    if (seen.count(row.key) != 0 || !applies(row.when, row.unless)) continue;
    if (!row.field.empty()) continue;
    seen.insert(row.key);
    count += !has(row.key) ? 1 : 0;
  }
  return count;
}

}  // namespace distsetup
