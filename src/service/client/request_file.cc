#include "service/client/request_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/file.h"
#include "service/page/json_values.h"

namespace distsetup {
namespace {

// Line and column of a byte, from 1.
Location place_in(const std::string& path, const std::string& text, size_t byte) {
  const size_t at = std::min(byte == 0 ? 0 : byte - 1, text.size());
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  const size_t start = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
  return {path, static_cast<int>(line), static_cast<int>(at - start) + 1};
}

Result<Json> parse_json(const std::string& path, const std::string& text, int first_line = 1) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& failure) {
    Location at = place_in(path, text, failure.byte);
    at.line += first_line - 1;
    return error(code::kSyntax, at, "this is not JSON");
  }
}

}  // namespace

Result<RequestFile> read_request_file(const std::string& path, const std::string& method) {
  const Result<std::string> text = read_file(path == "-" ? "/dev/stdin" : path);
  if (!text.ok()) return text.diagnostics;
  Result<Json> body = parse_json(path, *text);
  if (!body.ok()) return body.diagnostics;
  if (!body->is_object())
    return error(code::kWrongType, {path, 1, 1}, "expected an object, the body of a request to train", "docs/service.md shows one");
  const Json algorithm = body->value("algorithm_config", Json());
  const auto says = [&algorithm](const char* key) { return algorithm.is_object() && algorithm.contains(key); };
  const bool is_preference = method.empty()
                                 ? text_at(algorithm, "/type") == "dpo" || says("beta") || says("reward_scale") || says("loss_type")
                                 : method == "dpo";
  return RequestFile{is_preference ? "preference-optimize" : "supervised-fine-tune", std::move(*body)};
}

Json plan_request(const RequestFile& request) {
  Json plan = {{"method", request.action == "preference-optimize" ? "dpo" : "sft"}};
  for (const char* key : {"model", "algorithm_config", "training_config"})
    if (request.body.contains(key) && !request.body[key].is_null()) plan[key] = request.body[key];
  if (!plan.contains("model") && request.body.contains("finetuned_model")) plan["model"] = request.body["finetuned_model"];
  return plan;
}

Result<Json> read_rows(const std::string& path) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.diagnostics;
  const size_t first = text->find_first_not_of(" \t\r\n");
  if (first != std::string::npos && (*text)[first] == '[') return parse_json(path, *text);
  Json rows = Json::array();
  int number = 0;
  for (size_t at = 0; at < text->size();) {
    const size_t end = std::min(text->find('\n', at), text->size());
    const std::string line = text->substr(at, end - at);
    at = end + 1;
    number += 1;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Result<Json> row = parse_json(path, line, number);
    if (!row.ok()) return row.diagnostics;
    rows.push_back(std::move(*row));
  }
  if (rows.empty()) return error(code::kData, {path}, "there is no row in it");
  return rows;
}

}  // namespace distsetup
