// Quoting. The shell rules are those of POSIX.1-2017 XCU 2.2 and bash's $'...' (Bash reference manual 3.1.2.4).
// Leaves out: other shells; every script we write says bash.
#include "codegen/shell/quote.h"

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

// Characters that a reader of YAML refuses or may take for the end of a line (YAML 1.1 4.2, YAML 1.2.2 5.1 and 5.4).
bool is_special(std::string_view character) {
  if (character.size() == 1) return is_control(character[0]);
  if (character.size() == 2) return character[0] == '\xc2' && static_cast<unsigned char>(character[1]) < 0xa0;  // U+0080 to U+009F
  return character == "\u2028" || character == "\u2029" || character == "\ufeff" || character == "\ufffe" || character == "\uffff";
}

// The text with `replace(character)` for each special one; bytes that are no UTF-8 stay.
template <class Replace>
std::string replace_special(std::string_view text, Replace replace) {
  std::string out;
  while (!text.empty()) {
    const std::string_view character = text.substr(0, std::max<size_t>(utf8_length(text), 1));
    if (is_special(character)) {
      out += replace(character);
    } else {
      out += character;
    }
    text.remove_prefix(character.size());
  }
  return out;
}

bool has_special(std::string_view text) {
  bool found = false;
  replace_special(text, [&found](std::string_view) { return found = true, ""; });
  return found;
}

// \u0085 of the character's UTF-8.
std::string escaped(std::string_view character) {
  const auto byte = [character](size_t i) { return static_cast<unsigned char>(character[i]); };
  const unsigned code = character.size() == 1   ? byte(0)
                        : character.size() == 2 ? (byte(0) & 0x1fU) << 6 | (byte(1) & 0x3fU)
                                                : (byte(0) & 0x0fU) << 12 | (byte(1) & 0x3fU) << 6 | (byte(2) & 0x3fU);
  return fmt::format("\\u{:04x}", code);
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
  while (!text.empty()) {
    const std::string_view character = text.substr(0, std::max<size_t>(utf8_length(text), 1));
    text.remove_prefix(character.size());
    if (character == "\n") {
      out += "\\n";
    } else if (character == "\t") {
      out += "\\t";
    } else if (is_special(character)) {
      for (const char c : character) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      if (character == "\\" || character == "'") out += '\\';
      out += character;
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
  if (has_special(text)) return quote_ansi_c(text);  // also what YAML breaks lines at: scripts stand in manifests
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

std::string join_command(const std::vector<std::string>& arguments) {
  std::string out;
  for (const std::string& argument : arguments) out += (out.empty() ? "" : " ") + quote_shell(argument);
  return out;
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
  return replace_special(text, [](std::string_view) { return "?"; });
}

std::string quote_yaml(std::string_view text) {
  // Words that YAML 1.1 or 1.2 read as something else than text.
  static constexpr std::array<std::string_view, 11> kReserved = {"true", "false", "yes", "no",  "on", "off",
                                                                 "null", "y",     "n",   "inf", "nan"};
  if (has_special(text)) return replace_special(Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace), escaped);
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

std::string json_in_yaml(std::string_view line) { return replace_special(line, escaped); }

std::string quote_toml(std::string_view text) {
  std::string out = Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);  // its escapes are TOML's too
  for (size_t at = out.find('\x7f'); at != std::string::npos; at = out.find('\x7f', at)) out.replace(at, 1, "\\u007f");
  return out;
}

}  // namespace distsetup
