// The walk over one table: keys under the names of the table, what the tool assumes for absent ones, the search for values that
// account for them, and for every key what became of it.
#include "codegen/read/read_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "base/value_json.h"
#include "codegen/read/checks.h"
#include "codegen/read/domains.h"
#include "codegen/read/match.h"
#include "codegen/read/settings.h"
#include "codegen/read/value_search.h"
#include "codegen/tables/accepted_names.h"
#include "codegen/tables/other_releases.h"

namespace distsetup {
namespace {

class TableReading {
 public:
  TableReading(const KeyTable& table, const std::vector<FoundKey>& found, const std::string& file) : table_(table) {
    reading_.file = file;
    reading_.table = table.name;
    reading_.tool = table.tool;
    for (const FoundKey& one : found) add(one);
    for (const auto& [key, tool] : table.called) {
      if (std::any_of(found.begin(), found.end(), [&k = key](const FoundKey& one) { return is_same_key(one.key, k); }))
        reading_.tool = tool;
    }
    tell_extended_sections();
    complete_fsdp_words();
    assume_defaults();
  }

  Reading run() {
    Explainer explainer(table_, found_);
    for (const SettledField& one : search_values(explainer)) {
      const std::string& field = explainer.variables()[one.variable].field;
      if (!is_hidden(field) && !one.evidence->is_maybe)
        put(field, value_of_text(explainer.chosen()[one.variable]), *one.evidence, one.is_guess);
    }
    for (const FileKey& key : explainer.keys()) take(explainer, key);
    reading_.complaints = complaints_about(table_, found_);
    refuse_what_decides();
    reading_.num_missing = explainer.num_missing();
    return std::move(reading_);
  }

 private:
  using How = KeyReading::How;

  // A flag that names a part of another file: kept for that file.
  bool is_choice(const FoundKey& found) {
    for (const ReadRow& row : table_.reads) {
      if (row.choice.empty() || !is_same_key(row.key, found.key) || !found.unknown.empty()) continue;
      const bool is_file = found.text.find(".json") != std::string::npos || found.text.find(".yaml") != std::string::npos;
      if (row.choice == "distributed" && is_file) return false;  // the Trainer's --fsdp_config
      ReadChoices& chosen = reading_.chosen;
      if (row.choice == "stage") {
        chosen.stage = found.text;
      } else if (row.choice == "distributed") {
        chosen.setup = found.text;
      } else {
        chosen.assignments.emplace_back(row.choice, found.text);
      }
      return true;
    }
    return false;
  }

  // Under another strategy than the file's every number that is read would be wrong.
  void refuse_what_decides() {
    for (const LostKey& lost : reading_.lost) {
      if (lost.is_file || lost.text.empty() ||
          std::find(table_.decides.begin(), table_.decides.end(), lost.key) == table_.decides.end())
        continue;
      const auto is_unknown = [&lost](const FoundKey& one) { return one.key == lost.key && !one.unknown.empty(); };
      if (std::any_of(found_.begin(), found_.end(), is_unknown)) continue;
      Diagnostic one =
          error(code::kUnknownValue, lost.at,
                fmt::format("'{}' is '{}', which chooses how the model is sharded: {}", lost.key, lost.text, lost.reason), lost.help);
      one.length = static_cast<int>(lost.key.size());
      reading_.complaints.push_back({"", "", std::move(one)});
    }
  }

  // "--lr_scheduler_kwargs '{\"min_lr\": 1e-6}'" where the table has rows for what is in it: its members, one by one.
  bool add_members(const FoundKey& found) {
    if (!found.text.starts_with('{') || found.is_list || !found.unknown.empty()) return false;
    const std::string below = found.key + ".";
    const auto has_row = [&below](const auto& row) { return row.key.starts_with(below); };
    if (std::none_of(table_.rows.begin(), table_.rows.end(), has_row) &&
        std::none_of(table_.reads.begin(), table_.reads.end(), has_row))
      return false;
    const Result<Value> members = parse_json(found.text, found.at.file);
    if (!members.ok() || members->kind != Value::Kind::kMap) return false;
    for (FoundKey& member : found_in(*members)) {
      member.key = below + member.key;
      member.at = found.at;
      add(std::move(member));
    }
    return true;
  }

