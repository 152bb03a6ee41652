#include "data/source_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/diagnostic_codes.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/names.h"
#include "data/pair_rows.h"
#include "data/parquet_file.h"
#include "data/record_files.h"
#include "data/row_keys.h"
#include "data/source_reading.h"
#include "data/tree_rows.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNoKnownKeys =
    "it has none of text, messages, prompt and completion, instruction and output, chosen and rejected";

// Why a row of other methods, or of models that see and hear, is none for this; "": it is one. Keys as TRL and LLaMA-Factory have
// them.
std::string other_purpose(const OrderedJson& json) {
  const auto has = [&](const char* key) { return json.contains(key) && !json[key].is_null() && !json[key].empty(); };
  if (json.contains("label") && json["label"].is_boolean())
    return "its label says whether the answer is good, which is for preference training";
  for (const char* key : {"image", "images", "video", "videos", "audio", "audios"})
    if (has(key)) return fmt::format("it has {}, which are not read", key);
  return "";
}

// ShareGPT's names of who speaks.
std::string role_of(const std::string& from) {
  if (from == "human") return "user";
  if (from == "observation" || from == "function_response") return "tool";
  if (from == "gpt" || from == "chatgpt" || from == "bard" || from == "bing") return "assistant";
  return from;
}

// A message whose content is a list of texts gets the text; "": it has no other parts.
std::string join_texts(OrderedJson& message) {
  if (!message.contains("content") || !message["content"].is_array()) return "";
  std::string text;
  for (const OrderedJson& part : message["content"]) {
    const bool is_text = part.is_object() && part.value("type", "") == "text";
    const char* const key = is_text && part.contains("text") ? "text" : "value";
    if (!is_text || !part.contains(key) || !part[key].is_string()) return "a message has parts that are no text";
    text += part[key].get<std::string>();
  }
  message["content"] = text;
  return "";
}

// ShareGPT's call of a tool, {"name", "arguments"} as text, as a message; "": it is one.
std::string make_call(OrderedJson& message) {
  OrderedJson call = ordered_json_from_text(message["value"].is_string() ? message["value"].get<std::string>() : "");
  if (!call.is_object() || !call.contains("name")) return "a function_call is no JSON object with a name";
  message = {{"role", "assistant"}, {"content", ""}, {"tool_calls", {{{"type", "function"}, {"function", std::move(call)}}}}};
  return "";
}

// Whether a message says that it is trained, as OpenAI's files (weight), Fireworks' (loss_weight) and axolotl's (train, training) do.
struct MessageTraining {
  std::optional<bool> is_trained;
  std::string problem;
};
MessageTraining take_training(OrderedJson& message) {
  MessageTraining out;
  if (message.contains("train_detail") && !message["train_detail"].is_null())
    return {{}, "a message has train_detail, which is not read"};
  for (const char* key : {"weight", "loss_weight", "train", "training"}) {
    if (!message.contains(key)) continue;
    const OrderedJson value = message[key];
    message.erase(key);
    if (value.is_null()) continue;
    const double weight = value.is_boolean() ? (value.get<bool>() ? 1 : 0) : value.is_number() ? value.get<double>() : -1;
    if (weight != 0 && weight != 1)
      return {{}, fmt::format("a message has the {} {}, expected 0 or 1: it is trained or not", key, value.dump())};
    out.is_trained = weight == 1;
  }
  return out;
}

}  // namespace

std::string problem_of_messages(OrderedJson& messages, std::vector<bool>& left_out) {
  if (!messages.is_array() || messages.empty()) return "its messages are no list, or an empty one";
  for (OrderedJson& m : messages) {
    if (!m.is_object()) return "a message is no object";
    const MessageTraining training = take_training(m);
    if (!training.problem.empty()) return training.problem;
    if (m.contains("from") && m.contains("value") && m["from"] == "function_call") {
      if (std::string problem = make_call(m); !problem.empty()) return problem;
    } else if (m.contains("from") && m.contains("value") && m["from"].is_string()) {
      OrderedJson turned = {{"role", role_of(m["from"].get<std::string>())}, {"content", m["value"]}};
      m = std::move(turned);
    }
    if (!m.contains("role") || !m["role"].is_string()) return "a message has no role";
    if (training.is_trained.value_or(false) && m["role"] != "assistant")
      return fmt::format("a message of '{}' is to be trained, expected the assistant's alone", m["role"].get<std::string>());
    left_out.push_back(m["role"] == "assistant" && !training.is_trained.value_or(true));
    if (std::string problem = join_texts(m); !problem.empty()) return problem;
  }
  return "";
}

