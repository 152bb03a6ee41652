#include "codegen/lint/job_script.h"

#include <algorithm>

#include "codegen/shell/starts_training.h"

namespace distsetup::lint {
namespace {

TextSpan words_span(const ShellCommand& command) {
  if (command.words.empty()) return {0, 0};
  return {command.words.front().span.begin, command.words.back().span.end};
}

// The lines that an srun starts: inside its bash -c, or of a script of the set-up that it names.
std::vector<const LaunchLine*> inner_lines(const JobScript& in, const LaunchLine& line) {
  std::vector<const LaunchLine*> out;
  const TextSpan outer = words_span(in.command(line));
  for (const LaunchLine& other : in.part.lines) {
    const TextSpan span = words_span(in.command(other));
    const bool is_inside = &other != &line && in.command(other).depth > in.command(line).depth && !in.command(other).in_substitution &&
                           span.begin >= outer.begin && span.end <= outer.end;
    if (is_inside) out.push_back(&other);
  }
  for (const ShellWord& word : in.command(line).words) {
    const std::string base = word.text.substr(word.text.rfind('/') + 1);
    for (const auto& other : in.setup.documents) {
      const bool is_named = other.get() != &in.d && !base.empty() && other->path.substr(other->path.rfind('/') + 1) == base;
      if (!is_named) continue;
      for (const ScriptPart& inner : other->parts) {
        for (const LaunchLine& one : inner.lines) out.push_back(&one);
      }
    }
  }
  return out;
}

}  // namespace

bool mentions(const JobScript& in, std::string_view words) {
  const std::string_view text = in.d.text;
  for (size_t at = text.find(words); at != std::string_view::npos; at = text.find(words, at + 1)) {
    const size_t line = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
    const size_t first = text.find_first_not_of(" \t", line);
    if (first >= at || text[first] != '#') return true;
  }
  return false;
}

const LaunchStage* launcher_of(const LaunchLine& line) {
  for (const LaunchProgram program : {LaunchProgram::kTorchrun, LaunchProgram::kDeepspeed, LaunchProgram::kAccelerate}) {
    if (const LaunchStage* stage = line.find(program)) return stage;
  }
  return nullptr;
}

const LaunchStage* launcher_under(const JobScript& in, const LaunchLine& line) {
  if (const LaunchStage* stage = launcher_of(line)) return stage;
  for (const LaunchLine* inner : inner_lines(in, line)) {
    if (const LaunchStage* stage = launcher_of(*inner)) return stage;
  }
  return nullptr;
}

bool is_here(const JobScript& in, const LaunchStage& stage) {
  return std::any_of(in.part.lines.begin(), in.part.lines.end(), [&stage](const LaunchLine& line) {
    return std::any_of(line.stages.begin(), line.stages.end(), [&stage](const LaunchStage& one) { return &one == &stage; });
  });
}

bool has_unknown_words(const JobScript& in, const LaunchStage& launcher) {
  const std::vector<ShellWord>& words = in.part.script.commands[launcher.command].expanded;
  bool is_value = true;  // the launcher's own name, too
  for (const ShellWord& word : words) {
    if (word.span.begin < launcher.span.begin) continue;
    const bool is_option = !word.text.empty() && word.text[0] == '-';
    if (!is_option && !is_value) return word.text.find_first_of("$`") != std::string::npos;
    if (!is_option && word.text.find("$@") != std::string::npos) return true;
    is_value = is_option && word.text.find('=') == std::string::npos && word.text != "-m";
  }
  return true;
}

bool is_under_srun(const ScriptPart& part, const LaunchLine& line) {
  if (line.find(LaunchProgram::kSrun) != nullptr) return true;
  const ShellCommand& own = part.script.commands[line.command];
  if (own.depth == 0 || own.words.empty()) return false;
  const TextSpan at = words_span(own);
  return std::any_of(part.lines.begin(), part.lines.end(), [&](const LaunchLine& other) {
    const ShellCommand& outer = part.script.commands[other.command];
    const TextSpan around = words_span(outer);
    return other.find(LaunchProgram::kSrun) != nullptr && outer.depth < own.depth && around.begin <= at.begin && at.end <= around.end;
  });
}

bool starts_training(const JobScript& in, const LaunchLine& line) {
  if (line.find(LaunchProgram::kScript) != nullptr || launcher_under(in, line) != nullptr) return true;
  const std::vector<const LaunchLine*> inner = inner_lines(in, line);
  return std::any_of(inner.begin(), inner.end(), [](const LaunchLine* one) { return one->find(LaunchProgram::kScript) != nullptr; });
}

}  // namespace distsetup::lint
