// Nothing is half-written: conflicts of all files are found before the first is touched, and each file is replaced whole.
#include "cli/deliver/deliver.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/line/output.h"
#include "plan/plan.h"
#include "plan/plan_json.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

std::string joined(const std::string& directory, const std::string& file) {
  return directory.empty() || directory == "." ? file : (fs::path(directory) / file).string();
}

Json artifact_json(const Artifact& artifact) {
  return {{"path", artifact.path}, {"text", artifact.text}, {"executable", artifact.executable}};
}

int first_difference(std::string_view present, std::string_view wanted) {
  const auto end = present.begin() + static_cast<std::ptrdiff_t>(std::min(present.size(), wanted.size()));
  const auto at = std::mismatch(present.begin(), end, wanted.begin()).first;
  return 1 + static_cast<int>(std::count(present.begin(), at, '\n'));
}

std::string_view word_of(Written how) {
  switch (how) {
    case Written::kCreated: return "wrote";
    case Written::kUnchanged: return "unchanged";
    case Written::kReplaced: return "replaced";
  }
  return "wrote";
}

int print_envelope(const Terminal& terminal, const Json& files, const Delivery& delivery) {
  Json envelope = delivery.also;
  envelope["schema_version"] = 1;
  envelope["files"] = files;
  envelope["diagnostics"] = to_json(delivery.diagnostics);
  return print_result(terminal, dump_json(envelope), delivery.code);
}

// --dry-run: every file as it would be.
int show_files(const Terminal& terminal, const Delivery& delivery, const std::string& directory) {
  say_diagnostics(terminal, delivery.diagnostics);
  std::string text;
  for (const Artifact& file : delivery.files)
    text += fmt::format("==> {}{} <==\n{}\n", joined(directory, file.path), file.executable ? " (executable)" : "", file.text);
  return print_result(terminal, text, delivery.code);
}

int print_file(const Arguments& arguments, const Terminal& terminal, const Delivery& delivery) {
  if (delivery.files.size() > 1) {
    return fail(
        arguments, terminal,
        {error(code::kMissingArgument, command_line(),
               fmt::format("{} files are written, and no --output says where", delivery.files.size()), "add --output FOLDER")});
  }
  say_diagnostics(terminal, delivery.diagnostics);
  const Artifact& file = delivery.files.front();
  if (arguments.has("json")) return print_envelope(terminal, Json::array({artifact_json(file)}), delivery);
  return print_result(terminal, file.text, delivery.code);
}

bool is_run_file(const Arguments& arguments, const std::string& path) {
  std::error_code ignored;
  const std::string run_file = arguments.positionals.empty() ? arguments.text("config") : arguments.positionals[0];
  return !run_file.empty() && fs::equivalent(run_file, path, ignored);
}

}  // namespace

Result<std::vector<WrittenFile>> write_artifacts(const Arguments& arguments, const Artifacts& artifacts,
                                                 const std::string& directory) {
  const Overwrite overwrite = arguments.has("force") ? Overwrite::kForce : Overwrite::kRefuse;
  Diagnostics conflicts;
  for (const Artifact& artifact : artifacts) {
    const std::string path = joined(directory, artifact.path);
    std::error_code ignored;
    if (is_run_file(arguments, path)) {
      conflicts.push_back(error(code::kConflict, command_line(), fmt::format("'{}' is the run file, expected another output", path),
                                "name another path with --output"));
      continue;
    }
    if (overwrite == Overwrite::kForce || !fs::is_regular_file(path, ignored)) continue;
    const Result<std::string> present = read_file(path);
    if (present.ok() && *present == artifact.text) continue;
    const int line = present.ok() ? first_difference(*present, artifact.text) : 0;
    const std::string from = line > 0 ? fmt::format(" from line {} on", line) : "";
    conflicts.push_back(error(code::kFileExists, {path, line},
                              fmt::format("'{}' exists and is different{}, expected a new file", path, from),
                              "add --force to replace it, or name another path with --output"));
  }
  if (!conflicts.empty()) return conflicts;
  std::vector<WrittenFile> written;
  std::vector<std::string> made;
  for (const Artifact& artifact : artifacts) {
    const std::string path = joined(directory, artifact.path);
    const std::vector<std::string> missing = missing_folders(path);
    made.insert(made.begin(), missing.begin(), missing.end());  // before the folders that hold them
    const Result<Written> one = write_file_atomic(path, artifact.text, overwrite, artifact.executable);
    if (!one.ok()) {
      std::error_code ignored;
      for (const WrittenFile& file : written) {
        if (file.how == Written::kCreated) fs::remove(file.path, ignored);  // half a set is worse than none
      }
      for (const std::string& folder : made) fs::remove(folder, ignored);
      return one.diagnostics;
    }
    written.push_back({path, *one});
  }
  return written;
}

void mention_written(const Terminal& terminal, const std::vector<WrittenFile>& files) {
  std::string text;
  for (const WrittenFile& file : files) text += fmt::format("{} {}\n", word_of(file.how), file.path);
  mention(terminal, text);
}

OutputPath output_path(const std::string& path, const std::string& name) {
  std::error_code ignored;
  const bool is_folder = path.empty() || path.back() == '/' || fs::is_directory(path, ignored);
  if (is_folder) return {path.empty() ? "." : path, name};
  const fs::path whole = path;
  return {whole.has_parent_path() ? whole.parent_path().string() : ".", whole.filename().string()};
}

int deliver(const Arguments& arguments, const Terminal& terminal, Delivery delivery) {
  const bool is_dry = arguments.has("dry-run");
  if (delivery.output.empty() && !is_dry) return print_file(arguments, terminal, delivery);
  std::string directory = delivery.output.empty() ? "." : delivery.output;
  if (!delivery.named_file.empty()) {
    const OutputPath at = output_path(delivery.output, delivery.named_file);
    directory = at.directory;
    for (Artifact& file : delivery.files) {
      if (file.path == delivery.named_file) file.path = at.file;
    }
  }
  if (is_dry) return show_files(terminal, delivery, directory);
  const Result<std::vector<WrittenFile>> written = write_artifacts(arguments, delivery.files, directory);
  if (!written.ok()) {
    append(delivery.diagnostics, written.diagnostics);
    return fail(arguments, terminal, delivery.diagnostics);
  }
  say_diagnostics(terminal, delivery.diagnostics);
  mention_written(terminal, *written);
  int code = delivery.code;
  if (arguments.has("json")) {
    Json files = Json::array();
    for (const WrittenFile& file : *written) files.push_back({{"path", file.path}, {"action", word_of(file.how)}});
    code = print_envelope(terminal, files, delivery);
  }
  if (code == kDone && !delivery.next.empty()) suggest_next(terminal, delivery.next);
  return code;
}

Delivery one_file(const Arguments& arguments, Artifact file, Diagnostics diagnostics) {
  Delivery delivery;
  delivery.output = arguments.text("output");
  delivery.named_file = file.path;
  delivery.files = {std::move(file)};
  delivery.diagnostics = std::move(diagnostics);
  return delivery;
}

}  // namespace distsetup
