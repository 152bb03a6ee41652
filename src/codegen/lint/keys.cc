// Unknown keys and values of the wrong type: one walk over the tables templates/_lint/*_keys.yaml, which state per section how the
// tool takes a key it does not know. Nothing here knows a format.
#include "codegen/lint/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "base/map_reader.h"
#include "base/names.h"
#include "base/value_yaml.h"
#include "codegen/lint/file_text.h"
#include "codegen/lint/key_types.h"
#include "codegen/lint/misspelt.h"
#include "codegen/lint/unknown_names.h"
#include "codegen/tables/templates.h"

namespace distsetup::lint {
namespace {

struct KeySpec {
  std::string name, type;    // "int>=0", "bool", "cpu|nvme|none", "any"
  std::string since, until;  // first release that has the key, first that has it no more; empty: all have it
};

// A key of the tool's past: releases before this one read it.
struct OldKey {
  std::string name, gone_since;
};

// A key, and the one inside it that has to be given; empty: none has to.
struct DecidingKey {
  std::string name, inside;
};

struct AcceptedSection {
  std::string path;     // "zero_optimization.offload_param"; "" = top
  std::string unknown;  // parse, start, silent
  std::string code;     // of the rule for unknown keys
  std::string far;      // "warning": unknown keys that are no slip of a known one are; "unlike": those that none is like; empty: none
  std::string near;     // and of those that are near to one
  std::string type_code;  // of the rule for wrong types; empty: not checked here
  std::string type_bites;
  std::string strict_since;  // first release that refuses unknown keys and wrong types here; older ones take them; empty: all do
  std::vector<OldKey> old;
  // Keys at the top that the tool's own wizard always writes: a file with all of them and an old key is of the release that had it.
  std::vector<std::string> wizard_writes;
  std::string elsewhere;                // kind whose keys people write here; empty: none
  std::vector<DecidingKey> decides;     // of those keys the ones that decide what is trained, with the key inside that has to be given
  bool only_meant = false;              // only an unknown key that was meant for a known one can be an error
  bool read_by_scripts = false;         // as a dictionary, too: an unknown key that is a common word may be theirs
  bool is_tuning = false;               // but for `stage` its keys decide memory and speed only
  std::vector<std::string> in_stage_3;  // keys that act in ZeRO's stage 3 only; zero_stage says which there is, without it 2
  std::vector<std::string> minor;       // keys that decide nothing about training: what is reported, ports
  std::vector<KeySpec> keys;
  std::vector<std::string> prefixes;   // keys that may carry this in front ("fsdp_")
  std::vector<std::string> read_with;  // a key at the top and its value: with another one the tool passes over the whole section
};

struct Accepted {
  std::string kind;  // templates/_kinds.yaml
  std::string tool;
  std::string package;  // whose version `since` and `until` speak of
  // Of a parser whose names change from release to release: its list in _other_releases.yaml, and the keys that name a module with
  // more.
  std::string other_releases;
  std::vector<std::string> extended_by;
  std::vector<AcceptedSection> sections;
};

// `since` and `until` of a section: key -> release.
void read_releases(const Value* map, std::string KeySpec::*which, AcceptedSection& section) {
  for (const auto& [name, release] : map == nullptr ? std::vector<Value::Entry>{} : map->entries) {
    const auto spec =
        std::find_if(section.keys.begin(), section.keys.end(), [&key = name](const KeySpec& one) { return one.name == key; });
    CHECK(spec != section.keys.end(), "section '{}' has no key '{}'", section.path, name);
    (*spec).*which = release.text;
  }
}

std::vector<Accepted> read_accepted() {
  std::vector<Accepted> tables;
  for (const auto& [path, text] : embedded_templates().files) {
    if (path.rfind("_lint/", 0) != 0 || path.find("_keys.") == std::string::npos) continue;
    const Result<Value> root = parse_yaml(text, "templates/" + path);
    CHECK(root.ok(), "{}", format_diagnostics(root.diagnostics));
    Diagnostics diagnostics;
    Accepted table;
    std::string source, checked;
    int64_t version = 0;
    MapReader reader(*root, "a table of accepted keys", diagnostics);
    for (const char* key : {"version", "kind", "tool", "source", "checked", "sections"}) reader.require(key);
    reader.get("version", version);
    reader.get("kind", table.kind);
    reader.get("tool", table.tool);
    reader.get("package", table.package);
    reader.get("source", source);
    reader.get("checked", checked);
    reader.get("other_releases", table.other_releases);
    reader.get("extended_by", table.extended_by);
    const Value* sections = reader.child("sections");
    reader.finish();
    CHECK(built_in_kinds().find(table.kind) != nullptr && version == 1 && sections != nullptr, "{}", path);
    for (const Value& item : sections->items) {
      AcceptedSection section;
      MapReader one(item, "a section", diagnostics);
      one.require("unknown");
      one.require("code");
      one.get("section", section.path);
      one.get("unknown", section.unknown);
      one.get("code", section.code);
      one.get("far", section.far);
      one.get("near", section.near);
      one.get("strict_since", section.strict_since);
      one.get("minor", section.minor);
      one.get("in_stage_3", section.in_stage_3);
      one.get("elsewhere", section.elsewhere);
      one.get("only_meant", section.only_meant);
      one.get("read_by_scripts", section.read_by_scripts);
      one.get("tuning", section.is_tuning);
      if (const Value* decides = one.child("decides"); decides != nullptr) {
        for (const auto& [name, inside] : decides->entries) section.decides.push_back({name, inside.text});
      }
      one.get("wizard_writes", section.wizard_writes);
      if (const Value* old = one.child("old"); old != nullptr) {
        for (const auto& [name, release] : old->entries) section.old.push_back({name, release.text});
      }
      one.get("type_code", section.type_code);
      one.get("types", section.type_bites);
      one.get("prefixes", section.prefixes);
      one.get("read_with", section.read_with);
      CHECK(section.read_with.empty() || section.read_with.size() == 2, "{}: section '{}'", path, section.path);
      const Value* keys = one.child("keys");
      CHECK(keys != nullptr, "{}: section '{}' has no keys", path, section.path);
      for (const auto& [name, type] : keys->entries) section.keys.push_back({name, type.text, "", ""});
      read_releases(one.child("since"), &KeySpec::since, section);
      read_releases(one.child("until"), &KeySpec::until, section);
      const bool knows_releases =
          one.child("since") != nullptr || one.child("until") != nullptr || !section.old.empty() || !section.strict_since.empty();
      CHECK(!table.package.empty() || !knows_releases, "{}: no package", path);
      one.finish();
      table.sections.push_back(std::move(section));
    }
    CHECK(diagnostics.empty(), "{}", format_diagnostics(diagnostics));
    tables.push_back(std::move(table));
  }
  return tables;
}

const std::vector<Accepted>& accepted_tables() {
  static const std::vector<Accepted> kTables = read_accepted();
  return kTables;
}

std::string_view bare_key(const AcceptedSection& section, std::string_view key) {
  for (const std::string& prefix : section.prefixes) {
    if (key.substr(0, prefix.size()) == prefix) return key.substr(prefix.size());
  }
  return key;
}

const KeySpec* find_spec(const AcceptedSection& section, std::string_view key) {
  for (const KeySpec& one : section.keys) {
    if (one.name == key || (!section.prefixes.empty() && one.name == bare_key(section, key))) return &one;
  }
  return nullptr;
}

std::string where_else(const Accepted& table, const AcceptedSection& here, const std::string& key) {
  for (const AcceptedSection& other : table.sections) {
    if (&other == &here || find_spec(other, key) == nullptr) continue;
    return other.path.empty() ? fmt::format("'{}' belongs at the top of the file", key)
                              : fmt::format("'{}' belongs in '{}'", key, other.path);
  }
  return "";
}

// The file that the key belongs in, of the kind whose keys people write here; "" when it is no key of that kind.
std::string other_file(const AcceptedSection& here, const std::string& key) {
  for (const Accepted& table : accepted_tables()) {
    if (here.elsewhere.empty() || table.kind != here.elsewhere) continue;
    for (const AcceptedSection& section : table.sections) {
      const bool has_it =
          section.path.empty() || section.path.find('.') == std::string::npos ? find_spec(section, key) != nullptr : false;
      if (has_it) return fmt::format("it is a key of {}'s own file", table.tool);
    }
  }
  return "";
}

// A key of another section that decides memory and speed only.
bool only_tunes(const Accepted& table, const AcceptedSection& here, const std::string& key) {
  return key != "stage" && std::any_of(table.sections.begin(), table.sections.end(), [&here, &key](const AcceptedSection& other) {
           return &other != &here && other.is_tuning && find_spec(other, key) != nullptr;
         });
}

// Whether the key of another file decides what is trained, by itself or by a key inside.
bool decides_training(const AcceptedSection& section, const std::string& key, const Value& value) {
  return std::any_of(section.decides.begin(), section.decides.end(), [&key, &value](const DecidingKey& one) {
    return one.name == key && (one.inside.empty() || value.find(one.inside) != nullptr);
  });
}

// Why the release that is used does not have a key that others have; "" when it has it, or nobody says which is used.
std::string why_not_in_release(const Accepted& table, const KeySpec& spec, const std::string& version) {
  if (version.empty()) return "";
  if (!spec.since.empty() && compare_versions(version, spec.since) < 0)
    return fmt::format("{} has it since {}, and {} is used", table.package, spec.since, version);
  if (!spec.until.empty() && compare_versions(version, spec.until) >= 0)
    return fmt::format("{} has it no more since {}, and {} is used", table.package, spec.until, version);
  return "";
}

// What the tool does with a key that it does not have.
std::string says_not_known(const Accepted& table, const AcceptedSection& section, const std::string& path, const std::string& why) {
  if (section.unknown == "silent") return fmt::format("'{}' is silently ignored: {}", path, why);
  if (section.unknown == "start") return fmt::format("{} stops at '{}' when training starts: {}", table.tool, path, why);
  return fmt::format("{} refuses '{}': {}", table.tool, path, why);
}

// "auto", none, false, nothing at all: a tool that passes over it does what was asked for.
bool asks_for_nothing(const Value& v) {
  if (v.kind == Value::Kind::kNull) return true;
  if (v.kind != Value::Kind::kScalar) return v.entries.empty() && v.items.empty();
  const std::string word = lower(v.text);
  return word.empty() || word == "auto" || word == "none" || word == "null" || word == "~" || word == "false";
}

// Whether a key that nobody reads was meant for one that is: a slip of it, its beginning ("gradient_clip"), or with a word too many in
// front ("cpu_offload_params"). What is like none was hoped to do something, and whether it would have changed the run nobody can say.
bool is_meant_for_known(const AcceptedSection& section, const std::string& key, const std::vector<std::string>& names) {
  constexpr size_t kShortest = 8;
  const auto begins = [&key](const std::string& name) { return key.size() >= kShortest && name.rfind(key, 0) == 0; };
  const auto ends = [&](const KeySpec& one) { return one.name.size() >= kShortest && key.ends_with("_" + one.name); };
  return !misspelt_name(key, names).empty() || std::any_of(names.begin(), names.end(), begins) ||
         std::any_of(section.keys.begin(), section.keys.end(), ends);
}

const OldKey* find_old(const AcceptedSection& section, std::string_view key) {
  for (const OldKey& one : section.old) {
    if (one.name == key || (!section.prefixes.empty() && one.name == bare_key(section, key))) return &one;
  }
  return nullptr;
}

// Whether the file is of an earlier release: all keys here that are not known are, the wizard wrote it whole, or what accelerate asked
// for up to 0.25 as a number and later as a name is a number.
bool is_of_earlier_release(const AcceptedSection& section, const Document& d, const Value& map) {
  const bool is_all_old = std::all_of(map.entries.begin(), map.entries.end(), [&section](const Value::Entry& one) {
    return find_spec(section, one.first) != nullptr || find_old(section, one.first) != nullptr;
  });
  if (section.unknown != "silent" || !is_all_old) return is_all_old;
  const Value* strategy = map.find("fsdp_sharding_strategy");
  const bool is_whole =
      !section.wizard_writes.empty() && std::all_of(section.wizard_writes.begin(), section.wizard_writes.end(),
                                                    [&d](const std::string& key) { return d.root.find(key) != nullptr; });
  return is_whole || (strategy != nullptr && real_of(*strategy).has_value());
}

bool is_before(const std::string& version, const std::string& release) {
  return !version.empty() && !release.empty() && compare_versions(version, release) < 0;
}

// A key of an earlier release, where no release or one of the later ones is known to be used.
void report_old_key(const Accepted& table, const AcceptedSection& section, const std::string& version, const Document& d,
                    const Value& map, const TreeNode& at, const OldKey& old, Findings& report) {
  if (is_before(version, old.gone_since)) return;
  const std::string& key = map.entries[at.index].first;
  const std::string path = section.path.empty() ? key : section.path + "." + key;
  const bool is_used = !version.empty() && !is_before(version, section.strict_since);
  const bool may_work = !is_used && (!version.empty() || is_of_earlier_release(section, d, map));
  report.add(section.code, d, key_span(d, at),
             says_not_known(table, section, path, fmt::format("releases before {} know it", old.gone_since)),
             {fmt::format("remove it, or keep to a release of {} before {}", table.package, old.gone_since),
              section.unknown,
              {},
              may_work ? std::optional<Severity>(Severity::kWarning) : std::nullopt});
}

// `names`: where the unknown ones of a table with other releases are gathered.
void check_section(const Accepted& table, const AcceptedSection& section, const std::string& version, const Document& d,
                   const Value& map, UnknownNames& names_of_table, Findings& report) {
  std::vector<std::string> names;
  for (const KeySpec& one : section.keys) names.push_back(section.prefixes.empty() ? one.name : section.prefixes[0] + one.name);
  std::vector<std::string> far_paths;  // the finding of the first one names them all: somebody else reads them
  TextSpan far_at;
  std::string far_says;
  FindingDetails far_details;
  for (size_t i = 0; i < map.entries.size(); ++i) {
    const std::string& key = map.entries[i].first;
    const std::string path = section.path.empty() ? key : section.path + "." + key;
    const TreeNode at{&map.entries[i].second, &map, i};
    const KeySpec* spec = find_spec(section, key);
    const bool is_remark = key[0] == '_' || lower(key).find("comment") != std::string::npos;
    if (spec == nullptr && (ends_in_blank(key) || (is_remark && section.unknown == "silent"))) continue;
    if (spec == nullptr && !table.other_releases.empty()) {
      names_of_table.code = section.code;
      names_of_table.bites = section.unknown;
      names_of_table.all.push_back(
          {path, key_span(d, at), misspelt_name(key, names), says_not_known(table, section, path, "it does not know it")});
      continue;
    }
    if (const OldKey* old = spec == nullptr ? find_old(section, key) : nullptr) {
      report_old_key(table, section, version, d, map, at, *old, report);
      continue;
    }
    if (spec == nullptr) {
      const std::string near = nearest_name(key, names);
      // A key of another section stands in the wrong place, however near it is to one of this section.
      std::string help = misspelt_name(key, names).empty() ? where_else(table, section, key) : "";
      if (help.empty() && !near.empty()) help = fmt::format("did you mean '{}'", near);
      if (help.empty() || misspelt_name(key, names).empty()) {
        if (const std::string other = other_file(section, key); !other.empty()) help = other;
      }
      const bool is_elsewhere = help.rfind("it is a key of", 0) == 0;
      const bool is_near_none = !is_elsewhere && (help.empty() || (!near.empty() && misspelt_name(key, names).empty()));
      const std::string why = section.unknown == "silent" ? fmt::format("{} does not know it", table.tool) : "it does not know it";
      const std::string how = says_not_known(table, section, path, why);
      const bool is_far = (section.far == "warning" && is_near_none) || (section.far == "unlike" && help.empty());
      // A tool that refuses names does not have a whole section of them that is like none of its own, but its forks do.
      const bool is_forks = section.unknown != "silent" && at.value->kind == Value::Kind::kMap && !is_elsewhere &&
                            misspelt_name(key, names).empty() && where_else(table, section, key).empty();
      if (help.empty()) help = fmt::format("remove it; {}", suggest(key, names));
      if (is_far) far_paths.push_back(path);
      if (far_paths.size() > 1 && is_far) continue;
      const std::string meant = near.empty() ? key : near;
      const bool may_be_scripts = section.read_by_scripts && misspelt_name(key, names).empty() && key.find('_') == std::string::npos;
      const bool is_minor = std::find(section.minor.begin(), section.minor.end(), bare_key(section, meant)) != section.minor.end();
      const bool is_idle = real(map, "zero_stage").value_or(2) < 3 &&
                           std::find(section.in_stage_3.begin(), section.in_stage_3.end(), meant) != section.in_stage_3.end();
      const bool is_harmless =
          section.unknown == "silent" &&
          (is_minor || is_idle || section.near == "warning" ||
           (section.only_meant && !is_elsewhere && !is_meant_for_known(section, key, names)) || asks_for_nothing(*at.value) ||
           only_tunes(table, section, key) || (is_elsewhere && !decides_training(section, key, *at.value)));
      FindingDetails details{help,
                             section.unknown,
                             {},
                             is_far || is_harmless || is_forks ? std::optional<Severity>(Severity::kWarning) : std::nullopt,
                             may_be_scripts ? "no script of your own reads it" : ""};
      if (is_far) {
        std::tie(far_at, far_says, far_details) = std::tuple(key_span(d, at), how, std::move(details));
      } else {
        report.add(section.code, d, key_span(d, at), how, std::move(details));
      }
      continue;
    }
    if (const std::string why = why_not_in_release(table, *spec, version); !why.empty()) {
      report.add(section.code, d, key_span(d, at), says_not_known(table, section, path, why),
                 {fmt::format("remove it, or use another release of {}", table.package), section.unknown, {}, {}});
      continue;
    }
    if (section.type_code.empty() || spec->type == "any") continue;
    if (at.value->kind == Value::Kind::kScalar && at.value->text == "auto") continue;  // a rule of its own
    if (at.value->kind == Value::Kind::kScalar && at.value->text.find("${") != std::string::npos)
      continue;  // filled in before it is read
    const std::string wanted = key_type_mismatch(spec->type, *at.value);
    if (wanted.empty() || is_before(version, section.strict_since)) continue;
    // Numbers are numbers in every release; what is a list in one may be a text in another.
    const bool is_form = spec->type == "list" || spec->type == "map" || spec->type == "text" || spec->type == "strict_text";
    const bool may_work = version.empty() && (!section.strict_since.empty() || (is_form && !table.other_releases.empty()));
    report.add(section.type_code, d, value_span(d, *at.value), fmt::format("'{}' is '{}', expected {}", path, at.value->text, wanted),
               {may_work ? fmt::format("write {}: {} looks at it since {}", wanted, table.tool, section.strict_since)
                         : fmt::format("write {}", wanted),
                section.type_bites,
                {},
                may_work ? std::optional<Severity>(Severity::kWarning) : std::nullopt});
  }
  if (far_paths.size() > 1 && far_details.help.starts_with("remove it")) far_details.help.replace(7, 2, "them");
  if (!far_paths.empty()) report.add(section.code, d, far_at, far_says + and_others(far_paths), std::move(far_details));
}

}  // namespace

void check_keys(const LintSetup& setup, const Document& d, Findings& report) {
  if (d.root.kind != Value::Kind::kMap) return;  // a script: no table is read for it
  for (const Accepted& table : accepted_tables()) {
    if (!d.is_a(table.kind)) continue;
    const std::string version = table.package.empty() ? "" : setup.version(table.package);
    UnknownNames names{"", table.tool, "", table.other_releases, version, {0, 1}, {}};
    for (const AcceptedSection& section : table.sections) {
      const TreeNode at = node(d.root, section.path);
      const std::string other = section.read_with.empty() ? "" : text(d.root, section.read_with[0]);
      if (!other.empty() && other != section.read_with[1]) continue;
      if (at && at.value->kind == Value::Kind::kMap) check_section(table, section, version, d, *at.value, names, report);
    }
    const bool is_extended = std::any_of(table.extended_by.begin(), table.extended_by.end(),
                                         [&d](const std::string& path) { return !text(d.root, path).empty(); });
    report_unknown_names(d, names, is_extended ? NamesOf::kExtendedParser : NamesOf::kOneRelease, report);
  }
}

}  // namespace distsetup::lint
