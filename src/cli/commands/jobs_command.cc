// `distsetup jobs list|show|logs|cancel|submit|plan`: flags and help are here, HTTP is not. The sibling program distsetup-service,
// which has it, takes this process over with the words made here (src/service/client).
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/diagnostic_codes.h"
#include "base/own_program.h"
#include "cli/commands/commands.h"
#include "cli/launch/trainer_program.h"
#include "cli/line/output.h"

namespace distsetup {
namespace {

constexpr char kUsualServer[] = "http://localhost:8322";

// A flag, else a variable, else what is usual.
std::string flag_or_variable(const Arguments& arguments, const char* flag, const char* variable, const char* usual) {
  const char* set = std::getenv(variable);
  return arguments.text(flag, set != nullptr && *set != 0 ? set : usual);
}

Diagnostics check_values(const Arguments& arguments) {
  Diagnostics said;
  for (const char* name : {"rank", "tail"}) append(said, int_flag(arguments, name, 0, 0, INT32_MAX).diagnostics);
  if (arguments.has("state"))
    append(
        said,
        choice_flag(arguments, "state", "", {"queued", "scheduled", "in_progress", "completed", "failed", "cancelled"}).diagnostics);
  if (arguments.has("method")) append(said, choice_flag(arguments, "method", "", {"dpo", "sft"}).diagnostics);
  return said;
}

std::vector<std::string> client_words(const std::string& program, const std::string& verb, const Arguments& arguments) {
  std::vector<std::string> words = {program, "jobs", verb};
  words.push_back("--server=" + flag_or_variable(arguments, "server", "DISTSETUP_SERVER", kUsualServer));
  const std::string token = flag_or_variable(arguments, "token-file", "DISTSETUP_TOKEN_FILE", "");
  if (!token.empty()) words.push_back("--token-file=" + token);
  for (const char* name : {"json", "follow", "wait"})
    if (arguments.has(name)) words.push_back(fmt::format("--{}", name));
  for (const char* name : {"state", "rank", "tail", "method", "job-id", "rows"})
    if (arguments.has(name)) words.push_back(fmt::format("--{}={}", name, arguments.text(name)));
  words.push_back("--");
  words.insert(words.end(), arguments.positionals.begin(), arguments.positionals.end());
  return words;
}

int run_jobs_command(const Arguments& arguments, const Terminal& terminal) {
  if (const Diagnostics wrong = check_values(arguments); has_error(wrong)) return fail(arguments, terminal, wrong);
  const std::string program = (own_program().parent_path() / "distsetup-service").string();
  if (!is_program(program))
    return fail(arguments, terminal,
                {error(code::kEnvironment, {}, fmt::format("'{}' is not there or not executable", program),
                       "install libcpp-httplib-dev and libsqlite3-dev, then ./scripts/build")});
  const std::string verb = arguments.command->name.substr(arguments.command->name.find(' ') + 1);
  const std::vector<std::string> words = client_words(program, verb, arguments);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));  // execv takes them so, and changes none
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  return fail(arguments, terminal, {error(code::kEnvironment, {}, fmt::format("'{}' does not start", program))});
}

Command jobs_command(std::string summary, std::string positional, int num_positionals) {
  Command command;
  command.summary = std::move(summary);
  command.positional = std::move(positional);
  command.min_positionals = command.max_positionals = num_positionals;
  command.flags = {{"server", {}, FlagKind::kValue, "URL", "the service; DISTSETUP_SERVER, else http://localhost:8322", 0},
                   {"token-file", {}, FlagKind::kValue, "PATH", "a file with the service's token; DISTSETUP_TOKEN_FILE", 0}};
  command.run = run_jobs_command;
  return command;
}

void add_flag(Command& command, Flag flag) { command.flags.insert(command.flags.end() - 2, std::move(flag)); }

constexpr char kServiceNotes[] = "The service is `distsetup serve`. Exit code 5: it does not answer, or does not take the token.";

}  // namespace

Command jobs_list_command() {
  Command command = jobs_command("the jobs of a service", "", 0);
  add_flag(command, {"state",
                     {},
                     FlagKind::kValue,
                     "STATE",
                     "only those in this state",
                     0,
                     {"queued", "scheduled", "in_progress", "completed", "failed", "cancelled"}});
  command.examples = {"distsetup jobs list", "distsetup jobs list --state failed --json"};
  command.notes = kServiceNotes;
  return command;
}

Command jobs_show_command() {
  Command command = jobs_command("one job of a service: state, plan, loss, predicted and measured, checkpoints", "JOB", 1);
  command.examples = {"distsetup jobs show dpo-large", "distsetup jobs show dpo-large --json"};
  command.notes = kServiceNotes;
  return command;
}

Command jobs_logs_command() {
  Command command = jobs_command("what a job of a service wrote", "JOB", 1);
  add_flag(command, {"follow", {}, FlagKind::kSwitch, "", "go on until the job has ended", 'f'});
  add_flag(command, {"rank", {}, FlagKind::kValue, "N", "only what this rank wrote", 0});
  add_flag(command, {"tail", {}, FlagKind::kValue, "N", "begin N lines before the end; 1000", 0});
  command.examples = {"distsetup jobs logs dpo-large", "distsetup jobs logs dpo-large -f --rank 0"};
  command.notes = "With -f the exit code is the job's end: 0 completed, 6 failed, 130 cancelled. With --json a line is an object.";
  return command;
}

Command jobs_cancel_command() {
  Command command = jobs_command("cancel jobs of a service; their checkpoints stay", "JOB...", 1);
  command.max_positionals = 1000;
  add_flag(command, {"wait", {}, FlagKind::kSwitch, "", "until no process of them is left", 0});
  command.examples = {"distsetup jobs cancel dpo-large --wait"};
  command.notes = "The ranks are asked to stop, and ended after 30 seconds. A job that has ended cannot be cancelled: exit code 1.";
  return command;
}

Command jobs_submit_command() {
  Command command = jobs_command("send a request to train to a service, which plans before it starts", "REQUEST.JSON", 1);
  add_flag(command, {"rows", {}, FlagKind::kValue, "PATH", "a .jsonl or .json of rows, uploaded first as the request's data set", 0});
  add_flag(command, {"job-id", {}, FlagKind::kValue, "NAME", "in place of the request's job_uuid", 0});
  add_flag(command, {"method", {}, FlagKind::kValue, "METHOD", "dpo or sft; without it as algorithm_config says", 0, {"dpo", "sft"}});
  add_flag(command, {"follow", {}, FlagKind::kSwitch, "", "then show its log until it has ended", 'f'});
  command.examples = {"distsetup jobs submit request.json", "distsetup jobs submit request.json --rows pairs.jsonl -f"};
  command.notes =
      "REQUEST.JSON is the body of preference-optimize or supervised-fine-tune; - reads standard input. Exit code 4: it does not fit, "
      "and "
      "the plan says what would; 3: the request is wrong.";
  return command;
}

Command jobs_plan_command() {
  Command command = jobs_command("what a service would make of a request, without starting it", "REQUEST.JSON", 1);
  add_flag(command, {"method", {}, FlagKind::kValue, "METHOD", "dpo or sft; without it as algorithm_config says", 0, {"dpo", "sft"}});
  command.examples = {"distsetup jobs plan request.json"};
  command.notes = "Exit code 4: it does not fit.";
  return command;
}

}  // namespace distsetup