namespace {

OrderedJson message(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }

RowOrReason chat_row(const OrderedJson& json, const OrderedJson& messages) {
  RowOrReason out;
  out.kind = "messages";
  OrderedJson turns = messages;
  out.reason = problem_of_messages(turns, out.row.left_out);
  if (!out.reason.empty()) return out;
  out.row.kind = SourceRow::Kind::kChat;
  out.row.chat = {{"messages", std::move(turns)}};
  if (json.contains("system") && json["system"].is_string() && out.row.chat["messages"][0]["role"] != "system" &&
      !json["system"].get<std::string>().empty()) {
    out.row.chat["messages"].insert(out.row.chat["messages"].begin(), message("system", json["system"].get<std::string>()));
    out.row.left_out.insert(out.row.left_out.begin(), false);
  }
  if (std::find(out.row.left_out.begin(), out.row.left_out.end(), true) == out.row.left_out.end()) out.row.left_out.clear();
  if (!json.contains("tools")) return out;
  const OrderedJson& tools = json["tools"];
  const OrderedJson parsed = tools.is_string() ? ordered_json_from_text(tools.get<std::string>()) : tools;
  if (parsed.is_array() && !parsed.empty()) out.row.chat["tools"] = parsed;
  return out;
}

RowOrReason no_row(const char* kind, std::string reason) { return {{}, std::move(reason), kind}; }

RowOrReason alpaca_row(const OrderedJson& json, const RowKeys& row, const OrderedJson& instruction, const OrderedJson& output) {
  constexpr const char* kKind = "alpaca";
  const OrderedJson* input = row.first({"input", "context"});
  if (!instruction.is_string() || !output.is_string() || (input != nullptr && !input->is_string()))
    return no_row(kKind, "its instruction, input or output is no text");
  OrderedJson messages = OrderedJson::array();
  if (std::string problem = add_history(row.find("history"), messages); !problem.empty()) return no_row(kKind, std::move(problem));
  std::string question = instruction.get<std::string>();
  if (input != nullptr && !input->get<std::string>().empty()) question += "\n\n" + input->get<std::string>();
  messages.push_back(message("user", question));
  messages.push_back(message("assistant", output.get<std::string>()));
  RowOrReason out = chat_row(json, messages);
  out.kind = kKind;
  return out;
}

bool states_system(const OrderedJson& json) {
  return json.contains("system") && json["system"].is_string() && !json["system"].get_ref<const std::string&>().empty();
}

Diagnostics read_list(const std::string& path, const std::string& text, SourceReading& reading) {
  // What begins as an object is none: seen here, since reading one with many keys takes as long as the square of their number.
  const size_t start = text.find_first_not_of(" \t\r\n");
  const bool is_object = start != std::string::npos && text[start] == '{';
  const OrderedJson json = is_object ? OrderedJson::object() : ordered_json_from_text(text);
  if (!json.is_array())
    return {error(code::kData, {path}, json.is_discarded() ? "this is not JSON" : "this JSON is no list of rows",
                  "rows are a list of objects; one object on each line is .jsonl")};
  int number = 0;
  for (const OrderedJson& row : json) {
    Diagnostics said = reading.take(row, {path, ++number, 0});
    if (has_error(said)) return said;
  }
  reading.name_format("json");
  return {};
}

Diagnostics read_json(const std::string& path, SourceReading& reading) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.diagnostics;
  reading.counts.sha256 = sha256(*text);
  return read_list(path, *text, reading);
}

Diagnostics read_lines(const std::string& path, SourceReading& reading) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return {error(code::kUnreadableFile, {path}, fmt::format("cannot read '{}', {}", path, errno_text(errno)))};
  Sha256 digest;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    digest.update(line);
    if (!file.eof()) digest.update("\n");
    if (number == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const OrderedJson json = ordered_json_from_text(line);
    if (json.is_discarded()) {
      if (number == 1 && line.find_first_not_of(" \t") == line.find('['))
        return read_json(path, reading);  // a list over several lines
      reading.drop(is_utf8(line) ? "it is not JSON" : "it is not UTF-8", {path, number, 1});
      continue;
    }
    Diagnostics said = reading.take(json, {path, number, 1});
    if (has_error(said)) return said;
  }
  if (file.bad()) return {error(code::kData, {path}, fmt::format("cannot read '{}' to its end", path))};
  reading.counts.sha256 = digest.hex();
  reading.name_format("jsonl");
  return {};
}

}  // namespace

namespace {

// The first of them, in quotes.
std::string keys_of(const OrderedJson& json) {
  constexpr size_t kShown = 8;
  std::string text;
  size_t number = 0;
  for (const auto& [key, value] : json.items()) {
    if (++number > kShown) break;
    text += fmt::format("{}'{}'{}", text.empty() ? "" : ", ", key.substr(0, 40), value.is_null() ? " (null)" : "");
  }
  return text.empty() ? "none" : json.size() > kShown ? text + ", …" : text;
}

}  // namespace

