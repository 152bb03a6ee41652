// Quoting. The shell rules are those of POSIX.1-2017 XCU 2.2 and bash's $'...' (Bash reference manual 3.1.2.4).
// Leaves out: other shells; every script we write says bash.
#include "codegen/quote.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/json.h"
#include "base/names.h"

namespace distsetup {
namespace {

bool is_control(char c) {
  const unsigned char byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

bool is_alphanumeric(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

bool all_of(std::string_view text, std::string_view also) {
  return std::all_of(text.begin(), text.end(),
                     [also](char c) { return is_alphanumeric(c) || also.find(c) != std::string_view::npos; });
}

// $'...': the only form of bash that keeps control characters on one line. Two hexadecimal digits always, so that a digit that
// follows is not read as part of the escape.
std::string quote_ansi_c(std::string_view text) {
  std::string out = "$'";
  for (char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\\' || c == '\'') {
      out += '\\';
      out += c;
    } else if (is_control(c)) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "'";
}

}  // namespace

bool has_control_characters(std::string_view text) { return std::any_of(text.begin(), text.end(), is_control); }

std::string quote_shell(std::string_view text) {
  CHECK(text.find('\0') == std::string_view::npos, "a shell word cannot hold a NUL byte");
  if (text.empty()) return "''";
  if (all_of(text, "_@%+=:,./-")) return std::string(text);
  if (has_control_characters(text)) return quote_ansi_c(text);
  std::string out = "'";
  for (char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string quote_directive(std::string_view text) {
  CHECK(!has_control_characters(text), "a directive is one line");
  if (!text.empty() && all_of(text, "_@%+=:,./-[]*&|!")) return std::string(text);
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string comment_text(std::string_view text) {
  std::string out(text);
  std::replace_if(out.begin(), out.end(), is_control, '?');
  return out;
}

std::string quote_yaml(std::string_view text) {
  // Words that YAML 1.1 or 1.2 read as something else than text.
  static constexpr std::array<std::string_view, 11> kReserved = {"true", "false", "yes", "no",  "on", "off",
                                                                 "null", "y",     "n",   "inf", "nan"};
  if (has_control_characters(text)) return Json(std::string(text)).dump();
  const bool starts_with_letter = !text.empty() && (text[0] == '_' || (is_alphanumeric(text[0]) && (text[0] < '0' || text[0] > '9')));
  const bool reserved = std::find(kReserved.begin(), kReserved.end(), lower(text)) != kReserved.end();
  if (starts_with_letter && !reserved && all_of(text, "_./-")) return std::string(text);
  std::string out = "'";
  for (char c : text) {
    if (c == '\'') out += '\'';
    out += c;
  }
  return out + "'";
}

std::string quote_toml(std::string_view text) {
  std::string out = Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);  // its escapes are TOML's too
  for (size_t at = out.find('\x7f'); at != std::string::npos; at = out.find('\x7f', at)) out.replace(at, 1, "\\u007f");
  return out;
}

}  // namespace distsetup
