#include "codegen/read/known_keys.h"

#include <algorithm>

#include "codegen/tables/accepted_names.h"
#include "codegen/tables/load_table.h"
#include "codegen/tables/name_table.h"

namespace distsetup {
namespace {

std::string first_part(const std::string& path) { return accepted_form(path.substr(0, path.find('.'))); }

// "training.checkpointing" of "training.checkpointing.monitor"; "" of a key at the top.
std::string first_two_parts(const std::string& path) {
  const size_t dot = path.find('.');
  return dot == std::string::npos ? "" : accepted_form(path.substr(0, path.find('.', dot + 1)));
}

// Names of a list at the top: "metadata:object_meta" is a key with a type.
void add_names(KnownKeys& known, const TemplateSet& templates, const std::string& list) {
  const auto names = load_name_table(templates, list);
  if (!names.ok()) return;
  for (const NameEntry& one : (*names)->type("") == nullptr ? std::vector<NameEntry>{} : *(*names)->type(""))
    known.top.insert(accepted_form(one.name));
}

}  // namespace

bool KnownKeys::knows(const std::string& key, const Value* value) const {
  const std::string name = accepted_form(key);
  if (top.count(name) == 0) return false;
  if (value == nullptr || value->kind != Value::Kind::kMap || value->entries.empty()) return true;
  const auto below = accepted.lower_bound(name + ".");
  if (below == accepted.end() || below->compare(0, name.size() + 1, name + ".") != 0) return true;
  const auto num_known = std::count_if(value->entries.begin(), value->entries.end(), [&](const Value::Entry& one) {
    return accepted.count(name + "." + accepted_form(one.first)) != 0;
  });
  return is_most(static_cast<size_t>(num_known), value->entries.size());
}

bool KnownKeys::knows_sections(const Value& root) const {
  size_t num_keys = 0, num_known = 0;
  for (const auto& [section, value] : root.entries) {
    const std::string name = accepted_form(section) + ".";
    if (within.count(name + "*") != 0) continue;  // whatever it holds
    num_keys += value.entries.size();
    for (const Value::Entry& one : value.entries) num_known += within.count(name + accepted_form(one.first));
  }
  return is_most(num_known, num_keys);
}

void add_known_keys(KnownKeys& known, const KeyTable& table) {
  for (const KeyRow& row : table.rows) known.top.insert(first_part(row.key));
  for (const ReadRow& row : table.reads) known.top.insert(first_part(row.key));
  for (const ReadPart& part : table.parts) known.top.insert(first_part(part.section));
  for (const auto& [from, to] : table.read_as) known.top.insert(first_part(from));
  for (const std::string& name : table.accepted) known.top.insert(first_part(name));
  known.accepted.insert(table.accepted.begin(), table.accepted.end());
  for (const KeyRow& row : table.rows) known.within.insert(first_two_parts(row.key));
  for (const ReadRow& row : table.reads) known.within.insert(first_two_parts(row.key));
  for (const ReadPart& part : table.parts) known.within.insert(first_part(part.section) + ".*");
  for (const auto& [from, to] : table.read_as) known.within.insert(from.ends_with('.') ? from + "*" : first_two_parts(from));
}

Result<KnownKeys> known_keys(const TemplateSet& templates, const FileKind& kind) {
  KnownKeys known;
  for (const auto* list : {&kind.keys, &kind.also}) {
    for (const std::string& key : *list) known.top.insert(accepted_form(key));
  }
  if (!kind.names.empty()) add_names(known, templates, kind.names);
  if (kind.takes_training_arguments) add_names(known, templates, "trainer");
  for (const std::string& path : kind.tables) {
    const auto table = load_read_table(templates, path, {"templates/_kinds.yaml", 0, 0});
    if (!table.ok()) return table.diagnostics;
    add_known_keys(known, **table);
  }
  return known;
}

}  // namespace distsetup
