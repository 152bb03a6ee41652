#include "cli/settings/files_to_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/diagnostic_codes.h"
#include "cli/settings/named_file.h"
#include "codegen/read/match.h"
#include "codegen/read/read_script.h"
#include "codegen/read/settle.h"
#include "codegen/read/started_scripts.h"

namespace distsetup {

FilesToRead::FilesToRead(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    files_.emplace_back();
    files_.back().path = path;
    files_.back().is_given = true;
  }
}

const FileToRead* FilesToRead::next() { return at_ < files_.size() ? &files_[at_++] : nullptr; }

bool FilesToRead::add_named(const LostKey& lost, const Reading& by, const foreign::Document& from, Diagnostics& said) {
  namespace fs = std::filesystem;
  constexpr size_t kMaxFiles = 32;
  std::optional<NamedFile> found;
  for (const std::string& path : foreign::possible_paths(from, lost.text)) {
    if (!found) found = find_named_file(path, from.path);
  }
  if (!found || files_.size() >= kMaxFiles) return false;
  std::error_code ignored;
  const bool is_known =
      std::any_of(files_.begin(), files_.end(), [&](const FileToRead& one) { return fs::equivalent(one.path, found->path, ignored); });
  if (is_known) return true;
  FileToRead file;
  file.path = found->path;
  file.is_started = lost.key == kStartedScript;
  file.is_config = lost.key == "config" || (is_same_key(lost.key, "config_file") && by.table != "launchers/accelerate.yaml");
  file.option = lost.key;
  if (file.is_config && by.is_own_program) file.table = by.table;
  file.is_below_config = file.is_config || std::any_of(files_.begin(), files_.end(), [&](const FileToRead& one) {
                           return one.is_below_config && one.path == from.path;
                         });
  if (file.is_started) {
    std::vector<foreign::StartedScript> all = foreign::started_scripts(from);
    for (foreign::StartedScript& one : all) {
      if (one.path != lost.text) continue;
      file.given = std::move(one.given);
      file.is_submitted = one.is_submitted;
      file.directives = std::move(one.directives);
      file.is_plain = !one.is_of_launcher;
      file.is_helper = file.is_plain && all.size() > 1;
    }
  }
  files_.push_back(std::move(file));
  if (found->is_elsewhere) {
    said.push_back(note(code::kUnknownValue, lost.at,
                        fmt::format("'{}' is not here: '{}' is read in its place", lost.text, found->path),
                        "give the file itself where it is another one"));
  }
  return true;
}

void leave_sharding_to_the_line(std::vector<Reading>& readings, const std::set<std::string>& below_config, Diagnostics& said) {
  const auto said_of = [](const ReadFields& fields, const char* name) -> const ReadField* {
    const auto it = fields.find(name);
    return it == fields.end() ? nullptr : &it->second;
  };
  const auto given = [&said_of](const ReadFields& fields, const char* name) {
    const ReadField* one = said_of(fields, name);
    return one != nullptr && one->is_assumed ? nullptr : one;
  };
  std::vector<ReadFields> all;
  for (const Reading& one : readings) {
    all.push_back(one.fields);
    settle_derived(all.back());
  }
  size_t of_line = 0;
  while (of_line < readings.size() &&
         (below_config.count(readings[of_line].file) != 0 || given(all[of_line], "strategy.sharding") == nullptr))
    ++of_line;
  if (of_line == readings.size()) return;
  for (size_t i = 0; i < readings.size(); ++i) {
    if (below_config.count(readings[i].file) == 0) continue;
    const ReadField* own = nullptr;
    for (const char* name : {"strategy.sharding", "strategy.trainer"}) {
      const ReadField *one = given(all[i], name), *other = said_of(all[of_line], name);  // a trainer's own file implies it
      if (own == nullptr && one != nullptr && other != nullptr && one->value != other->value) own = one;
    }
    if (own == nullptr) continue;
    said.push_back(note(code::kUnknownValue, own->at,
                        fmt::format("'{}' is left out: {}, which the command line names, says how the model is sharded", own->key,
                                    readings[of_line].file)));
    std::erase_if(all[i],
                  [](const auto& field) { return field.first.starts_with("strategy.") || field.first.starts_with("offload."); });
    readings[i].fields = std::move(all[i]);
  }
}

Diagnostics nothing_but_started(const std::vector<Reading>& readings) {
  const LostKey* started = nullptr;
  for (const Reading& one : readings) {
    if (!one.fields.empty()) return {};
    for (const LostKey& lost : one.lost) {
      if (lost.key != kStartedScript) return {};
      if (started == nullptr) started = &lost;
    }
  }
  if (started != nullptr) {
    return {error(code::kUnknownValue, started->at, fmt::format("'{}' is not here: what the file starts is not known", started->text),
                  "give that script beside this one")};
  }
  if (readings.empty()) return {};
  return {error(code::kUnknownValue, {readings[0].file, 0, 0}, "nothing that the file starts is a run of a known tool",
                "give the script that trains")};
}

bool says_nothing_of_a_run(const FileToRead& file, const std::vector<Reading>& readings) {
  return file.is_plain && std::all_of(readings.begin(), readings.end(), [](const Reading& one) { return one.table.empty(); });
}

bool is_of_own_form(const foreign::Document& document, const std::vector<Reading>& readings) {
  if (document.form != foreign::TextForm::kToml) return false;
  size_t num_given = 0, num_unknown = 0;
  for (const Reading& one : readings) {
    for (const auto& [name, field] : one.fields) num_given += field.is_assumed ? 0 : 1;
    for (const LostKey& lost : one.lost) num_unknown += lost.why == LostKey::Why::kUnknownKey ? 1 : 0;
  }
  return num_unknown >= num_given;
}

}  // namespace distsetup
