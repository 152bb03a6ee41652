#include "cli/settings/named_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "codegen/read/read_script.h"
#include "codegen/shell/script_folder.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxAbove = 6;      // folders above the file that names it
constexpr size_t kMaxAboveName = 3;  // of a name without folders
constexpr size_t kMaxParts = 24;     // of a path

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// What is known of a path: the part behind the last variable in it.
std::vector<std::string> known_parts(const std::string& text) {
  std::vector<std::string> parts;
  for (const fs::path& one : fs::path(text)) {
    const std::string part = one.string();
    const bool is_open = part.find_first_of("$<>{}`") != std::string::npos;
    if (is_open || part == "/" || part == ".") {
      if (is_open) parts.clear();
      continue;
    }
    parts.push_back(part);
  }
  return parts;
}

fs::path joined(const std::vector<std::string>& parts, size_t first) {
  fs::path out;
  for (size_t i = first; i < parts.size(); ++i) out /= parts[i];
  return out;
}

// A script is often started from a folder above it, where the files lie that it names: one of these has `name`, and no other.
std::string only_one_above(const fs::path& folder, const std::string& name) {
  std::string found;
  fs::path above = folder;
  for (size_t i = 0; i < kMaxAboveName; ++i) {
    above /= "..";
    const std::string path = (above / name).lexically_normal().string();
    if (!is_file(path)) continue;
    if (!found.empty()) return "";
    found = path;
  }
  return found;
}

}  // namespace

std::optional<NamedFile> find_named_file(const std::string& text, const std::string& from) {
  const bool is_open = text.find_first_of("$<>{}`") != std::string::npos;
  for (const fs::path& folder : {fs::path(), fs::path(from).parent_path()}) {
    if (!is_open && is_file(folder / text)) return NamedFile{(folder / text).string(), false};
  }
  const auto beside = foreign::from_script_folder(text);
  if (beside && beside->find_first_of("$<>{}`") == std::string_view::npos) {
    const fs::path path = (fs::path(from).parent_path() / *beside).lexically_normal();
    if (is_file(path)) return NamedFile{path.string(), false};
  }
  std::vector<std::string> parts = known_parts(text);
  // From a folder that is not known the ones above it are as good.
  while (is_open && !parts.empty() && parts[0] == "..") parts.erase(parts.begin());
  const bool climbs = std::find(parts.begin(), parts.end(), "..") != parts.end();
  if (parts.empty() || parts.size() > kMaxParts || climbs) return std::nullopt;
  const bool is_of_another = is_open || fs::path(text).is_absolute();
  // repository/scripts/run/train.sh, of a repository that is called otherwise here, from scripts/run: the file beside.
  std::error_code ignored;
  const fs::path here = fs::absolute(fs::path(from), ignored).lexically_normal().parent_path();
  const bool is_of_here =
      parts.size() > 2 && parts[parts.size() - 2] == here.filename() && parts[parts.size() - 3] == here.parent_path().filename();
  if (!is_of_another && is_of_here && is_file(fs::path(from).parent_path() / parts.back()))
    return NamedFile{(fs::path(from).parent_path() / parts.back()).string(), true};
  // A path from a folder that is not the one we are in has all its folders; of another machine's the last ones say enough.
  const size_t last = is_of_another ? parts.size() : 1;
  for (size_t first = 0; first < last; ++first) {
    fs::path folder = fs::path(from).parent_path();
    const size_t above = first + 1 == parts.size() ? 0 : kMaxAbove;  // a bare name: beside it alone
    for (size_t i = 0; i <= above; ++i, folder /= "..") {
      const fs::path path = (folder / joined(parts, first)).lexically_normal();
      if (is_file(path)) return NamedFile{path.string(), true};
    }
  }
  const std::string above = parts.size() == 1 && !is_of_another ? only_one_above(fs::path(from).parent_path(), parts[0]) : "";
  return above.empty() ? std::nullopt : std::optional(NamedFile{above, true});
}

foreign::ReadSourced read_beside(const std::string& from) {
  return [from](const std::string& path) -> std::optional<std::string> {
    constexpr uintmax_t kMostBytes = 1'000'000;
    const std::optional<NamedFile> found = find_named_file(path, from);
    std::error_code ignored;
    if (!found || fs::file_size(found->path, ignored) > kMostBytes) return std::nullopt;
    Result<std::string> text = read_file(found->path);
    return text.ok() ? std::optional<std::string>(std::move(*text)) : std::nullopt;
  };
}

Diagnostics unread_strategy(const std::vector<Reading>& readings) {
  const bool is_known = std::any_of(readings.begin(), readings.end(), [](const Reading& one) {
    const auto has = [&one](const char* field) {
      const auto it = one.fields.find(field);
      const bool is_of_launch = it != one.fields.end() && it->second.key == "multi_gpu";  // what starts there decides
      return it != one.fields.end() && !it->second.is_assumed && !is_of_launch;
    };
    return has("strategy.sharding") || has("derived.zero_stage");
  });
  if (is_known) return {};
  for (const Reading& reading : readings) {
    for (const LostKey& lost : reading.lost) {
      if (lost.is_file && lost.key == kStartedScript) {
        return {warning(code::kUnknownValue, lost.at, fmt::format("'{}' is not here: what the job starts is not known", lost.text),
                        "give that script beside this one")};
      }
      const bool is_strategy = lost.key.find("deepspeed") != std::string::npos || lost.key.find("fsdp") != std::string::npos ||
                               lost.key.starts_with("ds_") || lost.key.starts_with("ds-") ||
                               (lost.key == "config_file" && reading.table == "launchers/accelerate.yaml");
      if (!lost.is_file || !is_strategy) continue;
      return {error(code::kUnknownValue, lost.at,
                    fmt::format("'{}' names '{}', which is not here and says how the model is sharded", lost.key, lost.text),
                    "give that file beside this one, or say it: --sharding zero3")};
    }
  }
  return {};
}

}  // namespace distsetup
