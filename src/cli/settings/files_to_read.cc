#include "cli/settings/files_to_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/diagnostic_codes.h"
#include "cli/settings/named_file.h"
#include "codegen/read/read_script.h"
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

bool FilesToRead::add_named(const LostKey& lost, const foreign::Document& from, Diagnostics& said) {
  namespace fs = std::filesystem;
  constexpr size_t kMaxFiles = 32;
  const std::optional<NamedFile> found = find_named_file(lost.text, from.path);
  if (!found || files_.size() >= kMaxFiles) return false;
  std::error_code ignored;
  const bool is_known =
      std::any_of(files_.begin(), files_.end(), [&](const FileToRead& one) { return fs::equivalent(one.path, found->path, ignored); });
  if (is_known) return true;
  FileToRead file;
  file.path = found->path;
  file.is_started = lost.key == kStartedScript;
  file.is_config = lost.key == "config";
  if (file.is_started) {
    std::vector<foreign::StartedScript> all = foreign::started_scripts(from);
    for (foreign::StartedScript& one : all) {
      if (one.path != lost.text) continue;
      file.given = std::move(one.given);
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

}  // namespace distsetup
