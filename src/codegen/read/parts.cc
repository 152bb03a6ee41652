// Parts of a file: sections that hold one of several sets of lines for another place (stages, named setups, models by name), one entry
// of a list, or defaults. A key has one value in the end: what the user says beside the file over a chosen setup over a chosen stage
// over the file over its defaults. What was not chosen is told once per entry, not key by key.
#include "codegen/read/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/names.h"
#include "codegen/read/key_reading.h"
#include "codegen/read/match.h"

namespace distsetup {
namespace {

enum Strength { kDefault, kFile, kStage, kSetup, kUser };

// "${GPUS}", "$GPUS", "{{ gpus }}": a value that somebody else puts there.
bool is_unfilled(const std::string& text) {
  if (text.size() < 2) return false;
  const bool is_name = text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", 1) == std::string::npos;
  const bool is_variable = text[0] == '$' && ((text[1] == '{' && text.find('}') == text.size() - 1) || is_name);
  return is_variable || (text.compare(0, 2, "{{") == 0 && text.compare(text.size() - 2, 2, "}}") == 0);
}

class PartTaker {
 public:
  PartTaker(const KeyTable& table, const Value& root, const ReadChoices& choices) : table_(table), choices_(choices) {
    std::vector<std::string> lists;
    for (const ReadPart& part : table.parts) {
      if (!part.where.first.empty()) lists.push_back(part.section);
    }
    for (FoundKey& one : found_in(root, lists)) {
      one.is_maybe = is_unfilled(one.text);  // with nothing, perhaps
      if (one.is_maybe) one.unknown = "it is filled in before the file is used";
      keys_.push_back({std::move(one), kFile});
    }
  }

  TakenParts run() {
    for (const auto& [key, text] : choices_.assignments) {  // what names an entry, before it is looked up
      if (std::any_of(table_.parts.begin(), table_.parts.end(), [&k = key](const ReadPart& part) { return is_same_key(part.by, k); }))
        assign(key, text);
    }
    for (const ReadPart& part : table_.parts) {
      if (!part.mixture.empty()) {
        take_mixture(part);
      } else if (part.keys.empty()) {
        take(part);
      } else {
        take_defaults(part);
      }
    }
    for (const auto& [key, text] : choices_.assignments) {
      if (std::find(out_.assigned.begin(), out_.assigned.end(), key) == out_.assigned.end()) assign(key, text);
    }
    for (const Key& key : keys_) {
      const bool is_weaker = std::any_of(keys_.begin(), keys_.end(), [&key](const Key& other) {
        return other.strength > key.strength && is_same_key(other.found.key, key.found.key);
      });
      if (!is_weaker && (!key.found.is_null || takes_null(key.found.key))) out_.found.push_back(key.found);
    }
    return std::move(out_);
  }

 private:
  // A row says what null of this key means.
  bool takes_null(const std::string& key) const {
    const std::string name = named(table_, key);
    return std::any_of(table_.reads.begin(), table_.reads.end(), [&name](const ReadRow& row) {
      return is_below(row.key, name) && std::any_of(row.of.begin(), row.of.end(), [](const Json& one) { return one.is_null(); });
    });
  }

  struct Key {
    FoundKey found;
    int strength = kFile;
  };

  static bool is_in(const std::string& section, const std::string& key) {
    return key.size() > section.size() && key[section.size()] == '.' &&
           is_same_key(std::string_view(key).substr(0, section.size()), section);
  }

