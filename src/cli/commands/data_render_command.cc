// `distsetup data render`: conversations as the text that a model's chat template makes of them.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "base/clock.h"
#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/commands/commands.h"
#include "cli/line/output.h"
#include "text/template/read_chat_template.h"
#include "text/template/trained_ranges.h"

namespace distsetup {
namespace {

// Where a parser of JSON stopped, as line and column.
Location place_in(const std::string& file, std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, byte > 0 ? std::min(byte - 1, text.size()) : 0);
  const auto line = std::count(before.begin(), before.end(), '\n');
  return {file, static_cast<int>(line) + 1, static_cast<int>(before.size() - (before.rfind('\n') + 1)) + 1};
}

struct LocatedJson {
  OrderedJson json;
  Location at;
};

Result<OrderedJson> parse_json(const std::string& file, std::string_view text, int line) {
  try {
    return OrderedJson::parse(text);
  } catch (const OrderedJson::parse_error& failure) {
    Location at = place_in(file, text, failure.byte);
    at.line += line - 1;
    return error(code::kSyntax, at, "this is not JSON", "a conversation is JSON: a file with one, or one on each line");
  }
}

// One conversation, or one on each line when the first line is a whole one.
Result<std::vector<LocatedJson>> conversations_in(const std::string& file, const std::string& text) {
  const std::string_view first = std::string_view(text).substr(0, text.find('\n'));
  const bool has_lines =
      text.find_first_not_of(" \t\r\n", std::min(first.size(), text.size())) != std::string::npos && OrderedJson::accept(first);
  std::vector<LocatedJson> found;
  if (!has_lines) {
    Result<OrderedJson> json = parse_json(file, text, 1);
    if (!json.ok()) return json.diagnostics;
    found.push_back({std::move(*json), {file, 1, 0}});
    return found;
  }
  int line = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view row = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    ++line;
    if (row.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Result<OrderedJson> json = parse_json(file, row, line);
    if (!json.ok()) return json.diagnostics;
    found.push_back({std::move(*json), {file, line, 0}});
  }
  return found;
}

// The text with what is trained between marks, in colour where the terminal has it.
std::string marked(const TrainedText& rendered, const TextStream& out) {
  const bool has_colour = out.colour == Colour::kOn;
  const std::string begin = has_colour ? "\033[32m" : "⟦", end = has_colour ? "\033[0m" : "⟧";
  std::string text;
  size_t at = 0;
  for (const ByteRange& range : rendered.trained) {
    text += rendered.text.substr(at, range.begin - at) + begin + rendered.text.substr(range.begin, range.end - range.begin) + end;
    at = range.end;
  }
  return text + rendered.text.substr(at);
}

Json ranges_json(const std::vector<ByteRange>& ranges) {
  Json out = Json::array();
  for (const ByteRange& range : ranges) out.push_back({range.begin, range.end});
  return out;
}

struct RenderTask {
  const ModelTemplate& model;
  bool adds_generation_prompt = false, shows_trained = false;
  std::tm now = {};
};

// The text, and what is trained when it is asked for.
Result<TrainedText> render_one(const RenderTask& task, const LocatedJson& conversation) {
  Result<ChatRequest> request = read_chat(conversation.json, conversation.at);
  if (!request.ok()) return request.diagnostics;
  OrderedJson values = task.model.special_tokens;
  for (const auto& [key, value] : request->more.items()) values[key] = value;
  request->more = std::move(values);
  request->adds_generation_prompt = task.adds_generation_prompt;
  if (task.shows_trained) return trained_text(task.model.chat, *request, task.now);
  Result<Rendered> rendered = render(task.model.chat, chat_values(*request), task.now);
  if (!rendered.ok()) return rendered.diagnostics;
  return TrainedText{std::move(rendered->text), {}, MaskMethod::kGenerationBlocks};
}

int run_render(const Arguments& arguments, const Terminal& terminal) {
  const Result<ModelTemplate> model = read_chat_template(arguments.positionals[0], arguments.text("template"));
  if (!model.ok()) return fail(arguments, terminal, model.diagnostics);
  const std::string path = arguments.positionals.size() > 1 ? arguments.positionals[1] : "-";
  const Result<std::string> text = read_file(path == "-" ? "/dev/stdin" : path);
  if (!text.ok()) return fail(arguments, terminal, text.diagnostics);
  const Result<std::vector<LocatedJson>> conversations = conversations_in(path, *text);
  if (!conversations.ok()) return fail(arguments, terminal, conversations.diagnostics);
  const RenderTask task = {*model, arguments.has("generation-prompt"), arguments.has("show-trained"), local_time()};
  std::string out;
  Json rows = Json::array();
  for (const LocatedJson& one : *conversations) {
    const Result<TrainedText> rendered = render_one(task, one);
    if (!rendered.ok()) {
      Diagnostics why = rendered.diagnostics;
      if (conversations->size() > 1) why.push_back(note(code::kData, one.at, "while this conversation was rendered"));
      return fail(arguments, terminal, why);
    }
    Json row = {{"text", rendered->text}};
    if (task.shows_trained) {
      row["trained"] = ranges_json(rendered->trained);
      row["method"] = name(rendered->method);
    }
    rows.push_back(std::move(row));
    out += task.shows_trained ? marked(*rendered, terminal.out) : rendered->text;
    const bool is_for_reading = task.shows_trained && !out.empty() && out.back() != '\n';
    if (conversations->size() > 1 || is_for_reading) out += '\n';
  }
  return print_result(terminal, arguments.has("json") ? dump_json({{"schema_version", 1}, {"conversations", rows}}) : out);
}

}  // namespace

Command data_render_command() {
  Command command;
  command.summary = "conversations as the text that a model's chat template makes of them";
  command.positional = "MODEL-FOLDER|TEMPLATE [FILE.json|FILE.jsonl|-]";
  command.min_positionals = 1;
  command.max_positionals = 2;
  command.examples = {"distsetup data render model chat.json --generation-prompt",
                      "distsetup data render chat_template.jinja chats.jsonl --show-trained"};
  command.notes =
      "A conversation is a list of messages, or an object with 'messages', 'tools' and other values that the template reads; a file "
      "has one, "
      "or one on each line. Without FILE they come from standard input. The text is that of the transformers library, to the byte; a "
      "line "
      "break stands behind each conversation when there are several.";
  command.flags = {
      {"generation-prompt", {}, FlagKind::kSwitch, "", "end with what comes before an answer"},
      {"show-trained", {}, FlagKind::kSwitch, "", "mark what is trained: what the assistant wrote"},
      {"template", {}, FlagKind::kValue, "NAME", "which chat template, where the model has several"},
  };
  command.run = run_render;
  return command;
}

}  // namespace distsetup