  // The key under the name that the table has for it (`read_as`), and words that stand for themselves ("full_shard auto_wrap") apart.
  void add(FoundKey found) {
    found.key = named(table_, found.key);
    const bool is_empty = found.text.empty() && found.items.empty() && found.unknown.empty() && !found.stands_alone && !found.is_null;
    if (is_empty) return lose(found, "it is empty: nothing is given");
    if (is_choice(found) || add_members(found)) return;
    const bool has_words = std::find(table_.words.begin(), table_.words.end(), found.key) != table_.words.end();
    if (!has_words || (!found.is_list && found.text.find_first_of(" ,") == std::string::npos)) {
      found_.push_back(std::move(found));
      return;
    }
    for (size_t at = 0; at < found.text.size();) {
      const size_t end = std::min(found.text.find_first_of(" ,", at), found.text.size());
      FoundKey word = found;
      word.text = found.text.substr(at, end - at);
      word.is_list = false;
      word.items.clear();
      if (!word.text.empty()) found_.push_back(std::move(word));
      at = end + 1;
    }
  }

  // By its key, or below it ("deepspeed.*").
  const FoundKey* find(const std::string& key) const {
    for (const FoundKey& one : found_) {
      if (is_below(key, one.key)) return &one;
    }
    return nullptr;
  }

  // Of a section whose every name is known ("trainer"), one that the tool does not have: whoever reads the file has extended it. Rows
  // can ask for that as `given: {extended.trainer: null}`.
  void tell_extended_sections() {
    std::set<std::string> extended;
    for (const FoundKey& one : found_) {
      const std::string section = one.key.substr(0, one.key.find('.'));
      const bool is_below_one = section.size() < one.key.size() && one.key.find('.', section.size() + 1) == std::string::npos;
      const auto first = table_.accepted.lower_bound(accepted_form(section) + ".");
      const bool is_listed =
          first != table_.accepted.end() && first->compare(0, section.size() + 1, accepted_form(section) + ".") == 0;
      const auto has_row = [&one](const auto& row) { return is_below(row.key, one.key); };
      const bool is_known = table_.accepted.count(accepted_form(one.key)) != 0 ||
                            std::any_of(table_.rows.begin(), table_.rows.end(), has_row) ||
                            std::any_of(table_.reads.begin(), table_.reads.end(), has_row);
      if (is_below_one && is_listed && !is_known) extended.insert(section);
    }
    for (const std::string& section : extended) tell("extended." + section);
  }

  // A key of ours, for `given` of rows.
  void tell(std::string key) {
    FoundKey one;
    one.key = std::move(key);
    one.text = "true";
    one.is_assumed = true;
    one.at = {reading_.file, 0, 0};
    found_.push_back(std::move(one));
  }

  // --fsdp auto_wrap names no strategy: FULL_SHARD it is (Transformers 5.23.0, training_args.py, _apply_legacy_fsdp_to_config; before
  // that accelerate's default). An argument that has gone says that an older release reads the file: `given: {old_trainer: "*"}`.
  void complete_fsdp_words() {
    if (std::find(table_.words.begin(), table_.words.end(), "fsdp") == table_.words.end()) return;
    const auto is_word = [](const FoundKey& one) { return one.key == "fsdp"; };
    const auto is_strategy = [&](const FoundKey& one) { return is_word(one) && one.text != "auto_wrap" && one.text != "offload"; };
    const auto first = std::find_if(found_.begin(), found_.end(), is_word);
    if (first != found_.end() && std::none_of(found_.begin(), found_.end(), is_strategy)) {
      FoundKey strategy = *first;
      strategy.text = "full_shard";
      found_.insert(first, std::move(strategy));
    }
    reading_.is_of_old_trainer =
        std::any_of(found_.begin(), found_.end(), [](const FoundKey& one) { return !gone_since("trainer", one.key).empty(); });
    if (reading_.is_of_old_trainer) tell("old_trainer");
  }

  void assume_defaults() {
    std::vector<FoundKey> assumed;
    for (const ReadRow& row : table_.reads) {
      if (!row.has_absent || find(row.key) != nullptr) continue;
      const bool is_there =  // the first row that fits counts
          std::any_of(assumed.begin(), assumed.end(), [&row](const FoundKey& one) { return is_same_key(one.key, row.key); });
      if (is_there || !given_holds(row.given, found_)) continue;
      FoundKey one;
      one.key = row.key;
      one.text = row.absent;
      one.is_assumed = true;
      one.at = {reading_.file, 0, 0};
      assumed.push_back(std::move(one));
    }
    for (FoundKey& one : assumed) found_.push_back(std::move(one));
  }

