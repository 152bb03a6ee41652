// Unknown keys of structured files, by the tables of names: a walk down the sections that the table knows. What stands in sections
// that it does not know is not looked at.
#include "codegen/lint/check_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/names.h"
#include "codegen/lint/file_text.h"
#include "codegen/lint/misspelt.h"
#include "codegen/lint/unknown_names.h"
#include "codegen/tables/name_table.h"
#include "codegen/tables/other_releases.h"

namespace distsetup::lint {
namespace {

// Keys that some other reader takes: not reported.
using IsKnown = bool (*)(const Document&, std::string_view key);

struct NameWalk {
  const NameTable& table;
  const Document& d;
  Findings& report;
  IsKnown is_known = nullptr;
  bool only_near = false;  // other releases have more names: a misspelling is all that can be told

  void unknown(const std::vector<NameEntry>& entries, const std::string& path, const std::string& key, const TreeNode& at) const {
    const std::vector<std::string> names = spellings(entries);
    constexpr size_t kTooShort = 2;  // 'lr' is not near 'rl'
    const std::string meant = d.kind == nullptr || path != key ? "" : meant_by(d.kind->names, key);
    if (!meant.empty() && has(d.root, meant)) {
      report.add(table.code, d, key_span(d, at), says_unknown(table, path), {fmt::format("remove it: there is '{}'", meant)});
      return;
    }
    const std::string near = !meant.empty() ? meant : key.size() <= kTooShort ? "" : nearest_name(key, names);
    if (near.empty() && only_near) return;
    const bool is_slip = !meant.empty() || !misspelt_name(key, names).empty();
    if (!is_slip && table.unknown == "silent" && at.value->kind == Value::Kind::kNull) return;  // "debug:" asks for nothing
    const bool may_be_newer = table.code == "BRG001" && !is_slip;
    std::string help = near.empty() ? where_else(entries, key) : fmt::format("did you mean '{}'", near);
    const bool is_misplaced = help.find("belongs") != std::string::npos || is_name_elsewhere(key);
    if (help.empty()) help = fmt::format("remove it; {}", suggest(key, names));
    report.add(table.code, d, key_span(d, at), says_unknown(table, path),
               {help,
                table.unknown,
                {},
                may_be_newer ? std::optional<Severity>(Severity::kNote) : std::nullopt,
                is_slip || is_misplaced ? "" : "the release that is used lacks it, too"});
  }

  // A name that stands in the wrong place is a mistake in every release; one that stands nowhere may be a later one's.
  bool is_name_elsewhere(std::string_view key) const {
    return std::any_of(table.types.begin(), table.types.end(),
                       [key](const auto& one) { return find_name(one.second, key) != nullptr; });
  }

  std::string where_else(const std::vector<NameEntry>& here, std::string_view key) const {
    if (table.types.size() > 40) return "";  // a name as common as 'name' is in half of Kubernetes' types
    for (const auto& [type, entries] : table.types) {
      if (&entries == &here || find_name(entries, key) == nullptr) continue;
      if (type == "plugins") return fmt::format("'{}' belongs to a plugin: list that in 'plugins'", key);
      if (type.empty()) return fmt::format("'{}' belongs at the top of the file", key);
      for (const auto& [owner, outer] : table.types) {
        for (const NameEntry& one : outer) {
          if (one.type == type) return fmt::format("'{}' belongs in '{}'", key, one.name);
        }
      }
    }
    return "";
  }

