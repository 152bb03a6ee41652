// `distsetup generate`: what a trained model writes after a prompt.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include "base/clock.h"
#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_text.h"
#include "base/subprocess.h"
#include "cli/commands/answer_text.h"
#include "cli/commands/commands.h"
#include "cli/launch/scratch_folder.h"
#include "cli/launch/trainer_program.h"
#include "cli/line/output.h"
#include "cli/settings/run_source.h"
#include "cli/settings/trained_run.h"
#include "plan/plan_json.h"
#include "text/template/chat_values.h"
#include "text/template/read_chat_template.h"
#include "text/tokenizer/read_tokenizer.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

// The model, and how its text becomes tokens. No tokenizer: a token is a byte.
struct Speaker {
  TrainedModel model;
  std::string folder;  // of the tokenizer, and of the chat template
  std::optional<Tokenizer> tokenizer;
  bool is_of_bytes = false;  // the model was trained on bytes of text
};

struct Numbers {
  int64_t max_new_tokens = 0, top_k = 0, seed = 0;
  double temperature = 0, top_p = 1;
};

Result<Speaker> find_speaker(const Arguments& arguments, const Session& session) {
  Result<TrainedModel> model = find_trained_model(arguments, session, arguments.positionals.front());
  if (!model.ok()) return model.diagnostics;
  Speaker speaker;
  speaker.model = std::move(*model);
  speaker.folder = arguments.text("tokenizer", speaker.model.folder);
  speaker.is_of_bytes =
      !arguments.has("tokenizer") && !speaker.model.checkpoint.empty() && speaker.model.plan.data.tokenizer == kByteTokens;
  if (speaker.is_of_bytes || arguments.has("prompt-ids")) return speaker;  // ids in, ids out
  if (speaker.folder.empty())
    return error(
        code::kMissingArgument, command_line(),
        fmt::format("'{}' was trained from prepared data, and nothing says with which tokenizer", arguments.positionals.front()),
        "--tokenizer DIR, the folder that `distsetup data prepare` was given");
  Result<Tokenizer> tokenizer = read_tokenizer(speaker.folder);
  if (!tokenizer.ok()) return tokenizer.diagnostics;
  speaker.tokenizer = std::move(*tokenizer);
  return speaker;
}

Result<Numbers> read_numbers(const Arguments& arguments) {
  constexpr int64_t kMost = 1'000'000;
  const Result<int64_t> tokens = int_flag(arguments, "max-new-tokens", 128, 1, kMost),
                        top_k = int_flag(arguments, "top-k", 0, 0, kMost), seed = int_flag(arguments, "seed", 0, 0, INT64_MAX);
  const Result<double> temperature = double_flag(arguments, "temperature", 0), top_p = double_flag(arguments, "top-p", 1);
  Diagnostics said;
  for (const Diagnostics& one : {tokens.diagnostics, top_k.diagnostics, seed.diagnostics, temperature.diagnostics, top_p.diagnostics})
    append(said, one);
  if (temperature.ok() && *temperature > 100)
    said.push_back(error(code::kOutOfRange, command_line(), fmt::format("'--temperature' is {}, expected 0 to 100", *temperature)));
  if (top_p.ok() && *top_p > 1)
    said.push_back(error(code::kOutOfRange, command_line(), fmt::format("'--top-p' is {}, expected 0 to 1", *top_p)));
  if (has_error(said)) return said;
  return Numbers{*tokens, *top_k, *seed, *temperature, *top_p};
}

// "1 15043, 29871": whole numbers, with blanks or commas between.
Result<std::vector<int64_t>> listed_ids(const std::string& text) {
  std::vector<int64_t> ids;
  for (size_t at = text.find_first_not_of(" ,\t\n"); at != std::string::npos; at = text.find_first_not_of(" ,\t\n", at)) {
    int64_t id = 0;
    const auto [end, failed] = std::from_chars(text.data() + at, text.data() + text.size(), id);
    at = static_cast<size_t>(end - text.data());
    if (failed != std::errc() || (at < text.size() && std::string_view(" ,\t\n").find(text[at]) == std::string_view::npos))
      return error(code::kWrongType, command_line(), fmt::format("--prompt-ids '{}', expected token ids such as '1 15043'", text));
    ids.push_back(id);
  }
  return ids;
}

