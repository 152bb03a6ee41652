#include "text/tokenizer/json_node.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"

namespace distsetup {

JsonNode JsonNode::at(std::string_view key) const {
  std::string path = path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
  if (json_ == nullptr || !json_->is_object()) return {nullptr, std::move(path), notes_};
  const auto found = json_->find(key);
  return {found == json_->end() ? nullptr : &*found, std::move(path), notes_};
}

std::vector<JsonNode> JsonNode::items() const {
  std::vector<JsonNode> all;
  if (json_ == nullptr || !json_->is_array()) {
    note(is_absent() ? "is missing, expected a list" : fmt::format("is {}, expected a list", json_->type_name()));
    return all;
  }
  for (const Json& item : *json_) all.emplace_back(&item, fmt::format("{}[{}]", path_, all.size()), notes_);
  return all;
}

std::string JsonNode::text() const {
  if (json_ != nullptr && json_->is_string()) return json_->get<std::string>();
  note(is_absent() ? "is missing, expected text" : fmt::format("is {}, expected text", json_->type_name()));
  return "";
}

std::string JsonNode::text_or(std::string absent) const { return is_absent() ? absent : text(); }

bool JsonNode::flag_or(bool absent) const {
  if (is_absent()) return absent;
  if (json_->is_boolean()) return json_->get<bool>();
  note(fmt::format("is {}, expected true or false", json_->type_name()));
  return absent;
}

int64_t JsonNode::number(int64_t min, int64_t max) const {
  if (json_ != nullptr && json_->is_number_integer()) {
    const bool too_large = json_->is_number_unsigned() && json_->get<uint64_t>() > static_cast<uint64_t>(max);
    const int64_t value = too_large ? max : json_->get<int64_t>();
    if (!too_large && value >= min && value <= max) return value;
    note(fmt::format("is {}, expected {} to {}", json_->dump(), min, max));
    return min;
  }
  note(is_absent() ? "is missing, expected a whole number" : fmt::format("is {}, expected a whole number", json_->type_name()));
  return min;
}

void JsonNode::note(std::string message, std::string help) const {
  notes_->diagnostics.push_back(error(code::kData, {notes_->file, 0, 0},
                                      path_.empty() ? std::move(message) : fmt::format("{} {}", path_, message), std::move(help)));
}

void JsonNode::refuse_type(std::string_view what, const std::string& type) const {
  notes_->diagnostics.push_back(
      error(code::kUnsupportedFeature, {notes_->file, 0, 0}, fmt::format("{}: {} of type '{}' is not supported", path_, what, type)));
}

Result<Json> parse_json_text(const std::string& text, const std::string& file) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& e) {
    const size_t at = std::min(e.byte == 0 ? 0 : e.byte - 1, text.size());
    const auto line = static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n')) + 1;
    const size_t begin = text.rfind('\n', at == 0 ? 0 : at - 1);
    const auto column = static_cast<int>(at - (begin == std::string::npos || at == 0 ? 0 : begin + 1)) + 1;
    const std::string what = e.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..."
    const size_t reason = what.find(": ");
    return error(code::kSyntax, {file, line, column},
                 fmt::format("not JSON: {}", reason == std::string::npos ? what : what.substr(reason + 2)));
  } catch (const Json::exception& e) {  // a number that no double holds
    return error(code::kSyntax, {file, 0, 0}, fmt::format("not JSON: {}", e.what()));
  }
}

}  // namespace distsetup