  void put(const std::string& field, Json value, const FoundKey& from, bool is_guess = false) {
    const ReadField read{std::move(value), from.key, from.at, from.is_assumed, is_guess};
    const auto [it, is_new] = reading_.fields.try_emplace(field, read);
    if (is_new || from.is_assumed || is_guess) return;
    if (it->second.is_assumed || it->second.is_guess) {
      it->second = read;
    } else if (it->second.value != read.value) {
      reading_.contradictions.emplace_back(field, read);
    }
  }

  void lose(const FoundKey& found, std::string reason, LostKey::Why why = LostKey::Why::kNotSupported) {
    LostKey lost;
    lost.key = found.key;
    lost.text = found.items.size() > 1 && !found.is_list ? fmt::format("{}", fmt::join(found.items, " ")) : found.text;
    lost.reason = std::move(reason);
    lost.at = found.at;
    lost.why = why;
    reading_.lost.push_back(std::move(lost));
  }

  // Under other values of the variables a constant row would have written the same: this one is a guess.
  static bool may_be_constant(const FileKey& key) {
    return std::any_of(key.rows.begin(), key.rows.end(),
                       [&key](const KeyRow* row) { return row->field.empty() && is_same(*key.found, row->value); });
  }

  static bool has_field(const FileKey& key) {
    return std::any_of(key.rows.begin(), key.rows.end(), [](const KeyRow* row) { return !row->field.empty(); }) ||
           std::any_of(key.reads.begin(), key.reads.end(), [](const ReadRow* row) { return !row->field.empty(); });
  }

  void take(const Explainer& explainer, const FileKey& key) {
    const FoundKey& found = *key.found;
    const KeyReading how = explainer.explain(key);
    switch (how.how) {
      case How::kConstant: return;
      case How::kField:
        if (is_hidden(how.field)) return lose(found, "a plan derives it by itself");
        return put(how.field, how.value, found, may_be_constant(key));
      case How::kDropped:
        if (!found.is_assumed) lose(found, !found.unknown.empty() && has_field(key) ? found.unknown : how.reason);
        if (!found.is_assumed && !found.is_maybe) reading_.lost.back().is_file = how.is_file;
        return;
      case How::kAutomatic: return lose(found, "'auto' is filled in by the program that reads the file");
      case How::kNone: break;
    }
    if (found.is_assumed) return;
    LostKey::Why why = LostKey::Why::kNotSupported;
    std::string help, reason = why_not(explainer, found, why, help);
    lose(found, std::move(reason), why);
    reading_.lost.back().help = std::move(help);
  }

  // What the table's rows say the key can be; empty when it takes more than a few words, or this one.
  std::vector<std::string> values_of(const FoundKey& found) const {
    const std::string& key = found.key;
    std::vector<std::string> values;
    const auto add = [&values](const Json& value) {
      std::string text = field_text(value);
      if (std::find(values.begin(), values.end(), text) == values.end()) values.push_back(std::move(text));
    };
    for (const KeyRow& row : table_.rows) {
      if (!is_same_key(row.key, key)) continue;
      if (row.field.empty()) add(row.value);
      for (const auto& [from, to] : row.value_map) add(to);
    }
    for (const ReadRow& row : table_.reads) {
      if (!is_same_key(row.key, key)) continue;
      for (const Json& one : row.of) add(one);
      for (const auto& [from, to] : row.values) add(to);
    }
    const bool is_number = std::any_of(table_.rows.begin(), table_.rows.end(), [&key](const KeyRow& row) {
      return is_same_key(row.key, key) && !row.field.empty() && row.type == KeyType::kInt && row.value_map.empty();
    });
    if (is_number && !values.empty()) values.insert(values.begin(), "a whole number");
    const bool is_one = std::any_of(values.begin(), values.end(), [&found](const std::string& v) { return same_name(v, found.text); });
    return is_one || values.size() > 12 ? std::vector<std::string>{} : values;
  }

  // The tool's own list of names has it, or a section that holds it.
  bool is_accepted(const std::string& key) const {
    const std::string name = accepted_form(key);
    for (size_t end = name.size(); end != std::string::npos && end > 0; end = name.rfind('.', end - 1)) {
      if (table_.accepted.count(name.substr(0, end)) == 0) continue;
      // Within a section whose names are known too, only these are.
      const std::string below = name.substr(0, end) + ".";
      const auto next = table_.accepted.lower_bound(below);
      return end == name.size() || next == table_.accepted.end() || next->compare(0, below.size(), below) != 0;
    }
    return false;
  }

