#include "codegen/lint/pipe_status.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/shell/starts_training.h"

namespace distsetup::lint {
namespace {

// Whether a word of a `set` or `shopt` of the script is one that `is_it` takes.
template <class F>
bool sets_option(const ShellScript& script, std::initializer_list<std::string_view> commands, F is_it) {
  return std::any_of(script.commands.begin(), script.commands.end(), [&](const ShellCommand& one) {
    const bool is_set = !one.words.empty() && std::find(commands.begin(), commands.end(), one.words[0].text) != commands.end();
    return is_set && std::any_of(one.words.begin(), one.words.end(), [&](const ShellWord& word) { return is_it(one, word.text); });
  });
}

// Of the training, by the shell's own means: pipefail, or PIPESTATUS, which the script looks at.
bool keeps_status(const Document& d, const ShellScript& script) {
  const bool has_pipefail =
      sets_option(script, {"set", "shopt"}, [](const ShellCommand&, const std::string& word) { return word == "pipefail"; });
  return has_pipefail || script.shebang.find("pipefail") != std::string::npos || d.text.find("PIPESTATUS") != std::string::npos ||
         d.text.find("-o pipefail") != std::string::npos;
}

// The script's own exit code is that of its first command that fails.
bool stops_at_failures(const ShellScript& script) {
  return sets_option(script, {"set"}, [](const ShellCommand& command_of, const std::string& word) {
    const bool is_short = word.size() > 1 && word[0] == '-' && word[1] != '-';
    return command_of.depth == 0 && (word == "errexit" || (is_short && word.find('e') != std::string::npos));
  });
}

// The last command of the pipe that begins here, and the one behind it; nullptr: none.
struct PipeEnd {
  const ShellCommand* last = nullptr;
  const ShellCommand* next = nullptr;
};

PipeEnd end_of_pipe(const ShellScript& script, const ShellCommand& first) {
  PipeEnd out;
  for (size_t i = static_cast<size_t>(&first - script.commands.data()); i < script.commands.size(); ++i) {
    const ShellCommand& one = script.commands[i];
    if (one.depth > first.depth || one.in_substitution) continue;
    if (out.last != nullptr) {
      out.next = one.depth == first.depth ? &one : nullptr;
      break;
    }
    if (one.ends_with != "|") out.last = &one;
  }
  return out;
}

// "for try in 1 2 3; do torchrun … | tee log && break; done": the first try is the last.
bool leaves_loop(const PipeEnd& end) {
  return end.last->ends_with == "&&" && end.next != nullptr && !end.next->words.empty() && end.next->words[0].text == "break";
}

bool asks_for_status(const ShellCommand* command) {
  if (command == nullptr) return false;
  const auto has_it = [](const ShellWord& word) { return word.text.find("$?") != std::string::npos; };
  return std::any_of(command->words.begin(), command->words.end(), has_it) ||
         std::any_of(command->assignments.begin(), command->assignments.end(),
                     [&](const ShellAssignment& one) { return has_it(one.value); });
}

// It says a wrong number, and nothing depends on it.
bool prints(const ShellCommand& command) {
  const std::string name = command.words.empty() ? "" : command.words[0].text;
  return name == "echo" || name == "printf";
}

// A controller that starts a failed pod again, and takes one that ended with 0 for done.
bool restarts_pods(const Document& d) {
  bool restarts = false;
  for (const Value& root : d.roots) {
    const std::string kind = text(root, "kind");
    const bool is_job = kind == "Job" && text(root, "apiVersion") == "batch/v1" && real(root, "spec.backoffLimit").value_or(6) > 0;
    bool is_replica = false;
    for (const char* role : {"Master", "Worker"}) {
      const std::string policy = text(root, fmt::format("spec.pytorchReplicaSpecs.{}.restartPolicy", role));
      is_replica = is_replica || policy == "OnFailure" || policy == "ExitCode" || policy == "Always";
    }
    const bool is_set = kind == "JobSet" && real(root, "spec.failurePolicy.maxRestarts").value_or(0) > 0;
    restarts = restarts || is_job || is_replica || is_set;
  }
  return restarts;
}

}  // namespace

FailureRules failure_rules(const Document& d, const ShellScript& script) {
  return {keeps_status(d, script), stops_at_failures(script)};
}

void report_pipe(const JobScript& in, const ShellCommand& command, TextSpan span, std::string_view by) {
  if (command.ends_with != "|" || in.failures.keeps_status) return;
  const bool is_last = end_of_pipe(in.part.script, command).next == nullptr;
  in.report.add("SL010", in.d, span, fmt::format("the pipe hides {}'s exit code: a failed job counts as done", by),
                {"",
                 "",
                 {},
                 in.is_batch ? std::optional<Severity>() : Severity::kNote,
                 in.failures.stops || is_last ? "" : "the script ended with this command's exit code (set -e)"});
}

void check_pipes(const LintSetup&, const Document& d, Findings& report) {
  if (d.is(file_kind::kSbatch)) return;
  const bool restarts = d.is(file_kind::kKubernetes) && restarts_pods(d);
  for (const ScriptPart& part : d.parts) {
    const FailureRules failures = failure_rules(d, part.script);
    if (failures.keeps_status) continue;
    for (const LaunchLine& line : part.lines) {
      const ShellCommand& first = part.script.commands[line.command];
      if (first.ends_with != "|" || first.in_substitution || !starts_training_itself(line)) continue;
      const PipeEnd end = end_of_pipe(part.script, first);
      if (end.last == nullptr || end.last->words.empty()) continue;
      const std::string& by = line.stages[0].name;
      const std::string& filter = end.last->words[0].text;
      if (first.in_control || end.last->ends_with == "||" || asks_for_status(end.next) || leaves_loop(end)) {
        const bool is_only_printed = !first.in_control && end.last->ends_with != "||" && !leaves_loop(end) && prints(*end.next);
        report.add("SH003", d, line.stages[0].span,
                   fmt::format("the status that is asked for here is that of {}, not of {}", filter, by),
                   {"", "", {}, is_only_printed ? std::optional<Severity>(Severity::kWarning) : std::nullopt});
      } else if (restarts && (end.next == nullptr || failures.stops)) {
        report.add("K8S010", d, line.stages[0].span,
                   fmt::format("the pipe hides {}'s exit code: a failed pod counts as done and is not started again", by));
      }
    }
  }
}

}  // namespace distsetup::lint
