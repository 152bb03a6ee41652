// Results and their ways out. Nothing is half-written: conflicts of all files are found before the first is touched, and each file is
// replaced whole.
#include "cli/line/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/diagnostic_codes.h"
#include "base/json.h"
#include "base/names.h"
#include "plan/plan.h"

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

int print_envelope(const Terminal& terminal, const Json& files, const Diagnostics& diagnostics, int code) {
  const Json envelope = {{"schema_version", 1}, {"files", files}, {"diagnostics", to_json(diagnostics)}};
  return print_result(terminal, dump_json(envelope), code);
}

// --dry-run: every file as it would be.
int show_all(const Terminal& terminal, const Artifacts& artifacts, const std::string& directory, const Diagnostics& diagnostics,
             int code) {
  say_diagnostics(terminal, diagnostics);
  std::string text;
  for (const Artifact& artifact : artifacts) {
    text +=
        fmt::format("==> {}{} <==\n{}\n", joined(directory, artifact.path), artifact.executable ? " (executable)" : "", artifact.text);
  }
  return print_result(terminal, text, code);
}

bool is_run_file(const Arguments& arguments, const std::string& path) {
  std::error_code ignored;
  const std::string run_file = arguments.positionals.empty() ? arguments.text("config") : arguments.positionals[0];
  return !run_file.empty() && fs::equivalent(run_file, path, ignored);
}

}  // namespace

void say_diagnostics(const Terminal& terminal, const Diagnostics& diagnostics) {
  Diagnostics shown = diagnostics;
  if (terminal.talk == Talk::kQuiet) {
    std::erase_if(shown, [](const Diagnostic& d) { return d.severity == Severity::kNote; });
  }
  say(format_diagnostics(shown, terminal.err.colour));
}

int fail(const Arguments& arguments, const Terminal& terminal, const Diagnostics& diagnostics) {
  say_diagnostics(terminal, diagnostics);
  if (arguments.has("json")) say_diagnostics(terminal, write_result(dump_json(failed_plan_json(diagnostics))));
  return exit_code(diagnostics);
}

int print_result(const Terminal& terminal, std::string_view text, int code) {
  const Diagnostics failed = write_result(text);
  if (failed.empty()) return code;
  say_diagnostics(terminal, failed);
  return exit_code(failed);
}

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

int deliver(const Arguments& arguments, const Terminal& terminal, const Artifact& artifact, const Diagnostics& diagnostics) {
  if (!arguments.has("output")) {
    say_diagnostics(terminal, diagnostics);
    if (arguments.has("json")) return print_envelope(terminal, Json::array({artifact_json(artifact)}), diagnostics, kDone);
    return print_result(terminal, artifact.text);
  }
  const OutputPath at = output_path(arguments.text("output"), fs::path(artifact.path).filename().string());
  Artifact named = artifact;
  named.path = at.file;
  return deliver_all(arguments, terminal, {named}, at.directory, diagnostics);
}

int deliver_all(const Arguments& arguments, const Terminal& terminal, const Artifacts& artifacts, const std::string& directory,
                const Diagnostics& diagnostics, int code) {
  if (arguments.has("dry-run")) return show_all(terminal, artifacts, directory, diagnostics, code);
  Result<std::vector<WrittenFile>> written = write_artifacts(arguments, artifacts, directory);
  if (!written.ok()) {
    Diagnostics all = diagnostics;
    append(all, written.diagnostics);
    return fail(arguments, terminal, all);
  }
  say_diagnostics(terminal, diagnostics);
  mention_written(terminal, *written);
  if (!arguments.has("json")) return code;
  Json files = Json::array();
  for (const WrittenFile& file : *written) files.push_back({{"path", file.path}, {"action", word_of(file.how)}});
  return print_envelope(terminal, files, diagnostics, code);
}

std::vector<std::string> command_words(const std::vector<std::string>& words) {
  static const std::vector<std::string> kDropped = {"force", "quiet", "json", "dry-run"};
  static const std::vector<std::string> kDroppedWithValue = {"output", "color", "colour"};
  std::vector<std::string> kept;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "-q" || word == "-f" || word == "-n") continue;
    if (word == "-o") {
      ++i;
      continue;
    }
    if (word.compare(0, 2, "--") == 0 && word.size() > 2) {
      const size_t equals = word.find('=');
      const std::string_view name = std::string_view(word).substr(2, equals == std::string::npos ? equals : equals - 2);
      const auto is = [name](const std::string& one) { return same_name(one, name); };
      if (std::any_of(kDropped.begin(), kDropped.end(), is)) continue;
      if (std::any_of(kDroppedWithValue.begin(), kDroppedWithValue.end(), is)) {
        if (equals == std::string::npos) ++i;
        continue;
      }
    }
    kept.push_back(word);
  }
  return kept;
}

}  // namespace distsetup