  // A near miss of a key of the same section, or of any.
  std::string nearest_key(const std::string& key) const {
    const auto section_of = [](std::string_view path) { return path.substr(0, path.rfind('.') == path.npos ? 0 : path.rfind('.')); };
    std::vector<std::string> same, all;
    const auto add = [&](const std::string& known) {
      if (known.empty() || known.back() == '*') return;
      all.push_back(known);
      if (section_of(known) == section_of(key)) same.push_back(known.substr(section_of(known).size()));
    };
    for (const KeyRow& row : table_.rows) add(row.key);
    for (const ReadRow& row : table_.reads) add(row.key);
    const std::string section(section_of(key)), near = nearest_name(key.substr(section.size()), same);
    return near.empty() ? nearest_name(key, all) : section + near;
  }

  // Keys stand below it in a file of the tool.
  bool is_section(const std::string& key) const {
    const auto is_below_it = [&key](const auto& row) { return row.key.starts_with(key + "."); };
    return table_.format != TableFormat::kArguments && (std::any_of(table_.rows.begin(), table_.rows.end(), is_below_it) ||
                                                        std::any_of(table_.reads.begin(), table_.reads.end(), is_below_it));
  }

  // The key is known, its value none that it takes here.
  std::string why_not_this_value(const FoundKey& found, std::string& help) const {
    const auto takes = [&](KeyType type) {
      const auto of_type = [&](const auto& row) { return is_same_key(row.key, found.key) && row.type == type; };
      return (std::any_of(table_.rows.begin(), table_.rows.end(), of_type) ||
              std::any_of(table_.reads.begin(), table_.reads.end(), of_type)) &&
             !is_of_type(found, type);
    };
    const std::vector<std::string> values = values_of(found);
    if (takes(KeyType::kBool)) return "expected true or false";
    if (values.empty()) {
      if (takes(KeyType::kInt)) return "expected a whole number";
      if (takes(KeyType::kNumber)) return "expected a number";
      if (takes(KeyType::kIntList)) return "expected a list of whole numbers";
    }
    const std::string near = nearest_name(found.text, values);
    if (!near.empty()) help = fmt::format("did you mean '{}': ", near);
    if (!values.empty()) help += fmt::format("the key takes {}", fmt::join(values, ", "));
    return "no plan has this value together with the rest of the file";
  }

  std::string why_not(const Explainer& explainer, const FoundKey& found, LostKey::Why& why, std::string& help) const {
    if (!found.unknown.empty()) return found.unknown;
    const KeyRow* constant = nullptr;
    bool is_known = false, has_field = false;
    for (const KeyRow& row : table_.rows) {
      if (!is_same_key(row.key, found.key)) continue;
      is_known = true;
      has_field = has_field || !row.field.empty();
      if (row.field.empty() && constant == nullptr && explainer.applies(row.when, row.unless)) constant = &row;
    }
    for (const ReadRow& row : table_.reads) is_known = is_known || is_below(row.key, found.key);
    if (constant != nullptr && !has_field)
      return fmt::format("a plan has no setting for it; it is written as {}", field_text(constant->value));
    if (!is_known && is_accepted(found.key)) return fmt::format("{} takes it, and no plan holds it", table_.tool);
    why = is_known || is_section(found.key) ? LostKey::Why::kValue : LostKey::Why::kUnknownKey;
    if (is_known) return why_not_this_value(found, help);
    if (why == LostKey::Why::kValue) return "expected a section";
    const std::string near = nearest_key(found.key);
    if (!near.empty()) help = fmt::format("did you mean '{}'", near);
    // The longest section that the table names.
    std::string_view how;
    size_t longest = 0;
    for (const auto& [section, verdict] : table_.unknown_key) {
      const bool is_in = section.empty() || found.key.starts_with(section + ".");
      if (is_in && (how.empty() || section.size() > longest)) how = verdict, longest = section.size();
    }
    if (how == "silent")
      return fmt::format("not a key that {} is known to have: it ignores unknown keys here without a word", table_.tool);
    if (how == "parse error" && !extended_by(table_, found_).empty())
      return fmt::format("not a key of {}'s own: the module of '{}' may declare it", table_.tool, extended_by(table_, found_));
    if (how == "declared")
      return fmt::format("not a key that {} is known to have: the script that reads it declares it, or stops at it", table_.tool);
    if (how.empty() || how == "warning") return fmt::format("not a key that {} is known to have", table_.tool);
    return fmt::format("not a key that {} is known to have: it stops at unknown keys here", table_.tool);
  }

  const KeyTable& table_;
  std::vector<FoundKey> found_;
  Reading reading_;
};

}  // namespace

Reading read_keys(const KeyTable& table, const std::vector<FoundKey>& found, const std::string& file) {
  return TableReading(table, found, file).run();
}

}  // namespace distsetup
