// `distsetup serve`: flags and help are here, the server is not. The sibling program distsetup-service takes this process over with
// the words made here (src/service).
#include <fmt/format.h>
#include <unistd.h>

#include "base/diagnostic_codes.h"
#include "base/own_program.h"
#include "cli/commands/commands.h"
#include "cli/launch/trainer_program.h"
#include "cli/line/output.h"
#include "cli/settings/line_layers.h"

namespace distsetup {
namespace {

constexpr int kLastPort = 65535;
const std::vector<std::string> kServeValues = {"config", "mode", "host",     "port",     "log-level", "data",    "auth-token-file",
                                               "device", "gpu",  "launcher", "max-jobs", "grace",     "base-url"};
const std::vector<std::string> kServeLists = {"models", "files"};
const std::vector<std::string> kServeSwitches = {"random-parameters", "leave-jobs"};

Diagnostics check_serve_values(const Arguments& arguments) {
  Diagnostics said = int_flag(arguments, "port", 0, 0, kLastPort).diagnostics;
  append(said, int_flag(arguments, "max-jobs", 1, 1, 10000).diagnostics);
  append(said, double_flag(arguments, "grace", 0).diagnostics);
  for (const auto& [name, values] : {std::pair<const char*, std::vector<std::string>>{"mode", {"inline", "remote", "front"}},
                                     {"device", {"cuda", "cpu"}},
                                     {"launcher", {"local", "nodes", "ssh", "slurm"}},
                                     {"log-level", {"debug", "info", "warning", "warn", "error", "critical"}}}) {
    if (arguments.has(name)) append(said, choice_flag(arguments, name, "", values).diagnostics);
  }
  if (arguments.has("json"))
    said.push_back(error(code::kConflict, command_line(), "a server has no JSON form; its log is JSON lines on standard error",
                         "leave out --json"));
  return said;
}

std::vector<std::string> serve_words(const std::string& program, const Arguments& arguments) {
  std::vector<std::string> words = {program};
  for (const std::string& name : kServeValues)
    if (arguments.has(name)) words.push_back(fmt::format("--{}={}", name, arguments.text(name)));
  for (const std::string& name : kServeLists) {
    if (!arguments.has(name)) continue;
    for (const std::string& one : lines_of(arguments.text(name))) words.push_back(fmt::format("--{}={}", name, one));
  }
  for (const std::string& name : kServeSwitches)
    if (arguments.has(name)) words.push_back("--" + name);
  return words;
}

int run_serve_command(const Arguments& arguments, const Terminal& terminal) {
  if (const Diagnostics wrong = check_serve_values(arguments); has_error(wrong)) return fail(arguments, terminal, wrong);
  const std::string program = (own_program().parent_path() / "distsetup-service").string();
  if (!is_program(program)) {
    return fail(
        arguments, terminal,
        {error(code::kEnvironment, {}, fmt::format("'{}' is not there or not executable", program), "build it: ./scripts/build")});
  }
  const std::vector<std::string> words = serve_words(program, arguments);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));  // execv takes them so, and changes none
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  return fail(arguments, terminal, {error(code::kEnvironment, {}, fmt::format("'{}' does not start", program))});
}

}  // namespace

Command serve_command() {
  Command command;
  command.summary = "a server that takes jobs of post-training, plans them and trains them";
  command.examples = {"distsetup serve --config run_fsdp.yaml --models /models",
                      "distsetup serve --mode inline --device cpu --models models --data jobs",
                      "distsetup serve --host 0.0.0.0 --auth-token-file token --models /models"};
  command.notes =
      "The routes are those of Llama Stack's post-training; /openapi.json lists them, and / is a page. Settings of the file count "
      "where no flag "
      "says otherwise. Until it is told another address it answers on the loopback address alone. When it is stopped by a signal its "
      "jobs stop at their next step, and go on when it is started again with the same --data.";
  command.flags = {
      {"config", {}, FlagKind::kValue, "PATH", "run_fsdp.yaml, or a provider's config alone; a section 'serve' has what follows", 0},
      {"mode",
       {},
       FlagKind::kValue,
       "MODE",
       "remote: ranks on all GPUs (the default); inline: one device; front: passes jobs on",
       0,
       {"inline", "remote", "front"}},
      {"host", {}, FlagKind::kValue, "HOST", "where it answers (localhost); another address needs --auth-token-file", 0},
      {"port", {}, FlagKind::kValue, "PORT", "its port; 0: any that is free (remote 8322, inline and front 8321)", 0},
      {"data", {}, FlagKind::kValue, "DIR", "jobs, data sets and the store (below ~/.local/state)", 0},
      {"models", {}, FlagKind::kList, "DIR", "a folder with folders of models; may be repeated", 0},
      {"files", {}, FlagKind::kList, "DIR", "a folder from which data sets may be registered; may be repeated", 0},
      {"auth-token-file", {}, FlagKind::kValue, "PATH", "tokens that are asked for, one a line", 0},
      {"device", {}, FlagKind::kValue, "WHICH", "cuda or cpu (cuda)", 0, {"cuda", "cpu"}},
      {"gpu", {}, FlagKind::kValue, "NAME", "the GPU that is planned for (what nvidia-smi finds)", 0},
      {"launcher",
       {},
       FlagKind::kValue,
       "WHICH",
       "who starts the ranks: local (the default), nodes, ssh or slurm",
       0,
       {"local", "nodes", "ssh", "slurm"}},
      {"max-jobs", {"max-concurrent-jobs"}, FlagKind::kValue, "N", "jobs that run at once (1)", 0},
      {"grace", {}, FlagKind::kValue, "SECONDS", "between asking a job to stop and killing it (30)", 0},
      {"random-parameters", {}, FlagKind::kSwitch, "", "models without weights are trained from random parameters, not refused", 0},
      {"leave-jobs", {}, FlagKind::kSwitch, "", "jobs go on when the service is stopped by a signal", 0},
      {"base-url", {}, FlagKind::kValue, "URL", "with --mode front: where jobs go (http://localhost:8322)", 0},
      {"log-level", {}, FlagKind::kValue, "LEVEL", "debug, info, warning or error (info)", 0, {"debug", "info", "warning", "error"}}};
  command.run = run_serve_command;
  return command;
}

}  // namespace distsetup