Result<std::string> read_prompt(const Arguments& arguments) {
  if (arguments.has("prompt-ids")) return std::string();
  if (arguments.has("prompt") && arguments.has("prompt-file"))
    return error(code::kConflict, command_line(), "--prompt and --prompt-file are given", "give one of them");
  if (arguments.has("prompt")) return arguments.text("prompt");
  const std::string path = arguments.text("prompt-file", "-");
  if (path == "-" && !arguments.has("prompt-file") && ::isatty(0) != 0)
    return error(code::kMissingArgument, command_line(), "no prompt", "--prompt 'Once upon a time', or a text on standard input");
  return read_file(path == "-" ? "/dev/stdin" : path);
}

// The prompt as the user's turn of a conversation that the model goes on with.
Result<std::string> as_conversation(const Arguments& arguments, const Speaker& speaker, const std::string& prompt) {
  const Result<ModelTemplate> model = read_chat_template(speaker.folder);
  if (!model.ok()) return model.diagnostics;
  ChatRequest request;
  request.messages = nlohmann::ordered_json::array();
  if (arguments.has("system")) request.messages.push_back({{"role", "system"}, {"content", arguments.text("system")}});
  request.messages.push_back({{"role", "user"}, {"content", prompt}});
  request.more = model->special_tokens;
  request.adds_generation_prompt = true;
  const Result<Rendered> rendered = render(model->chat, chat_values(request), local_time());
  if (!rendered.ok()) return rendered.diagnostics;
  return rendered->text;
}