  void walk(const Value& value, std::string_view type, const std::string& path) const {
    const std::vector<NameEntry>* entries = table.type(type);
    if (entries == nullptr) return;
    for (size_t i = 0; i < value.items.size(); ++i) walk(value.items[i], type, fmt::format("{}[{}]", path, i));
    const NameEntry* any = find_name(*entries, "*");
    for (size_t i = 0; i < value.entries.size(); ++i) {
      const auto& [key, below] = value.entries[i];
      const std::string here = path.empty() ? key : path + "." + key;
      const NameEntry* entry = any != nullptr ? any : find_name(*entries, key);
      if (entry == nullptr && !ends_in_blank(key) && (is_known == nullptr || !is_known(d, key)))
        unknown(*entries, here, key, {&below, &value, i});
      if (entry != nullptr && !entry->type.empty()) walk(below, entry->type, here);
    }
  }
};

// Plugins bring keys of their own, which count once the plugin is listed; the old prefix of fsdp_config is AX003's.
bool is_axolotl_otherwise(const Document& d, std::string_view key) {
  const NameTable& table = name_table("axolotl");
  const bool is_prefixed = key.rfind("fsdp_", 0) == 0 && find_name(*table.type("fsdp_config"), key.substr(5)) != nullptr;
  return is_prefixed || (has(d.root, "plugins") && find_name(*table.type("plugins"), key) != nullptr);
}

// Of one map: what its table does not have, by report_unknown_names().
void names_of_map(const Document& d, const NameTable& table, const Value& map, std::string_view type, std::string_view path,
                  UnknownNames names, NamesOf whose, Findings& report) {
  const std::vector<NameEntry>& known = *table.type(type);
  const std::vector<std::string> all = spellings(known);
  names.code = table.code;
  names.tool = table.tool;
  names.bites = table.unknown;
  names.top = {0, 1};
  for (size_t i = 0; i < map.entries.size(); ++i) {
    const std::string& key = map.entries[i].first;
    // jsonargparse: "callbacks+" appends to the list of an earlier file.
    const bool appends = key.back() == '+' && find_name(known, std::string_view(key).substr(0, key.size() - 1)) != nullptr;
    if (find_name(known, key) != nullptr || appends || ends_in_blank(key)) continue;
    const std::string near = misspelt_name(key, all);
    const std::string full = path.empty() ? key : fmt::format("{}.{}", path, key);
    const bool is_given_too = !near.empty() && has(map, near);
    names.all.push_back({key, key_span(d, {&map.entries[i].second, &map, i}), is_given_too ? "" : near, says_unknown(table, full)});
  }
  report_unknown_names(d, names, whose, report);
}

void names_of_lightning(const LintSetup& setup, const Document& d, Findings& report) {
  const NameTable& table = name_table("lightning");
  const NameWalk in{table, d, report};
  UnknownNames names;
  names.table = "lightning";
  names.version = setup.version("lightning");
  for (const char* path : {"trainer", "fit.trainer"}) {
    const TreeNode trainer = node(d.root, path);
    if (!trainer || trainer.value->kind != Value::Kind::kMap) continue;
    // `trainer:` is a section of many a script's own format; LightningCLI's names classes.
    const bool is_cli = d.text.find("class_path") != std::string::npos || has(d.root, "seed_everything") || has(d.root, "fit");
    // A Trainer of the script's own (trainer_class) may have more names, so that what is near to none is no mistake for sure.
    names_of_map(d, table, *trainer.value, "trainer", path, names, is_cli ? NamesOf::kOneRelease : NamesOf::kExtendedParser, report);
    const std::string name = text(*trainer.value, "strategy.class_path");
    const TreeNode arguments = node(*trainer.value, "strategy.init_args");
    if (arguments) in.walk(*arguments.value, name.substr(name.rfind('.') + 1), fmt::format("{}.strategy.init_args", path));
  }
}

void names_of_automodel(const Document& d, Findings& report) {
  const TreeNode section = node(d.root, "distributed");
  if (!section || section.value->kind != Value::Kind::kMap) return;
  std::string strategy = lower(text(*section.value, "strategy"));
  std::replace(strategy.begin(), strategy.end(), '-', '_');
  NameWalk{name_table("automodel"), d, report}.walk(*section.value, strategy.empty() ? "fsdp2" : strategy, "distributed");
}

void names_of_llama_stack(const Document& d, Findings& report) {
  const bool is_request = has(d.root, "training_config") || has(d.root, "job_uuid") || has(d.root, "algorithm_config");
  const bool is_build = has(d.root, "distribution_spec");
  NameWalk{name_table("llama-stack"), d, report, nullptr, true}.walk(d.root, is_request ? "request" : is_build ? "build" : "", "");
}

// A kind's name is another kind in another group: Volcano's Job is not batch/v1's.
bool is_of_group(std::string_view kind, std::string_view api) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kGroups = {
      {{"Pod", "v1"},
       {"Service", "v1"},
       {"ConfigMap", "v1"},
       {"PersistentVolumeClaim", "v1"},
       {"Job", "batch/v1"},
       {"CronJob", "batch/v1"},
       {"Deployment", "apps/v1"},
       {"StatefulSet", "apps/v1"},
       {"JobSet", "jobset.x-k8s.io/v1alpha2"},
       {"TrainJob", "trainer.kubeflow.org/v1alpha1"},
       {"PyTorchJob", "kubeflow.org/v1"}}};
  return std::any_of(kGroups.begin(), kGroups.end(), [&](const auto& one) { return one.first == kind && one.second == api; });
}

void names_of_kubernetes(const Document& d, Findings& report) {
  const NameTable& table = name_table("kubernetes");
  for (const Value& root : d.roots) {
    const std::string kind = text(root, "kind");
    const auto type = table.roots.find(kind);
    if (type != table.roots.end() && is_of_group(kind, text(root, "apiVersion")))
      NameWalk{table, d, report}.walk(root, type->second, "");
  }
}

// TrainingArguments in a file are a script's, which may declare more: what is near to a name is a misspelling, the rest is said once.
void names_of_trainer(const LintSetup& setup, const Document& d, Findings& report) {
  const NameTable& table = name_table("trainer");
  const std::vector<NameEntry>& known = *table.type("");
  const std::vector<std::string> all = spellings(known);
  UnknownNames names{table.code, table.tool, table.unknown, "trainer", setup.version("transformers"), {0, 1}, {}};
  TextSpan first{0, 0};
  std::string others;
  size_t num_others = 0;
  for (size_t i = 0; i < d.root.entries.size(); ++i) {
    const std::string& key = d.root.entries[i].first;
    if (find_name(known, key) != nullptr || ends_in_blank(key)) continue;
    const TextSpan at = key_span(d, {&d.root.entries[i].second, &d.root, i});
    std::string near = misspelt_name(key, all);
    if (!near.empty() && has(d.root, near)) near.clear();
    if (!near.empty() || !gone_since("trainer", key).empty()) {
      names.all.push_back({key, at, near, says_unknown(table, key)});
      continue;
    }
    if (num_others++ == 0) first = at;
    others += fmt::format("{}'{}'", others.empty() ? "" : ", ", key);
  }
  names.is_own_parser = true;  // a script that reads its own YAML may have a name like it
  report_unknown_names(d, names, NamesOf::kOneRelease, report);
  if (num_others == 0) return;
  report.add("HF007", d, first,
             fmt::format("{} {} of TrainingArguments (transformers' parser refuses {} unless the script declares {})", others,
                         num_others == 1 ? "is no field" : "are no fields", num_others == 1 ? "it" : "them",
                         num_others == 1 ? "it" : "them"));
}

}  // namespace

