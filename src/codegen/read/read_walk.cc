// The walk itself: for every group of fields that meet at a key, the combination of values under which the table would write most of
// the file's keys. Groups are small (the largest table has a few hundred combinations), so all are tried.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "base/names.h"
#include "codegen/read/domains.h"
#include "codegen/read/match.h"
#include "codegen/read/read.h"

namespace distsetup {
namespace {

// How a key of the file comes about under some values of the variables.
struct Explanation {
  enum class How { kNone, kConstant, kField, kDropped, kAutomatic };
  How how = How::kNone;
  std::string field;
  Json value;
  std::string reason;  // kDropped
};

bool is_below(const std::string& pattern, const std::string& key) {
  if (pattern.size() < 2 || pattern.compare(pattern.size() - 2, 2, ".*") != 0) return is_same_key(pattern, key);
  return key.size() >= pattern.size() &&
         is_same_key(std::string_view(key).substr(0, pattern.size() - 1), std::string_view(pattern).substr(0, pattern.size() - 1));
}

// Fields that say how a file is written, not what is trained: tried out, and not carried.
bool is_hidden(const std::string& field) {
  static const std::set<std::string> kCarried = {"derived.zero_stage",   "derived.offload",        "derived.hybrid",
                                                 "derived.world",        "derived.pipeline_batch", "derived.save_interval",
                                                 "derived.warmup_ratio", "derived.mesh_2d",        "derived.min_learning_rate_factor"};
  return field.compare(0, 8, "derived.") == 0 && kCarried.count(field) == 0;
}

class Walk {
 public:
  Walk(const KeyTable& table, const std::vector<Found>& found, const std::string& file)
      : table_(table), variables_(read_variables(table)) {
    reading_.file = file;
    reading_.table = table.name;
    reading_.tool = table.tool;
    for (const Found& one : found) add(one);
    assume_defaults();
    chosen_.assign(variables_.size(), "");
    is_settled_.assign(variables_.size(), false);
    evidence_.assign(variables_.size(), nullptr);
  }

  Reading run() {
    for (const std::vector<size_t>& group : joint_variables(table_, variables_)) settle(group);
    for (size_t i = 0; i < variables_.size(); ++i) {
      if (is_settled_[i] && !is_hidden(variables_[i].field)) put(variables_[i].field, value_of_text(chosen_[i]), *evidence_[i]);
    }
    for (const Found& found : found_) take(found);
    return std::move(reading_);
  }

 private:
  using How = Explanation::How;

  // The key under the name that the table has for it (`read_as`), and words that stand for themselves ("full_shard auto_wrap") apart.
  void add(Found found) {
    for (const auto& [from, to] : table_.read_as) {
      if (found.key.size() >= from.size() && is_same_key(std::string_view(found.key).substr(0, from.size()), from)) {
        found.key = to + found.key.substr(from.size());
        break;
      }
    }
    const bool has_words = std::find(table_.words.begin(), table_.words.end(), found.key) != table_.words.end();
    if (!has_words || (!found.is_list && found.text.find_first_of(" ,") == std::string::npos)) {
      found_.push_back(std::move(found));
      return;
    }
    for (size_t at = 0; at < found.text.size();) {
      const size_t end = std::min(found.text.find_first_of(" ,", at), found.text.size());
      Found word = found;
      word.text = found.text.substr(at, end - at);
      word.is_list = false;
      word.items.clear();
      if (!word.text.empty()) found_.push_back(std::move(word));
      at = end + 1;
    }
  }

  const Found* find(const std::string& key) const {
    for (const Found& one : found_) {
      if (is_same_key(one.key, key)) return &one;
    }
    return nullptr;
  }

  void assume_defaults() {
    std::vector<Found> assumed;
    for (const ReadRow& row : table_.reads) {
      if (!row.has_absent || find(row.key) != nullptr) continue;
      const bool applies = std::all_of(row.given.begin(), row.given.end(), [this](const auto& wanted) {
        const Found* other = find(wanted.first);
        const std::string text = other == nullptr ? "null" : other->text;
        return std::any_of(wanted.second.begin(), wanted.second.end(),
                           [&text](const std::string& one) { return one == "*" ? text != "null" : same_name(one, text); });
      });
      if (!applies) continue;
      Found one;
      one.key = row.key;
      one.text = row.absent;
      one.is_assumed = true;
      one.at = {reading_.file, 0, 0};
      assumed.push_back(std::move(one));
    }
    for (Found& one : assumed) found_.push_back(std::move(one));
  }

  size_t variable(std::string_view field) const {
    size_t i = 0;
    while (i < variables_.size() && variables_[i].field != field) ++i;
    return i;
  }

  // The value that is tried, "" for a field that is none of the variables.
  std::string_view text_of(std::string_view field) const {
    const size_t i = variable(field);
    return i < variables_.size() ? std::string_view(chosen_[i]) : std::string_view();
  }