Result<std::vector<int64_t>> prompt_ids(const Arguments& arguments, const Speaker& speaker, std::string prompt) {
  if (arguments.has("prompt-ids")) return listed_ids(arguments.text("prompt-ids"));
  const bool is_chat = arguments.has("chat") || arguments.has("system");
  if (!speaker.tokenizer) {
    if (is_chat)
      return error(code::kConflict, command_line(), "this model was trained on bytes of text, there is no chat template",
                   "leave out --chat");
    std::vector<int64_t> ids;
    for (const char c : prompt) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  if (is_chat) {
    const Result<std::string> text = as_conversation(arguments, speaker, prompt);
    if (!text.ok()) return text.diagnostics;
    prompt = *text;
  }
  EncodeOptions options;
  options.add_special_tokens = !is_chat;  // the template has them
  const Result<Encoding> encoding = encode(*speaker.tokenizer, prompt, options);
  if (!encoding.ok()) return encoding.diagnostics;
  return std::vector<int64_t>(encoding->ids.begin(), encoding->ids.end());
}

// Tokens that end an answer: the tokenizer's, where it is read, and what the model's folder says.
std::vector<int64_t> stop_ids(const Speaker& speaker) {
  std::set<int64_t> ids;
  if (speaker.is_of_bytes || speaker.folder.empty()) return {};
  if (speaker.tokenizer && speaker.tokenizer->eos) ids.insert(*speaker.tokenizer->eos);
  for (const char* name : {"generation_config.json", "config.json"}) {
    const Result<std::string> text = read_file((fs::path(speaker.folder) / name).string());
    if (!text.ok()) continue;  // not every folder has one
    const Json json = json_from_text(*text);
    if (!json.is_object() || !json.contains("eos_token_id")) continue;
    const Json& eos = json["eos_token_id"];
    for (const Json& id : eos.is_array() ? eos : Json::array({eos}))
      if (id.is_number_integer()) ids.insert(id.get<int64_t>());
  }
  return {ids.begin(), ids.end()};
}

// What the model's folder asks of its answers and we do not do; "": nothing.
std::string not_done(const Speaker& speaker) {
  const Result<std::string> text = read_file((fs::path(speaker.folder) / "generation_config.json").string());
  const Json json = text.ok() ? json_from_text(*text) : Json();
  if (!json.is_object() || !json.contains("repetition_penalty")) return "";
  const Json& penalty = json["repetition_penalty"];
  return penalty.is_number() && penalty != 1
             ? fmt::format("generation_config.json asks for a repetition_penalty of {}, which is not applied\n", penalty.dump())
             : "";
}

// The plan and the request as files, for as long as the trainer reads them.
Diagnostics write_request(const std::string& folder, Plan plan, const Json& request) {
  if (folder.empty()) return {error(code::kUnwritableFile, {}, "no folder for the request can be made", "set TMPDIR to one that can")};
  move_inputs(plan, fs::current_path().string(), folder);
  Diagnostics said = write_file_atomic(folder + "/plan.json", dump_json(to_json(plan)), Overwrite::kForce).diagnostics;
  append(said, write_file_atomic(folder + "/request.json", request.dump(), Overwrite::kForce).diagnostics);
  return said;
}

// What is asked, of whom, and who answers.
struct GenerateTask {
  Speaker speaker;
  Numbers numbers;
  std::vector<int64_t> ids;
  std::string trainer;
};

Result<GenerateTask> read_task(const Arguments& arguments) {
  Diagnostics said;
  if (arguments.has("prompt-ids"))
    append(said, refuse_idle(arguments, {"prompt", "prompt-file", "chat", "system", "tokenizer"}, "without --prompt-ids"));
  const Result<Session> session = open_session(arguments);
  const Result<Numbers> numbers = read_numbers(arguments);
  append(said, session.diagnostics);
  append(said, numbers.diagnostics);
  if (has_error(said)) return said;
  GenerateTask task;
  task.numbers = *numbers;
  Result<Speaker> speaker = find_speaker(arguments, *session);
  if (!speaker.ok()) return speaker.diagnostics;
  task.speaker = std::move(*speaker);
  const Result<std::string> prompt = read_prompt(arguments);
  if (!prompt.ok()) return prompt.diagnostics;
  Result<std::vector<int64_t>> ids = prompt_ids(arguments, task.speaker, *prompt);
  if (!ids.ok()) return ids.diagnostics;
  task.ids = std::move(*ids);
  if (task.ids.empty()) return error(code::kMissingArgument, command_line(), "the prompt is empty");
  task.trainer = trainer_program(arguments.text("trainer-program"));
  if (!is_program(task.trainer))
    return error(code::kEnvironment, {}, fmt::format("'{}' is not there or not executable", task.trainer),
                 "build the trainer: ./scripts/build --runtime");
  return task;
}

Json request_json(const GenerateTask& task) {
  const Numbers& n = task.numbers;
  const Speaker& speaker = task.speaker;
  Json request = {{"ids", task.ids},
                  {"stop", stop_ids(speaker)},
                  {"max_new_tokens", n.max_new_tokens},
                  {"temperature", n.temperature},
                  {"top_k", n.top_k},
                  {"top_p", n.top_p},
                  {"seed", n.seed}};
  if (speaker.tokenizer) request["vocabulary"] = speaker.tokenizer->vocabulary_size();
  if (!speaker.model.checkpoint.empty()) request["checkpoint"] = fs::absolute(speaker.model.checkpoint).string();
  return request;
}

// The trainer's message as one of ours: its last line may be the help.
Diagnostic failure_of(const Said& done) {
  constexpr std::string_view kHelp = "\n  help: ";
  const std::string said = done.text.substr(0, done.text.find_last_not_of('\n') + 1);
  const size_t help = said.find(kHelp);
  return error(code::kEnvironment, {}, said.empty() ? fmt::format("distsetup-train ended with {}", done.code) : said.substr(0, help),
               help == std::string::npos ? "" : said.substr(help + kHelp.size()));
}

int run_generate_command(const Arguments& arguments, const Terminal& terminal) {
  const Result<GenerateTask> task = read_task(arguments);
  if (!task.ok()) return fail(arguments, terminal, task.diagnostics);
  const Speaker& speaker = task->speaker;
  ScratchFolder folder("generate");
  if (const Diagnostics failed = write_request(folder.path(), speaker.model.plan, request_json(*task)); has_error(failed))
    return fail(arguments, terminal, failed);

  if (const std::string what = not_done(speaker); !what.empty()) mention(terminal, what);
  const bool is_json = arguments.has("json"), has_ids = arguments.has("prompt-ids");
  AnswerText text(speaker.tokenizer ? &*speaker.tokenizer : nullptr);
  Json end;           // the trainer's last line
  Diagnostics wrong;  // of the text
  std::vector<int64_t> made;
  const auto take = [&](std::string_view line) {
    const Json json = json_from_text(line);
    if (!json.is_object()) return true;
    if (made.empty()) folder.remove();  // the trainer has read it
    if (!json.contains("id")) return end = json, true;
    made.push_back(json["id"].get<int64_t>());
    if (has_ids) return is_json || print_result(terminal, fmt::format("{}{}", made.size() == 1 ? "" : " ", made.back())) == kDone;
    const Result<std::string> fresh = text.add(made.back());
    if (!fresh.ok()) return wrong = fresh.diagnostics, false;
    return is_json || print_result(terminal, *fresh) == kDone;
  };
  const Said done =
      follow_program({task->trainer, "--plan", folder.path() + "/plan.json", "--generate", folder.path() + "/request.json"}, take);
  if (has_error(wrong)) return fail(arguments, terminal, wrong);
  if (done.code != 0) return fail(arguments, terminal, {failure_of(done)});
  const std::string rest = text.rest();
  if (is_json)
    return print_result(terminal, dump_json({{"schema_version", 1},
                                             {"ids", made},
                                             {"text", text.text()},
                                             {"prompt_ids", task->ids},
                                             {"stopped_by", end.value("stopped_by", "")}}));
  const int code = print_result(terminal, rest + "\n");
  const double seconds = end.value("answer_s", 0.0);
  mention(terminal, fmt::format("{} tokens of prompt, {} of answer{}\n", task->ids.size(), made.size(),
                                seconds > 0 ? fmt::format(", {:.1f} tokens/s", static_cast<double>(made.size()) / seconds) : ""));
  return code;
}

}  // namespace