void check_names(const LintSetup& setup, const Document& d, Findings& report) {
  if (d.is(file_kind::kTrainer)) names_of_trainer(setup, d, report);
  if (d.is(file_kind::kLightning)) names_of_lightning(setup, d, report);
  if (d.is(file_kind::kAutomodel)) names_of_automodel(d, report);
  if (d.is(file_kind::kLlamaStack)) names_of_llama_stack(d, report);
  if (d.is(file_kind::kKubernetes)) names_of_kubernetes(d, report);
  if (d.kind == nullptr || d.kind->names.empty()) return;
  const bool is_trl = d.kind->names == "trl", is_factory = d.kind->names == "llamafactory", is_swift = d.kind->names == "ms-swift";
  if (is_trl || is_factory || is_swift) {
    UnknownNames names;
    names.table = is_swift ? d.kind->name : d.kind->names;  // ms-swift-megatron
    names.version = setup.version(d.kind->names);
    const bool may_have_more = is_trl || (is_swift && is_true(d.root, "ignore_args_error"));
    names.is_own_parser = may_have_more;  // scripts give TrlParser classes of their own
    names_of_map(d, name_table(d.kind->names), d.root, d.is("ms-swift-megatron") ? "megatron" : "", "", names,
                 may_have_more ? NamesOf::kExtendedParser : NamesOf::kOneRelease, report);
    return;
  }
  NameWalk{name_table(d.kind->names), d, report, d.is(file_kind::kAxolotl) ? is_axolotl_otherwise : nullptr}.walk(d.root, "", "");
}

}  // namespace distsetup::lint