  // Names of the entries of a section, in file order.
  std::vector<std::string> entries(const std::string& section) const {
    std::vector<std::string> names;
    for (const Key& key : keys_) {
      if (!is_in(section, key.found.key)) continue;
      const std::string rest = key.found.key.substr(section.size() + 1);
      const std::string name = rest.substr(0, entry_size(rest));
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    return names;
  }

  // "model_config_1.7B.decoder_config.hidden_size": a dot may be in the name. A number follows it there, and no key is one.
  static size_t entry_size(const std::string& rest) {
    size_t dot = rest.find('.');
    while (dot != std::string::npos && dot + 1 < rest.size() && rest[dot + 1] >= '0' && rest[dot + 1] <= '9')
      dot = rest.find('.', dot + 1);
    return std::min(dot, rest.size());
  }

  std::string text_at(const std::string& key) const {
    const Key* best = nullptr;
    for (const Key& one : keys_) {
      if (is_same_key(one.found.key, key) && (best == nullptr || one.strength > best->strength)) best = &one;
    }
    return best == nullptr ? "" : best->found.text;
  }

  // The entry that is taken; "" = none.
  std::string chosen(const ReadPart& part, const std::vector<std::string>& names) {
    if (!part.where.first.empty()) {
      for (const std::string& name : names) {
        if (text_at(part.section + "." + name + "." + part.where.first) == part.where.second) return name;
      }
      return "";
    }
    const std::string wanted = part.choose == "stage"         ? choices_.stage
                               : part.choose == "distributed" ? choices_.setup
                                                              : text_at(part.by);
    for (const std::string& name : names) {
      if (wanted.empty() || !same_name(name, wanted)) continue;
      std::erase_if(keys_, [&part](const Key& key) { return is_same_key(key.found.key, part.by); });  // it has acted
      return name;
    }
    if (!wanted.empty() && part.choose == "stage") {
      out_.diagnostics.push_back(error(code::kUnknownValue, {"command line", 0, 0}, fmt::format("no stage '{}' in the file", wanted),
                                       suggest(wanted, names)));
    }
    // A wrong stage, too, is read as some stage: the table must still be known as the file's.
    if (part.choose != "stage") return "";
    const bool has_default = std::find(names.begin(), names.end(), part.fallback) != names.end();
    return has_default ? part.fallback : names.front();
  }

  void take(const ReadPart& part) {
    const std::vector<std::string> names = entries(part.section);
    if (names.empty()) return;
    ++out_.num_sections;
    const std::string name = chosen(part, names);
    if (part.choose == "stage") out_.stage = name;
    if (part.choose == "distributed") out_.setup = name;
    for (const std::string& other : names) {
      if (other == name) continue;
      const std::string section = part.section + "." + other;
      LostKey lost;
      lost.key = section;
      lost.reason = part.choose.empty()
                        ? "another entry of the file, which nothing in it names"
                        : fmt::format("another {}: --{} {}", part.choose == "stage" ? "stage" : "setup", part.choose, other);
      if (!part.where.first.empty()) lost.reason = fmt::format("not {} {}", part.where.first, part.where.second);
      for (const Key& key : keys_) {
        if (lost.at.line == 0 && is_in(section, key.found.key)) lost.at = key.found.at;
      }
      std::erase_if(keys_, [&section](const Key& key) { return is_in(section, key.found.key); });
      out_.lost.push_back(std::move(lost));
    }
    if (name.empty()) return;
    const std::string section = part.section + "." + name;
    for (Key& key : keys_) {
      if (!is_in(section, key.found.key)) continue;
      const std::string rest = key.found.key.substr(section.size() + 1);
      key.found.key = part.into.empty() ? rest : part.into + "." + rest;
      key.strength = part.choose == "distributed" ? kSetup : part.choose == "stage" ? kStage : kFile;
    }
  }

  void take_defaults(const ReadPart& part) {
    for (Key& key : keys_) {
      for (const auto& [from, to] : part.keys) {
        if (!is_same_key(key.found.key, part.section + "." + from)) continue;
        key.found.key = to;
        key.strength = kDefault;
      }
    }
  }

  // Of the entry `name` of a mixture, in the order of the file.
  Json source_of(const std::string& section, const std::string& name, std::vector<std::string>& subsets) const {
    Json source = {{"path", name}};
    for (const Key& key : keys_) {
      if (!is_in(section, key.found.key)) continue;
      const std::string rest = key.found.key.substr(section.size() + 1);
      const std::optional<double> percentage = rest == "percentage" ? number_of(key.found.text) : std::nullopt;
      if (percentage.value_or(0) > 0) source["weight"] = *percentage;
      if (rest == "subset" && !key.found.is_null) subsets.push_back(key.found.text);
      if (rest == "subsets") subsets = key.found.items;
    }
    return source;
  }

  // Several subsets of a data set share its percentage. Percentages count where all entries have one.
  void take_mixture(const ReadPart& part) {
    Json sources = Json::array();
    bool all_have_weights = true;
    FoundKey mixture;
    for (const std::string& name : entries(part.section)) {
      const std::string section = part.section + "." + name;
      std::vector<std::string> subsets;
      Json source = source_of(section, name, subsets);
      all_have_weights = all_have_weights && source.contains("weight");
      if (subsets.size() > 1 && source.contains("weight"))
        source["weight"] = source["weight"].get<double>() / static_cast<double>(subsets.size());
      for (const std::string& subset : subsets) sources.push_back(source), sources.back()["subset"] = subset;
      if (subsets.empty()) sources.push_back(source);
      for (const Key& key : keys_)
        if (mixture.at.line == 0 && is_in(section, key.found.key)) mixture.at = key.found.at;
    }
    std::erase_if(keys_, [&part](const Key& key) { return is_in(part.section, key.found.key); });
    if (sources.empty()) return;
    if (!all_have_weights)
      for (Json& source : sources) source.erase("weight");
    mixture.key = part.mixture;
    mixture.text = sources.dump();
    keys_.push_back({std::move(mixture), kFile});
  }

  void assign(const std::string& path, const std::string& text) {
    std::string key = path;
    for (const auto& [choice, name] : {std::pair{"stage", out_.stage}, {"distributed", out_.setup}}) {
      for (const ReadPart& part : table_.parts) {
        const std::string section = part.section + "." + name;
        if (part.choose != choice || name.empty() || !is_in(section, key)) continue;
        key = (part.into.empty() ? "" : part.into + ".") + key.substr(section.size() + 1);
      }
    }
    const auto knows = [&key](const auto& row) { return is_below(row.key, key); };
    if (std::none_of(table_.rows.begin(), table_.rows.end(), knows) && std::none_of(table_.reads.begin(), table_.reads.end(), knows))
      return;
    FoundKey one;
    one.key = key;
    one.text = text;
    one.at = {"command line", 0, 0};
    keys_.push_back({std::move(one), kUser});
    out_.assigned.push_back(path);
  }

  const KeyTable& table_;
  const ReadChoices& choices_;
  std::vector<Key> keys_;
  TakenParts out_;
};

}  // namespace

TakenParts take_parts(const KeyTable& table, const Value& root, const ReadChoices& choices) {
  return PartTaker(table, root, choices).run();
}

}  // namespace distsetup
