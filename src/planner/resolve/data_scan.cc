#include "planner/resolve/data_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>

#include "base/diagnostic_codes.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/quantity.h"
#include "data/prepared_set.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

enum class FileContent { kText, kBinary, kUnreadable };

// Text has no zero byte in its first 64 KiB: the rule of git and grep.
FileContent content_of(const fs::path& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) return FileContent::kUnreadable;
  std::vector<char> head(64 << 10);
  const size_t n = std::fread(head.data(), 1, head.size(), file.get());
  if (std::ferror(file.get()) != 0) return FileContent::kUnreadable;
  return std::find(head.begin(), head.begin() + static_cast<ptrdiff_t>(n), '\0') == head.begin() + static_cast<ptrdiff_t>(n)
             ? FileContent::kText
             : FileContent::kBinary;
}

struct Found {
  fs::path path;
  bool named = false;  // by the user, not found in a directory
};

void hold_out(std::vector<DataFile>& files, int64_t every) {
  if (every <= 0 || files.size() < 2) return;
  std::vector<size_t> order(files.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return files[a].sha256 != files[b].sha256 ? files[a].sha256 < files[b].sha256 : files[a].path < files[b].path;
  });
  const size_t step = std::min(static_cast<size_t>(every), files.size());
  for (size_t i = step - 1; i < order.size(); i += step) files[order[i]].held_out = true;
}

// A file as the plan names it: relative to `base` where it lies below.
std::string shown_path(const fs::path& path, const fs::path& base) {
  const fs::path relative = path.lexically_relative(base);
  const bool inside = !relative.empty() && *relative.begin() != "..";
  return inside ? relative.string() : path.string();
}

// plan.data.root of paths that start at `base`.
std::string root_of(const fs::path& base) {
  return base.has_filename() || base == base.root_path() ? base.string() : base.parent_path().string();
}

// The set whose folder is one of `paths`; "": there is none.
std::string prepared_set_of(const std::vector<std::string>& paths, const fs::path& base) {
  for (const std::string& path : paths)
    if (is_prepared_set((base / path).string())) return path;
  return "";
}

Result<DataPlan> scan_prepared_set(const std::string& path, const fs::path& base) {
  const fs::path folder = (base / path).lexically_normal();
  const Result<SetDescription> set = read_set_description(folder.string());
  if (!set.ok()) return set.diagnostics;
  DataPlan data;
  data.root = root_of(base);
  data.tokenizer = kPreparedTokens;
  const auto add = [&](const SetFile& file) {
    data.files.push_back(
        {shown_path(folder / file.path, base), file.bytes, file.sha256, file.path.starts_with(name(SetSplit::kHeldOut))});
  };
  const std::string description = (folder / kSetDescriptionFile).string();
  const Result<std::string> digest = sha256_of_file(description);
  if (!digest.ok()) return digest.diagnostics;
  std::error_code failure;
  add({std::string(kSetDescriptionFile), static_cast<int64_t>(fs::file_size(description, failure)), *digest});
  for (const SetFile& file : set->files) {
    const auto bytes = static_cast<int64_t>(fs::file_size(folder / file.path, failure));
    if (failure || bytes != file.bytes)
      return error(code::kData, {},
                   failure
                       ? fmt::format("the prepared set '{}' lacks '{}'", path, file.path)
                       : fmt::format("'{}' of the prepared set '{}' has {} bytes, expected {}", file.path, path, bytes, file.bytes),
                   "prepare it again: distsetup data prepare");
    add(file);
  }
  return data;
}

}  // namespace

int64_t train_tokens(const DataPlan& data) {
  if (data.tokenizer != kPreparedTokens) return train_bytes(data);  // a token is a byte
  int64_t bytes = 0;
  for (const DataFile& f : data.files) bytes += !f.held_out && f.path.ends_with(".tokens") ? f.bytes : 0;
  return bytes / static_cast<int64_t>(sizeof(uint32_t));
}

int64_t train_bytes(const DataPlan& data) {
  int64_t sum = 0;
  for (const DataFile& f : data.files) sum += f.held_out ? 0 : f.bytes;
  return sum;
}

int64_t held_out_bytes(const DataPlan& data) {
  int64_t sum = 0;
  for (const DataFile& f : data.files) sum += f.held_out ? f.bytes : 0;
  return sum;
}

Result<DataPlan> scan_data(const std::vector<std::string>& paths, const std::string& root, int64_t held_out_every) {
  Diagnostics diagnostics;
  std::vector<Found> found;
  std::error_code failure;
  const fs::path base = fs::absolute(root, failure).lexically_normal();
  if (const std::string set = prepared_set_of(paths, base); !set.empty()) {
    if (paths.size() == 1) return scan_prepared_set(set, base);
    return error(code::kData, {}, fmt::format("'{}' is a prepared data set, and other data stands beside it", set),
                 "prepare all of it as one set: distsetup data prepare SOURCE... --output SET");
  }
  for (const std::string& text : paths) {
    const fs::path path = fs::path(text).is_absolute() ? fs::path(text).lexically_normal() : (base / text).lexically_normal();
    if (fs::is_directory(path, failure)) {
      const Result<std::vector<std::string>> files = files_below(path.string());
      append(diagnostics, files.diagnostics);
      if (files.ok())
        for (const std::string& file : *files) found.push_back({file, false});
    } else if (fs::is_regular_file(path, failure)) {
      found.push_back({path, true});
    } else {
      diagnostics.push_back(error(code::kData, {}, fmt::format("no file or directory '{}', expected text to train on", path.string()),
                                  "check the path; in a run file it is relative to that file, in a flag to this folder"));
    }
  }
  if (has_error(diagnostics)) return diagnostics;

  std::map<std::string, DataFile> files;  // by path: a file that two paths reach is named once
  for (const Found& f : found) {
    const std::string shown = shown_path(f.path, base);
    if (files.contains(shown)) continue;
    const FileContent kind = content_of(f.path);
    const auto size = static_cast<int64_t>(fs::file_size(f.path, failure));
    if (kind == FileContent::kUnreadable || failure) {
      diagnostics.push_back(error(code::kData, {}, fmt::format("cannot read '{}'", shown), "check its permissions, or leave it out"));
    } else if (kind == FileContent::kBinary) {
      if (f.named) {
        diagnostics.push_back(error(code::kData, {}, fmt::format("'{}' is binary (it has a zero byte), expected text", shown),
                                    "leave it out of data.paths"));
      } else {
        diagnostics.push_back(note(code::kData, {}, fmt::format("'{}' is binary and not trained on", shown)));
      }
    } else if (size == 0) {
      if (f.named)
        diagnostics.push_back(
            error(code::kData, {}, fmt::format("'{}' is empty, expected text", shown), "leave it out of data.paths"));
    } else {
      const Result<std::string> digest = sha256_of_file(f.path.string());
      append(diagnostics, digest.diagnostics);
      if (digest.ok()) files[shown] = {shown, size, *digest, false};
    }
  }
  if (has_error(diagnostics)) return diagnostics;
  DataPlan data;
  data.root = root_of(base);
  for (auto& [path, file] : files) data.files.push_back(std::move(file));
  if (data.files.empty()) {
    diagnostics.push_back(
        error(code::kData, {},
              fmt::format("no text in {} path{}, expected at least one text file", paths.size(), paths.size() == 1 ? "" : "s")));
    return diagnostics;
  }
  hold_out(data.files, held_out_every);
  return {std::move(data), std::move(diagnostics)};
}

}  // namespace distsetup
