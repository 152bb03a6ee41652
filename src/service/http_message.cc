#include "service/http_message.h"

#include "base/json.h"

namespace distsetup {

std::string HttpRequest::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

std::string compact_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

HttpAnswer json_answer(const Json& json, int status) {
  HttpAnswer answer;
  answer.status = status;
  answer.body = compact_text(json);
  return answer;
}

HttpAnswer refusal(int status, const std::string& detail, const std::vector<BodyMistake>& mistakes) {
  Json errors = Json::array();
  for (const BodyMistake& one : mistakes) errors.push_back({{"where", one.where}, {"message", one.message}, {"help", one.help}});
  HttpAnswer answer = json_answer({{"detail", detail}, {"errors", errors}}, status);
  // Clients of Llama Stack repeat what is answered by 409, unless they are told not to.
  if (status == 409) answer.headers.emplace_back("x-should-retry", "false");
  return answer;
}

HttpAnswer refusal(int status, const Diagnostics& diagnostics) {
  std::string detail;
  std::vector<BodyMistake> mistakes;
  for (const Diagnostic& one : diagnostics) {
    if (one.severity != Severity::kError) continue;
    std::string where = one.location.file;
    if (one.location.line > 0) where += ":" + std::to_string(one.location.line) + ":" + std::to_string(one.location.column);
    if (detail.empty()) detail = one.message + (one.help.empty() ? "" : "; " + one.help);
    mistakes.push_back({where, one.message, one.help});
  }
  return refusal(status, detail, mistakes);
}

}  // namespace distsetup