  bool holds_now(const Condition& condition) const {
    return std::all_of(condition.begin(), condition.end(), [this](const auto& entry) {
      const std::string_view text = text_of(entry.first);
      return std::find(entry.second.begin(), entry.second.end(), text) != entry.second.end();
    });
  }
  bool applies(const Condition& when, const Condition& unless) const {
    return holds_now(when) && (unless.empty() || !holds_now(unless));
  }

  // A field read from a key must be what is tried for it.
  bool agrees(const std::string& field, const Json& value) const {
    const size_t i = variable(field);
    if (i == variables_.size()) return true;
    const std::string text = field_text(value);
    if (chosen_[i] != kAnyOther) return chosen_[i] == text;
    const std::vector<std::string>& domain = variables_[i].domain;
    return std::find(domain.begin(), domain.end(), text) == domain.end();
  }

  Explanation explain(const Found& found) const {
    const bool is_false = found.unknown.empty() && is_same(found, Json(false));
    bool is_switch = false, writes_other = false;
    for (const KeyRow& row : table_.rows) {
      if (!is_same_key(row.key, found.key)) continue;
      is_switch = is_switch || row.type == KeyType::kBool;
      if (!applies(row.when, row.unless)) continue;
      if (row.field.empty()) {
        if (found.unknown.empty() && is_same(found, row.value)) return {How::kConstant, "", {}, ""};
        writes_other = true;
        break;
      }
      const std::string_view tried = text_of(row.field);
      if (tried == "null") continue;
      if (const std::optional<Json> value = read_backwards(row, found); value && agrees(row.field, *value))
        return {How::kField, row.field, *value, ""};
      if (!tried.empty() && tried != kAnyOther) {
        writes_other = true;
        break;
      }
    }
    // "false" of a key that is only ever written as true is the same as leaving it out.
    if (is_switch && is_false && !writes_other) return {How::kConstant, "", {}, ""};
    return explain_by_reads(found);
  }

  Explanation explain_by_reads(const Found& found) const {
    for (const ReadRow& row : table_.reads) {
      if (!is_below(row.key, found.key)) continue;
      if (!row.of.empty() && std::none_of(row.of.begin(), row.of.end(), [&found](const Json& one) { return is_same(found, one); }))
        continue;
      if (!row.drop.empty()) return {How::kDropped, "", {}, row.drop};
      if (!found.unknown.empty()) continue;
      if (!applies(row.when, row.unless)) continue;
      if (row.field.empty()) {
        if (!row.of.empty() || !row.has_absent) return {How::kConstant, "", {}, ""};
        continue;
      }
      KeyRow as_row;
      as_row.type = row.type;
      as_row.value_map = row.values;
      if (const std::optional<Json> value = read_backwards(as_row, found); value && agrees(row.field, *value))
        return {How::kField, row.field, *value, ""};
    }
    if (same_name(found.text, "auto")) return {How::kAutomatic, "", {}, ""};
    return {};
  }

  bool meets(const Found& found, const std::vector<size_t>& group) const {
    const auto asks = [&](const Condition& condition) {
      return std::any_of(condition.begin(), condition.end(), [&](const auto& entry) {
        return std::any_of(group.begin(), group.end(), [&](size_t i) { return variables_[i].field == entry.first; });
      });
    };
    const auto is_of = [&](const std::string& field) {
      return std::any_of(group.begin(), group.end(), [&](size_t i) { return variables_[i].field == field; });
    };
    for (const KeyRow& row : table_.rows) {
      if (is_same_key(row.key, found.key) && (asks(row.when) || asks(row.unless) || is_of(row.field))) return true;
    }
    for (const ReadRow& row : table_.reads) {
      if (is_below(row.key, found.key) && (asks(row.when) || asks(row.unless) || is_of(row.field))) return true;
    }
    return false;
  }

  // Constants that the table would write and the file does not have: they only decide between equals.
  int missing_constants() const {
    int count = 0;
    std::set<std::string_view> seen;
    for (const KeyRow& row : table_.rows) {
      if (seen.count(row.key) != 0 || !applies(row.when, row.unless)) continue;
      if (!row.field.empty()) continue;
      seen.insert(row.key);
      count += find(row.key) == nullptr ? 1 : 0;
    }
    return count;
  }

