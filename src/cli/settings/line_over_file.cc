#include "cli/settings/line_over_file.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "cli/settings/named_file.h"
#include "codegen/read/best_table.h"
#include "codegen/read/match.h"
#include "codegen/read/own_arguments.h"

namespace distsetup {
namespace {

bool names_file(const FoundKey& one) {
  return (is_same_key(one.key, "config") || is_same_key(one.key, "config_file")) && is_settings_file(one.text);
}

// What engines and launchers are given is not the file of a trainer.
bool is_of_trainer(const Reading& one) {
  return !one.table.empty() && !one.table.starts_with("launchers/") && !one.table.starts_with("deepspeed") &&
         !one.table.starts_with("accelerate");
}

const Reading* file_of(const Reading& line, const std::vector<Reading>& readings) {
  const auto named = std::find_if(line.given.begin(), line.given.end(), names_file);
  const std::optional<NamedFile> found = named == line.given.end() ? std::nullopt : find_named_file(named->text, line.file);
  if (!found) return nullptr;
  const auto file = std::find_if(readings.begin(), readings.end(), [&](const Reading& one) {
    std::error_code ignored;
    return is_of_trainer(one) && one.given.empty() && std::filesystem::equivalent(one.file, found->path, ignored);
  });
  return file == readings.end() ? nullptr : &*file;
}

size_t num_lost(const std::vector<FoundKey>& given, const Reading& reading) {
  return static_cast<size_t>(std::count_if(given.begin(), given.end(), [&reading](const FoundKey& one) {
    return std::any_of(reading.lost.begin(), reading.lost.end(), [&one](const LostKey& lost) {
      return lost.why == LostKey::Why::kUnknownKey && is_same_key(lost.key, one.key);
    });
  }));
}

}  // namespace

Diagnostics read_lines_over_files(const TemplateSet& templates, std::vector<Reading>& readings) {
  for (Reading& line : readings) {
    const Reading* file = line.given.empty() ? nullptr : file_of(line, readings);
    if (file == nullptr || file->table == line.table) continue;
    std::vector<FoundKey> keys = line.given;
    std::erase_if(keys, names_file);
    Result<Reading> over = reading_by(templates, file->table, {nullptr, keys, nullptr}, line.file);
    if (!over.ok()) return over.diagnostics;
    if (num_lost(keys, *over) > num_lost(keys, line)) continue;
    drop_assumed(*over);
    if (over->fields.empty()) continue;
    over->is_over_file = true;
    for (LostKey& lost : line.lost) {  // words that are no arguments
      const bool is_argument = std::any_of(keys.begin(), keys.end(), [&lost](const auto& one) { return one.key == lost.key; });
      if (!is_argument) over->lost.push_back(std::move(lost));
    }
    line = std::move(*over);
  }
  return {};
}

}  // namespace distsetup