Command generate_command() {
  Command command;
  command.summary = "what a trained model writes after a prompt";
  command.positional = "RUN|CHECKPOINT|MODEL-FOLDER";
  command.min_positionals = 1;
  command.max_positionals = 1;
  command.examples = {"distsetup generate run --prompt Once --temperature 0.8",
                      "distsetup generate model --chat --prompt-file question.txt --max-new-tokens 200",
                      "distsetup generate run/checkpoints/checkpoint_1000 --tokenizer model --prompt Hello"};
  command.notes =
      "Of a run the newest checkpoint answers; of a folder with config.json and safetensors, or the id of a downloaded model, its "
      "weights. Without --temperature the likeliest token is taken each time. The text comes as it is made, the answer ends with the "
      "model's end token. It runs on the cores of this machine.";
  command.flags = {
      {"prompt", {}, FlagKind::kValue, "TEXT", "what the model goes on from; without it standard input", 'p'},
      {"prompt-file", {}, FlagKind::kValue, "FILE", "a file with the prompt", 0},
      {"prompt-ids",
       {},
       FlagKind::kValue,
       "IDS",
       "the prompt as token ids; the answer is ids, too, and no tokenizer is read: it ends with the eos_token_id of config.json",
       0},
      {"chat", {}, FlagKind::kSwitch, "", "the prompt is the user's turn, in the model's chat template"},
      {"system", {}, FlagKind::kValue, "TEXT", "with the chat template: a system message before it", 0},
      {"max-new-tokens", {"max-tokens"}, FlagKind::kValue, "N", "most tokens of the answer; 128", 0},
      {"temperature", {}, FlagKind::kValue, "T", "how freely tokens are chosen; 0, the default: always the likeliest", 0},
      {"top-k", {}, FlagKind::kValue, "N", "only of the N likeliest; 0: of all", 0},
      {"top-p", {}, FlagKind::kValue, "P", "only of the likeliest with together probability P; 1: of all", 0},
      {"seed", {}, FlagKind::kValue, "N", "of the choices; 0", 0},
      {"tokenizer", {}, FlagKind::kValue, "DIR", "the tokenizer's folder; without it the model's own", 0},
      {"plan", {}, FlagKind::kValue, "PLAN.JSON", "the plan of the run; without it the nearest above the checkpoint", 0},
      {"trainer-program", {"trainer"}, FlagKind::kValue, "PATH", "distsetup-train (the one beside this program)", 0},
      presets_flag()};
  command.run = run_generate_command;
  return command;
}

}  // namespace distsetup
