// `distsetup generate`: what a trained model writes after a prompt.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/commands/answer_text.h"
#include "cli/commands/commands.h"
#include "cli/launch/subprocess.h"
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
  if (arguments.has("prompt-ids")) return speaker;  // ids in, ids out
  const bool is_of_bytes =
      !arguments.has("tokenizer") && !speaker.model.checkpoint.empty() && speaker.model.plan.data.tokenizer == kByteTokens;
  if (is_of_bytes) return speaker;
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

Result<double> number_flag(const Arguments& arguments, const char* flag, double usual, double least, double most) {
  if (!arguments.has(flag)) return usual;
  const std::string text = arguments.text(flag);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (!text.empty() && *end == '\0' && value >= least && value <= most) return value;
  return error(code::kWrongType, command_line(), fmt::format("--{} '{}', expected a number from {} to {}", flag, text, least, most));
}

Result<Numbers> read_numbers(const Arguments& arguments) {
  const Result<double> tokens = number_flag(arguments, "max-new-tokens", 128, 1, 1e6),
                       top_k = number_flag(arguments, "top-k", 0, 0, 1e6);
  const Result<double> seed = number_flag(arguments, "seed", 0, 0, 9e15), top_p = number_flag(arguments, "top-p", 1, 0, 1);
  const Result<double> temperature = number_flag(arguments, "temperature", 0, 0, 100);
  Diagnostics said;
  for (const Result<double>* one : {&tokens, &top_k, &seed, &top_p, &temperature}) append(said, one->diagnostics);
  if (has_error(said)) return said;
  return Numbers{static_cast<int64_t>(*tokens), static_cast<int64_t>(*top_k), static_cast<int64_t>(*seed), *temperature, *top_p};
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

std::tm now_here() {
  const std::time_t seconds = std::time(nullptr);
  std::tm now = {};
  localtime_r(&seconds, &now);
  return now;
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
  const Result<Rendered> rendered = render(model->chat, chat_values(request), now_here());
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

// Tokens that end an answer: the tokenizer's, and what the model's folder says.
std::vector<int64_t> stop_ids(const Speaker& speaker) {
  std::set<int64_t> ids;
  if (!speaker.tokenizer) return {};
  if (speaker.tokenizer->eos) ids.insert(*speaker.tokenizer->eos);
  for (const char* name : {"generation_config.json", "config.json"}) {
    const Result<std::string> text = read_file((fs::path(speaker.folder) / name).string());
    if (!text.ok()) continue;  // not every folder has one
    const Json json = Json::parse(*text, nullptr, false);
    if (!json.is_object() || !json.contains("eos_token_id")) continue;
    const Json& eos = json["eos_token_id"];
    for (const Json& id : eos.is_array() ? eos : Json::array({eos}))
      if (id.is_number_integer()) ids.insert(id.get<int64_t>());
  }
  return {ids.begin(), ids.end()};
}

// The plan and the request as files, for as long as the trainer reads them.
class RequestFolder {
 public:
  RequestFolder() {
    path_ = (fs::temp_directory_path() / "distsetup-generate-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  RequestFolder(const RequestFolder&) = delete;
  RequestFolder& operator=(const RequestFolder&) = delete;
  ~RequestFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Diagnostics write_request(const std::string& folder, Plan plan, const Json& request) {
  if (folder.empty()) return {error(code::kUnwritableFile, {}, "no folder for the request can be made", "set TMPDIR to one that can")};
  move_inputs(plan, fs::current_path().string(), folder);
  Diagnostics said = write_file_atomic(folder + "/plan.json", dump_json(to_json(plan)), Overwrite::kForce).diagnostics;
  append(said, write_file_atomic(folder + "/request.json", request.dump(), Overwrite::kForce).diagnostics);
  return said;
}

int run_generate_command(const Arguments& arguments, const Terminal& terminal) {
  const Result<Session> session = open_session(arguments);
  const Result<Numbers> numbers = read_numbers(arguments);
  Diagnostics said = session.diagnostics;
  append(said, numbers.diagnostics);
  if (has_error(said)) return fail(arguments, terminal, said);
  const Result<Speaker> speaker = find_speaker(arguments, *session);
  if (!speaker.ok()) return fail(arguments, terminal, speaker.diagnostics);
  const Result<std::string> prompt = read_prompt(arguments);
  if (!prompt.ok()) return fail(arguments, terminal, prompt.diagnostics);
  const Result<std::vector<int64_t>> ids = prompt_ids(arguments, *speaker, *prompt);
  if (!ids.ok()) return fail(arguments, terminal, ids.diagnostics);
  if (ids->empty()) return fail(arguments, terminal, {error(code::kMissingArgument, command_line(), "the prompt is empty")});
  const std::string trainer = trainer_program(arguments.text("trainer-program"));
  if (!is_program(trainer))
    return fail(arguments, terminal,
                {error(code::kEnvironment, {}, fmt::format("'{}' is not there or not executable", trainer),
                       "build the trainer: ./scripts/build --runtime")});

  Json request = {{"ids", *ids},
                  {"stop", stop_ids(*speaker)},
                  {"max_new_tokens", numbers->max_new_tokens},
                  {"temperature", numbers->temperature},
                  {"top_k", numbers->top_k},
                  {"top_p", numbers->top_p},
                  {"seed", numbers->seed}};
  if (speaker->tokenizer) request["vocabulary"] = speaker->tokenizer->vocabulary_size();
  if (!speaker->model.checkpoint.empty()) request["checkpoint"] = fs::absolute(speaker->model.checkpoint).string();
  const RequestFolder folder;
  if (const Diagnostics idle =
          arguments.has("prompt-ids")
              ? refuse_idle(arguments, {"prompt", "prompt-file", "chat", "system", "tokenizer"}, "with --prompt-ids")
              : Diagnostics{};
      has_error(idle))
    return fail(arguments, terminal, idle);
  if (const Diagnostics failed = write_request(folder.path(), speaker->model.plan, request); has_error(failed))
    return fail(arguments, terminal, failed);

  const bool is_json = arguments.has("json");
  AnswerText text(speaker->tokenizer ? &*speaker->tokenizer : nullptr);
  Json end;                   // the trainer's last line
  Diagnostics wrong;          // of the text
  std::vector<int64_t> made;  // with --prompt-ids
  const auto take = [&](std::string_view line) {
    const Json json = Json::parse(line, nullptr, false);
    if (!json.is_object()) return true;
    if (!json.contains("id")) return end = json, true;
    if (arguments.has("prompt-ids")) {
      made.push_back(json["id"].get<int64_t>());
      return is_json || print_result(terminal, fmt::format("{}{}", made.size() == 1 ? "" : " ", made.back())) == kDone;
    }
    const Result<std::string> fresh = text.add(json["id"].get<int64_t>());
    if (!fresh.ok()) return wrong = fresh.diagnostics, false;
    return is_json || print_result(terminal, *fresh) == kDone;
  };
  const Said done =
      follow_program({trainer, "--plan", folder.path() + "/plan.json", "--generate", folder.path() + "/request.json"}, take);
  if (has_error(wrong)) return fail(arguments, terminal, wrong);
  if (done.code != 0) {
    const size_t help = done.text.find("\n  help: ");
    const std::string what = done.text.substr(0, std::min(help, done.text.find_last_not_of('\n') + 1));
    return fail(arguments, terminal,
                {error(code::kEnvironment, {}, what.empty() ? fmt::format("distsetup-train ended with {}", done.code) : what,
                       help == std::string::npos ? "" : done.text.substr(help + 9, done.text.find_last_not_of('\n') - help - 8))});
  }
  const std::string rest = text.rest();
  if (is_json)
    return print_result(terminal, dump_json({{"schema_version", 1},
                                             {"ids", arguments.has("prompt-ids") ? Json(made) : Json(text.ids())},
                                             {"text", text.text()},
                                             {"prompt_ids", *ids},
                                             {"stopped_by", end.value("stopped_by", "")}}));
  const int code = print_result(terminal, rest + "\n");
  const double seconds = end.value("answer_s", 0.0);
  const auto num_made = end.value("new_tokens", int64_t{0});
  mention(terminal, fmt::format("{} tokens of prompt, {} of answer{}\n", end.value("prompt_tokens", int64_t{0}), num_made,
                                seconds > 0 ? fmt::format(", {:.1f} tokens/s", static_cast<double>(num_made) / seconds) : ""));
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
      {"prompt-ids", {}, FlagKind::kValue, "IDS", "the prompt as token ids; the answer is ids, too, and no tokenizer is read", 0},
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
