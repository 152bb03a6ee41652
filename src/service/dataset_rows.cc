#include "service/dataset_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "base/digest.h"
#include "base/file.h"
#include "base/json_text.h"

namespace distsetup {
namespace {

bool has_key(const Json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && !found->is_null();
}

bool is_blank(const Json& value) {
  if (value.is_string()) return value.get_ref<const std::string&>().find_first_not_of(" \t\r\n") == std::string::npos;
  return value.is_array() && value.empty();
}

std::optional<std::string> text_mistake(const Json& row, const char* key) {
  if (!row.contains(key)) return fmt::format("'{}' is missing", key);
  const Json& value = row[key];
  if (!value.is_string() && !value.is_array() && !value.is_object())
    return fmt::format("'{}' is {}, expected text or messages", key, value.dump().substr(0, 40));
  if (is_blank(value)) return fmt::format("'{}' is blank", key);
  return std::nullopt;
}

bool is_conversation(const Json& row) {
  if (kind_of_row(row) == "messages") return true;
  static constexpr std::array<const char*, 5> kAnswers = {"prompt", "completion", "response", "chosen", "rejected"};
  return std::any_of(kAnswers.begin(), kAnswers.end(), [&row](const char* key) {
    const auto found = row.find(key);
    return found != row.end() && (found->is_object() || (found->is_array() && !found->empty()));
  });
}

}  // namespace

std::string kind_of_row(const Json& row) {
  if (!row.is_object()) return "";
  if (has_key(row, "chosen") || has_key(row, "rejected")) return "preference";
  if (has_key(row, "messages") || has_key(row, "conversations") || has_key(row, "dialog")) return "messages";
  if (has_key(row, "instruction") || (has_key(row, "prompt") && (has_key(row, "completion") || has_key(row, "response"))))
    return "instruct";
  return has_key(row, "text") ? "text" : "";
}

std::optional<std::string> row_mistake(const Json& row, const std::string& method) {
  if (!row.is_object()) return "it is no object";
  if (method == "dpo") {
    const bool has_other_prompt = has_key(row, "instruction") || has_key(row, "conversations");
    const bool begins_alike = row.contains("chosen") && !row.contains("prompt") && row["chosen"].is_array();
    for (const char* key : {"prompt", "chosen", "rejected"}) {
      if (std::string_view(key) == "prompt" && (has_other_prompt || begins_alike)) continue;
      if (std::optional<std::string> mistake = text_mistake(row, key)) return mistake;
    }
    return std::nullopt;
  }
  const std::string kind = kind_of_row(row);
  if (kind == "preference") return "it has 'chosen' and 'rejected': a pair, which preference-optimize trains";
  if (kind == "messages")
    return text_mistake(row, has_key(row, "messages") ? "messages" : has_key(row, "conversations") ? "conversations" : "dialog");
  if (kind == "instruct" && has_key(row, "instruction")) return text_mistake(row, "output");
  if (kind == "instruct") return text_mistake(row, has_key(row, "completion") ? "completion" : "response");
  if (kind == "text") return text_mistake(row, "text");
  return "it has neither messages, prompt and completion, instruction and output, nor text";
}

std::optional<std::string> rows_mistake(const std::string& path, const std::string& method, bool has_template) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  int64_t number = 0;
  while (std::getline(file, line)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const Json row = json_from_text(line);
    if (row.is_discarded()) return fmt::format("row {}: it is no JSON", number);
    if (const std::optional<std::string> mistake = row_mistake(row, method)) return fmt::format("row {}: {}", number, *mistake);
    if (!has_template && is_conversation(row))
      return fmt::format("row {}: it is a conversation, and the model's folder has no chat template", number);
    ++number;
  }
  if (number == 0) return "the data set has no rows";
  return std::nullopt;
}

std::optional<WrittenRows> write_lines(const std::string& folder, const std::string& text, int64_t num_rows) {
  WrittenRows out;
  out.digest = sha256(text);
  out.path = folder + "/" + out.digest + ".jsonl";
  out.num_rows = num_rows;
  out.num_bytes = static_cast<int64_t>(text.size());
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (!write_file_atomic(out.path, text, Overwrite::kForce).ok()) return std::nullopt;
  return out;
}

std::optional<WrittenRows> write_rows(const std::string& folder, const Json& rows) {
  std::string text;
  for (const Json& row : rows) text += row.dump() + "\n";
  return write_lines(folder, text, static_cast<int64_t>(rows.size()));
}

Json read_rows(const std::string& path, int64_t start, int64_t limit, bool& has_more) {
  Json out = Json::array();
  std::ifstream file(path, std::ios::binary);
  std::string line;
  has_more = false;
  for (int64_t number = 0; std::getline(file, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (number++ < start) continue;
    if (static_cast<int64_t>(out.size()) == limit) {
      has_more = true;
      break;
    }
    Json row = json_from_text(line);
    if (!row.is_discarded()) out.push_back(std::move(row));
  }
  return out;
}

}  // namespace distsetup