  void settle(const std::vector<size_t>& group) {
    std::vector<const Found*> keys;
    for (const Found& found : found_) {
      if (meets(found, group)) keys.push_back(&found);
    }
    if (keys.empty()) return;
    size_t combinations = 1;
    for (const size_t i : group) combinations *= variables_[i].domain.size();
    CHECK(combinations <= (size_t{1} << 20), "{} combinations to read {} with", combinations, table_.name);
    // least[v][d]: fewest keys left unexplained with value d of variable v, and which key that leaves.
    constexpr int kMany = 1 << 30;
    std::vector<std::vector<int>> least(group.size());
    for (size_t v = 0; v < group.size(); ++v) least[v].assign(variables_[group[v]].domain.size(), kMany);
    std::vector<size_t> at(group.size(), 0), best;
    int best_cost = kMany, best_missing = kMany;
    for (size_t step = 0; step < combinations; ++step) {
      size_t rest = step;
      for (size_t v = group.size(); v-- > 0;) {  // the first variable varies slowest
        const std::vector<std::string>& domain = variables_[group[v]].domain;
        at[v] = rest % domain.size();
        rest /= domain.size();
        chosen_[group[v]] = domain[at[v]];
      }
      if (!is_possible([this](std::string_view field) { return text_of(field); })) continue;
      int cost = 0;
      for (const Found* key : keys) cost += explain(*key).how == How::kNone ? 1 : 0;
      for (size_t v = 0; v < group.size(); ++v) least[v][at[v]] = std::min(least[v][at[v]], cost);
      if (cost > best_cost) continue;
      const int missing = missing_constants();
      if (cost < best_cost || missing < best_missing) {
        best_cost = cost;
        best_missing = missing;
        best = at;
      }
    }
    for (size_t v = 0; v < group.size(); ++v) chosen_[group[v]] = variables_[group[v]].domain[best[v]];
    for (size_t v = 0; v < group.size(); ++v) {
      const bool is_constrained =
          std::any_of(least[v].begin(), least[v].end(), [best_cost](int cost) { return cost > best_cost && cost < kMany; });
      if (!is_constrained || chosen_[group[v]] == kAnyOther || chosen_[group[v]] == "null") continue;
      is_settled_[group[v]] = true;
      evidence_[group[v]] = evidence_for(group[v], keys);
    }
  }

  // The key that speaks for a value: the first that another value would leave unexplained; a key that is in the file before one that
  // is assumed.
  const Found* evidence_for(size_t v, const std::vector<const Found*>& keys) {
    const std::string kept = chosen_[v];
    const Found* out = nullptr;
    for (const bool assumed : {false, true}) {
      for (const Found* key : keys) {
        if (key->is_assumed != assumed || explain(*key).how == How::kNone) continue;
        for (const std::string& other : variables_[v].domain) {
          chosen_[v] = other;
          const bool is_lost = explain(*key).how == How::kNone;
          chosen_[v] = kept;
          if (is_lost) return key;
        }
        if (out == nullptr) out = key;
      }
    }
    return out;
  }

  void put(const std::string& field, Json value, const Found& from) {
    const auto [it, is_new] = reading_.fields.try_emplace(field, ReadField{value, from.key, from.at, from.is_assumed});
    if (!is_new && it->second.is_assumed && !from.is_assumed) it->second = {std::move(value), from.key, from.at, false};
  }

  void lose(const Found& found, std::string reason) { reading_.lost.push_back({found.key, found.text, std::move(reason), found.at}); }

  void take(const Found& found) {
    const Explanation how = explain(found);
    switch (how.how) {
      case How::kConstant: return;
      case How::kField:
        if (is_hidden(how.field)) return lose(found, "a plan derives it by itself");
        return put(how.field, how.value, found);
      case How::kDropped:
        if (!found.is_assumed) lose(found, how.reason);
        return;
      case How::kAutomatic: return lose(found, "'auto' is filled in by the program that reads the file");
      case How::kNone: break;
    }
    if (!found.is_assumed) lose(found, why_not(found));
  }

  std::string why_not(const Found& found) const {
    if (!found.unknown.empty()) return found.unknown;
    const KeyRow* constant = nullptr;
    bool is_known = false, has_field = false;
    for (const KeyRow& row : table_.rows) {
      if (!is_same_key(row.key, found.key)) continue;
      is_known = true;
      has_field = has_field || !row.field.empty();
      if (row.field.empty() && constant == nullptr && applies(row.when, row.unless)) constant = &row;
    }
    for (const ReadRow& row : table_.reads) is_known = is_known || is_below(row.key, found.key);
    if (constant != nullptr && !has_field)
      return fmt::format("a plan has no setting for it; it is written as {}", field_text(constant->value));
    if (is_known) return "no plan has this value together with the rest of the file";
    // The longest section that the table names.
    std::string_view how;
    size_t longest = 0;
    for (const auto& [section, verdict] : table_.unknown_key) {
      const bool is_in = section.empty() || (found.key.size() > section.size() && found.key.compare(0, section.size(), section) == 0);
      if (is_in && (how.empty() || section.size() >= longest)) {
        how = verdict;
        longest = section.size();
      }
    }
    if (how == "silent")
      return fmt::format("not a key that {} is known to have: it ignores unknown keys here without a word", table_.tool);
    if (how.empty() || how == "warning") return fmt::format("not a key that {} is known to have", table_.tool);
    return fmt::format("not a key that {} is known to have: it stops at unknown keys here", table_.tool);
  }

  const KeyTable& table_;
  std::vector<ReadVariable> variables_;
  std::vector<Found> found_;
  std::vector<std::string> chosen_;  // by variable
  std::vector<bool> is_settled_;
  std::vector<const Found*> evidence_;
  Reading reading_;
};

}  // namespace

Reading read_keys(const KeyTable& table, const std::vector<Found>& found, const std::string& file) {
  return Walk(table, found, file).run();
}

}  // namespace distsetup
