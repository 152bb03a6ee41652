#include "codegen/job/job_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/diagnostic_codes.h"
#include "base/quantity.h"
#include "codegen/shell/quote.h"

namespace distsetup {

bool is_name_of(std::string_view text, std::string_view also) {
  return std::all_of(text.begin(), text.end(), [also](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || also.find(c) != std::string_view::npos;
  });
}

void JobCheck::fail(const char* code, std::string message, std::string help) {
  diagnostics.push_back(error(code, at, std::move(message), std::move(help)));
}
void JobCheck::set(std::string_view field, Json value) { set_field(fields, field, std::move(value)); }

bool JobCheck::one_line(const std::string& name, const std::string& value) {
  if (!has_control_characters(value)) return true;
  fail(code::kOutOfRange, fmt::format("{} has control characters, expected one line of text", name));
  return false;
}

bool JobCheck::plain(const std::string& name, const std::string& value, std::string_view also) {
  if (value.empty() || (value.front() != '-' && is_name_of(value, also))) return true;
  fail(code::kOutOfRange, fmt::format("{} '{}', expected letters, digits and '{}'", name, comment_text(value), also));
  return false;
}

int64_t JobCheck::duration_s(const std::string& value) {
  Result<int64_t> seconds = parse_duration_s(value, at);
  append(diagnostics, seconds.diagnostics);
  return seconds.ok() ? *seconds : 0;
}

}  // namespace distsetup