RowOrReason row_of(const OrderedJson& json, const RowOptions& options) {
  const RowKeys row(json, options);
  if (std::string reason = other_purpose(json); !reason.empty()) return {{}, std::move(reason), ""};
  if (std::optional<RowOrReason> tree = tree_row(json)) return std::move(*tree);
  if (is_pair_row(json, options)) return pair_row(json, options);
  if (const OrderedJson* messages = row.first({"messages", "conversations", "conversation"})) {
    const OrderedJson within_text =
        messages->is_string() ? ordered_json_from_text(messages->get_ref<const std::string&>()) : OrderedJson();
    return chat_row(json, within_text.is_array() ? within_text : *messages);
  }
  const OrderedJson *prompt = row.find("prompt"), *completion = row.first({"completion", "response"});
  if (prompt != nullptr && completion != nullptr && prompt->is_array() && completion->is_array()) {  // both as messages
    OrderedJson all = *prompt;
    for (const OrderedJson& m : *completion) all.push_back(m);
    return chat_row(json, all);
  }
  RowOrReason out;
  if (prompt != nullptr && completion != nullptr) {
    out.kind = "prompt-completion";
    if (!prompt->is_string() || !completion->is_string()) {
      out.reason = "its prompt or completion is no text";
      return out;
    }
    if (states_system(json)) {  // which a text has no place for
      if (options.prompt_format)
        return no_row("prompt-completion", "it has a system message, which the prompt format has no place for");
      return chat_row(json, {message("user", prompt->get<std::string>()), message("assistant", completion->get<std::string>())});
    }
    out.row.kind = SourceRow::Kind::kPromptCompletion;
    out.row.prompt = prompt->get<std::string>();
    out.row.completion = completion->get<std::string>();
    return out;
  }
  const OrderedJson *instruction = row.find("instruction"), *output = row.first({"output", "response"});
  if (instruction != nullptr && output != nullptr) return alpaca_row(json, row, *instruction, *output);
  out.kind = "text";
  const OrderedJson* text = row.find("text");
  if (text == nullptr)
    out.reason = fmt::format("{}; its keys: {}", kNoKnownKeys, keys_of(json));
  else if (!text->is_string())
    out.reason = "its text is no text";
  else
    out.row.text = text->get<std::string>();
  return out;
}

const std::vector<std::string>& source_formats() {
  static const std::vector<std::string> formats = {"jsonl", "json", "csv", "tsv", "text", "megatron", "parquet"};
  return formats;
}

namespace {

// By the ending; "": a kind that is not read.
std::string format_of(const std::string& path) {
  std::string ending = fs::path(path).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
  static const std::map<std::string, std::string> formats = {
      {".jsonl", "jsonl"}, {".ndjson", "jsonl"}, {".json", "json"},    {".csv", "csv"},
      {".tsv", "tsv"},     {".bin", "megatron"}, {".idx", "megatron"}, {".parquet", "parquet"},
      {".arrow", ""},      {".gz", ""},          {".zst", ""},         {".xz", ""},
      {".bz2", ""},        {".zip", ""},         {".tar", ""},         {".npy", ""},
      {".safetensors", ""}};
  const auto found = formats.find(ending);
  return found == formats.end() ? "text" : found->second;
}

Diagnostics read_text(const std::string& path, SourceReading& reading) {
  Result<std::string> text = read_file(path);
  if (!text.ok()) return text.diagnostics;
  reading.counts.sha256 = sha256(*text);
  reading.counts.format = "text";
  SourceRow row;
  row.text = std::move(*text);
  row.at = {path, 1, 1};
  return reading.use(std::move(row));
}

}  // namespace

Result<RowCounts> read_rows(const std::string& path, const RowOptions& options, const RowUser& use) {
  const std::string format = options.format.empty() ? format_of(path) : options.format;
  if (format.empty())
    return error(code::kUnsupportedFeature, {path},
                 fmt::format("'{}' files are not read, expected one of: {}", fs::path(path).extension().string(),
                             fmt::join(source_formats(), ", ")),
                 "convert it first, for example to .jsonl");
  SourceReading reading(options, use);
  static const std::map<std::string, Diagnostics (*)(const std::string&, SourceReading&)> readers = {
      {"jsonl", read_lines}, {"json", read_json},          {"csv", read_commas},     {"tsv", read_tabs},
      {"text", read_text},   {"megatron", read_token_ids}, {"parquet", read_parquet}};
  const auto reader = readers.find(format);
  if (reader == readers.end())
    return error(code::kUnsupportedFeature, {path}, fmt::format("format '{}' is not known", format),
                 fmt::format("one of {}", fmt::join(source_formats(), ", ")));
  Diagnostics said = reader->second(path, reading);
  if (has_error(said)) return said;
  return std::move(reading.counts);
}

}  // namespace distsetup
