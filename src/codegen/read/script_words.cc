#include "codegen/read/script_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/diagnostic_codes.h"
#include "codegen/read/match.h"
#include "codegen/read/own_arguments.h"
#include "codegen/shell/arguments.h"
#include "codegen/shell/starts_training.h"

namespace distsetup {

using foreign::LaunchProgram;

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

Reading unread(const std::vector<FoundKey>& found, const std::string& file, const std::string& what) {
  Reading reading;
  reading.file = file;
  reading.tool = what;
  for (const FoundKey& one : found) {
    const bool is_of_hydra = one.key == "config_name" || one.key == "config_path" || one.key == "config_dir";
    reading.lost.push_back({one.key, one.text,
                            is_of_hydra ? "it names a configuration of the program's own, which is not read"
                                        : fmt::format("no table knows the arguments of {}", what),
                            one.at});
    if (one.key == "config_file" && is_settings_file(one.text)) name_file(reading.lost.back());
  }
  name_file_of_deepspeed(reading);
  return reading;
}

namespace {

bool is_of_caller(std::string_view word) {
  return word.starts_with("$@") || word.starts_with("$*") || word.starts_with("${@") || word.starts_with("${*");
}

std::string first_line_of(const std::string& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  return text.substr(0, end) + (end < text.size() ? " …" : "");
}

// What a run trains with.
constexpr std::string_view kOfTraining[] = {"micro_batch", "gradient_accumulation", "train.learning_rate", "train.steps"};

std::vector<std::string> missing_in(const std::vector<std::string>& one, const std::vector<std::string>& other) {
  std::vector<std::string> out;
  std::copy_if(one.begin(), one.end(), std::back_inserter(out),
               [&other](const std::string& field) { return std::find(other.begin(), other.end(), field) == other.end(); });
  return out;
}

}  // namespace

std::vector<LostKey> open_words(const SourceText& source, const foreign::LaunchStage& stage) {
  std::vector<LostKey> out;
  if (stage.name.ends_with(".sh")) return out;  // its words are no options
  for (const foreign::ShellWord& word : stage.positionals) {
    if (!foreign::may_hold_arguments(word)) continue;
    const std::string reason = is_of_caller(word.text) ? "only whoever starts the script knows what it is given"
                                                       : fmt::format("only the running script knows {}", first_line_of(word.text));
    out.push_back({"arguments", word.text, reason, source.at(word.span.begin)});
  }
  return out;
}

void tell_words_behind(const SourceText& source, const foreign::LaunchStage& stage, Reading& reading) {
  for (const foreign::LaunchOption& option : stage.options) {
    if (option.more.empty()) continue;
    const auto is_list = [&option](const auto& field) {
      return field.second.value.is_array() && is_same_key(field.second.key, option.name);
    };
    const auto is_lost = [&option](const LostKey& lost) { return is_same_key(lost.key, option.name); };
    if (std::any_of(reading.fields.begin(), reading.fields.end(), is_list) ||
        std::any_of(reading.lost.begin(), reading.lost.end(), is_lost))
      continue;
    reading.lost.push_back({option.name, fmt::format("{}", fmt::join(option.more, " ")),
                            "words behind its value: the script takes them by their place, or stops at them",
                            source.at(option.span.begin)});
  }
}

bool may_set_more(const std::vector<LostKey>& open) {
  return std::any_of(open.begin(), open.end(), [](const LostKey& one) { return !is_of_caller(one.text); });
}

Diagnostics OneTraining::take(const SourceText& source, const foreign::LaunchLine& line, const std::vector<Reading>& readings,
                              size_t first) {
  const foreign::LaunchStage* script = line.find(LaunchProgram::kScript);
  if (script == nullptr || !foreign::starts_training_itself(line)) return {};
  std::vector<std::string> said;
  for (size_t i = first; i < readings.size(); ++i) {
    for (const std::string_view field : kOfTraining) {
      const auto given = readings[i].fields.find(field);
      if (given != readings[i].fields.end() && !given->second.is_assumed) said.emplace_back(field);
    }
  }
  if (said.empty()) return {};
  const bool names_model = std::any_of(readings.begin() + static_cast<std::ptrdiff_t>(first), readings.end(), [](const Reading& one) {
    return one.fields.count("model.hub_id") != 0 || one.fields.count("model.name") != 0;
  });
  const std::string program = script->name.substr(script->name.rfind('/') + 1);
  if (program_.empty()) {
    program_ = program;
    at_ = source.at(script->span.begin);
    said_ = std::move(said);
    names_model_ = names_model;
    return {};
  }
  const bool has_own = !missing_in(said, said_).empty() && !missing_in(said_, said).empty();
  // Of the same program with a model and without: the other trains the one that it has by itself.
  const bool has_other_model = program == program_ && names_model != names_model_;
  if (!has_other_model && (program == program_ || !has_own)) return {};
  Diagnostic conflict =
      error(code::kConflict, source.at(script->span.begin),
            fmt::format("the file trains with '{}', and with '{}' in line {}: they are two runs", script->name, program_, at_.line),
            "the file starts several runs: keep one of them in it");
  conflict.length = static_cast<int>(script->name.size());
  return {conflict};
}

}  // namespace distsetup
