#include "codegen/read/read_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/tree_builder.h"
#include "codegen/read/best_table.h"
#include "codegen/read/manifest.h"

namespace distsetup {
namespace {

using foreign::LaunchLine;
using foreign::LaunchOption;
using foreign::LaunchProgram;
using foreign::LaunchStage;

const std::string kDirectives = "slurm/directives.yaml", kManifest = "launchers/kubernetes.yaml";

Reading unread(const std::vector<FoundKey>& found, const std::string& file, const std::string& what) {
  Reading reading;
  reading.file = file;
  reading.tool = what;
  for (const FoundKey& one : found)
    reading.lost.push_back({one.key, one.text, fmt::format("no table knows the arguments of {}", what), one.at});
  return reading;
}

std::string table_of(LaunchProgram program) {
  switch (program) {
    case LaunchProgram::kSrun: return "launchers/srun.yaml";
    case LaunchProgram::kTorchrun: return "launchers/torchrun.yaml";
    case LaunchProgram::kDeepspeed: return "launchers/deepspeed.yaml";
    case LaunchProgram::kAccelerate: return "launchers/accelerate.yaml";
    case LaunchProgram::kMpirun: return "launchers/mpirun.yaml";
    case LaunchProgram::kScript:
    case LaunchProgram::kOther: break;
  }
  return "";
}

class ScriptReader {
 public:
  ScriptReader(const TemplateSet& templates, const foreign::Document& document)
      : templates_(templates), file_(document.path), source_(document.text, document.path) {}

  void directives(const foreign::ShellScript& script) {
    std::vector<FoundKey> keys;
    for (const foreign::Directive& one : script.directives) {
      if (!one.is_late) keys.push_back(found(one.name, one.value, !one.value.empty(), one.span));
    }
    if (!keys.empty()) keys_of(kDirectives, std::move(keys));
  }

  void lines(const std::vector<LaunchLine>& lines) {
    for (const LaunchLine& line : lines) {
      for (const LaunchStage& stage : line.stages) read_stage(stage);
    }
  }

  void keys_of(const std::string& table, std::vector<FoundKey> keys) {
    add(reading_by(templates_, table, {nullptr, std::move(keys), nullptr}, file_));
  }

  std::vector<FoundKey> options_of(const LaunchStage& stage) const {
    std::vector<FoundKey> keys;
    for (const LaunchOption& option : stage.options) {
      keys.push_back(found(option.name, option.value, option.has_value, option.span));
      if (option.more.empty()) continue;
      keys.back().items = option.more;
      keys.back().items.insert(keys.back().items.begin(), option.value);
    }
    return keys;
  }

  Result<std::vector<Reading>> take() {
    if (has_error(diagnostics_)) return diagnostics_;
    return {std::move(readings_), std::move(diagnostics_)};
  }

 private:
  FoundKey found(const std::string& key, const std::string& value, bool has_value, const foreign::TextSpan& span) const {
    FoundKey one;
    one.key = key;
    one.text = has_value ? value : "true";
    one.stands_alone = !has_value;
    one.at = source_.at(span.begin);
    const size_t dollar = value.find_first_of("$`");
    if (dollar != std::string::npos) one.unknown = fmt::format("only the running script knows {}", value.substr(dollar));
    return one;
  }

  void add(Result<Reading> reading) {
    append(diagnostics_, reading.diagnostics);
    if (reading.ok() && (!reading->fields.empty() || !reading->lost.empty())) readings_.push_back(std::move(*reading));
  }

  void read_stage(const LaunchStage& stage) {
    std::vector<FoundKey> keys = options_of(stage);
    if (keys.empty()) return;
    if (const std::string table = table_of(stage.program); !table.empty()) return keys_of(table, std::move(keys));
    Result<Reading> best = reading_of_program(templates_, stage.name, keys, file_);
    const bool is_read = !best.ok() || !best->tool.empty();
    add(is_read ? std::move(best) : unread(keys, file_, stage.name));
  }

  const TemplateSet& templates_;
  std::string file_;
  SourceText source_;
  std::vector<Reading> readings_;
  Diagnostics diagnostics_;
};

}  // namespace

Result<std::vector<Reading>> read_script(const TemplateSet& templates, const foreign::Document& document) {
  ScriptReader reader(templates, document);
  for (const foreign::ScriptPart& part : document.parts) {
    reader.directives(part.script);
    reader.lines(part.lines);
  }
  return reader.take();
}

Result<std::vector<Reading>> read_manifest(const TemplateSet& templates, const foreign::Document& document) {
  if (has_error(document.broken)) return document.broken;
  ScriptReader reader(templates, document);
  reader.keys_of(kManifest, keys_of_manifest(document));
  for (const foreign::ScriptPart& part : document.parts) reader.lines(part.lines);
  return reader.take();
}

Result<std::vector<Reading>> read_arguments(const TemplateSet& templates, const foreign::Document& document,
                                            const std::string& table) {
  const ScriptReader reader(templates, document);
  std::vector<FoundKey> keys;
  for (const foreign::ScriptPart& part : document.parts) {
    for (const LaunchLine& line : part.lines) {
      for (const LaunchStage& stage : line.stages) {
        std::vector<FoundKey> options = reader.options_of(stage);
        for (size_t i = 0; i < options.size(); ++i) {
          keys.push_back(std::move(options[i]));
          const std::string& spelled = stage.options[i].spelled;
          keys.back().key = spelled.substr(std::min(spelled.find_first_not_of('-'), spelled.size()));
        }
      }
    }
  }
  Result<Reading> best = table.empty() ? best_reading(templates, tables_of(templates, {"arguments", "json", "yaml"}),
                                                      {nullptr, keys, nullptr}, document.path)
                                       : reading_by(templates, table, {nullptr, keys, nullptr}, document.path);
  if (!best.ok()) return best.diagnostics;
  std::vector<Reading> out;
  if (!best->table.empty()) out.push_back(std::move(*best));
  return {std::move(out), std::move(best.diagnostics)};
}

}  // namespace distsetup
