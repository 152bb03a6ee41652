#include "data/source_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/diagnostic_codes.h"
#include "base/digest.h"
#include "base/file.h"
#include "data/pair_rows.h"
#include "data/row_keys.h"

namespace distsetup {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

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
  OrderedJson call = OrderedJson::parse(message["value"].is_string() ? message["value"].get<std::string>() : "", nullptr, false);
  if (!call.is_object() || !call.contains("name")) return "a function_call is no JSON object with a name";
  message = {{"role", "assistant"}, {"content", ""}, {"tool_calls", {{{"type", "function"}, {"function", std::move(call)}}}}};
  return "";
}

}  // namespace

std::string problem_of_messages(OrderedJson& messages) {
  if (!messages.is_array() || messages.empty()) return "its messages are no list, or an empty one";
  for (OrderedJson& m : messages) {
    if (!m.is_object()) return "a message is no object";
    if (m.contains("from") && m.contains("value") && m["from"] == "function_call") {
      if (std::string problem = make_call(m); !problem.empty()) return problem;
    } else if (m.contains("from") && m.contains("value") && m["from"].is_string()) {
      OrderedJson turned = {{"role", role_of(m["from"].get<std::string>())}, {"content", m["value"]}};
      m = std::move(turned);
    }
    if (!m.contains("role") || !m["role"].is_string()) return "a message has no role";
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
  out.reason = problem_of_messages(turns);
  if (!out.reason.empty()) return out;
  out.row.kind = SourceRow::Kind::kChat;
  out.row.chat = {{"messages", std::move(turns)}};
  if (json.contains("system") && json["system"].is_string() && out.row.chat["messages"][0]["role"] != "system" &&
      !json["system"].get<std::string>().empty())
    out.row.chat["messages"].insert(out.row.chat["messages"].begin(), message("system", json["system"].get<std::string>()));
  if (!json.contains("tools")) return out;
  const OrderedJson& tools = json["tools"];
  const OrderedJson parsed = tools.is_string() ? OrderedJson::parse(tools.get<std::string>(), nullptr, false) : tools;
  if (parsed.is_array() && !parsed.empty()) out.row.chat["tools"] = parsed;
  return out;
}

RowOrReason alpaca_row(const OrderedJson& instruction, const OrderedJson* input, const OrderedJson& output) {
  RowOrReason out;
  out.kind = "alpaca";
  if (!instruction.is_string() || !output.is_string() || (input != nullptr && !input->is_string())) {
    out.reason = "its instruction, input or output is no text";
    return out;
  }
  std::string question = instruction.get<std::string>();
  if (input != nullptr && !input->get<std::string>().empty()) question += "\n\n" + input->get<std::string>();
  out.row.kind = SourceRow::Kind::kChat;
  out.row.chat = {{"messages", {message("user", question), message("assistant", output.get<std::string>())}}};
  return out;
}

class SourceReading {
 public:
  SourceReading(const RowOptions& options, const std::function<Result<std::string>(SourceRow)>& use) : options_(options), use_(use) {}

  void drop(const std::string& reason, const Location& at) {
    ++counts.rows;
    ++counts.dropped[reason];
    counts.first_dropped.emplace(reason, at);
  }
  // Errors are `use`'s.
  Diagnostics take(const OrderedJson& json, const Location& at) {
    if (!json.is_object()) return drop("it is no JSON object", at), Diagnostics{};
    RowOrReason row = row_of(json, options_);
    if (!row.reason.empty()) return drop(row.reason, at), Diagnostics{};
    kinds_.insert(row.kind);
    row.row.at = at;
    return use(std::move(row.row));
  }
  Diagnostics use(SourceRow row) {
    const Location at = row.at;
    const Result<std::string> reason = use_(std::move(row));
    if (!reason.ok()) return reason.diagnostics;
    if (!reason->empty())
      drop(*reason, at);
    else
      ++counts.rows;
    return {};
  }
  void name_format(std::string_view file) { counts.format = fmt::format("{} {}", file, fmt::join(kinds_, ", ")); }

  RowCounts counts;

 private:
  const RowOptions& options_;
  const std::function<Result<std::string>(SourceRow)>& use_;
  std::set<std::string> kinds_;
};

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
    const OrderedJson json = OrderedJson::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) {
      reading.drop("it is not JSON", {path, number, 1});
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

Diagnostics read_list(const std::string& path, const std::string& text, SourceReading& reading) {
  const OrderedJson json = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
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

}  // namespace

RowOrReason row_of(const OrderedJson& json, const RowOptions& options) {
  const RowKeys row(json, options);
  if (std::string reason = other_purpose(json); !reason.empty()) return {{}, std::move(reason), ""};
  if (is_pair_row(json, options)) return pair_row(json, options);
  if (const OrderedJson* messages = row.first({"messages", "conversations", "conversation"})) return chat_row(json, *messages);
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
    out.row.kind = SourceRow::Kind::kPromptCompletion;
    out.row.prompt = prompt->get<std::string>();
    out.row.completion = completion->get<std::string>();
    return out;
  }
  const OrderedJson *instruction = row.find("instruction"), *output = row.first({"output", "response"});
  if (instruction != nullptr && output != nullptr) return alpaca_row(*instruction, row.first({"input", "context"}), *output);
  out.kind = "text";
  const OrderedJson* text = row.find("text");
  if (text == nullptr)
    out.reason = "it has none of text, messages, prompt and completion, instruction and output, chosen and rejected";
  else if (!text->is_string())
    out.reason = "its text is no text";
  else
    out.row.text = text->get<std::string>();
  return out;
}

Result<RowCounts> read_rows(const std::string& path, const RowOptions& options,
                            const std::function<Result<std::string>(SourceRow)>& use) {
  std::string ending = fs::path(path).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const char* refused :
       {".parquet", ".arrow", ".csv", ".tsv", ".gz", ".zst", ".xz", ".bz2", ".zip", ".tar", ".bin", ".idx", ".npy"})
    if (ending == refused)
      return error(code::kUnsupportedFeature, {path}, fmt::format("'{}' files are not read, expected .jsonl, .json or text", refused),
                   "convert it first, for example to .jsonl");
  SourceReading reading(options, use);
  Diagnostics said;
  if (ending == ".jsonl" || ending == ".ndjson") {
    said = read_lines(path, reading);
  } else {
    Result<std::string> text = read_file(path);
    if (!text.ok()) return text.diagnostics;
    reading.counts.sha256 = sha256(*text);
    if (ending == ".json") {
      said = read_list(path, *text, reading);
    } else {
      reading.counts.format = "text";
      SourceRow row;
      row.text = std::move(*text);
      row.at = {path, 1, 1};
      said = reading.use(std::move(row));
    }
  }
  if (has_error(said)) return said;
  return std::move(reading.counts);
}

}  // namespace distsetup
