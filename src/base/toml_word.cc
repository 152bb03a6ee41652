// Numbers of TOML 1.0.0: '_' between digits only, no leading zeros, digits on both sides of the point; 0x, 0o and 0b become decimals.
// A date is recognised by its shape and left as it is.
#include "base/toml_word.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cstdint>
#include <string_view>

namespace distsetup {
namespace {

bool is_decimal_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_hex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

// Digits with an optional fraction and exponent, nothing else.
bool is_decimal(std::string_view text) {
  size_t at = 0;
  const auto digits = [&] {
    const size_t begin = at;
    while (at < text.size() && is_decimal_digit(text[at])) ++at;
    return at > begin;
  };
  if (!digits()) return false;
  if (at < text.size() && text[at] == '.') {
    ++at;
    if (!digits()) return false;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (!digits()) return false;
  }
  return at == text.size();
}

}  // namespace

TomlWord read_toml_word(const std::string& word) {
  const bool is_signed = word[0] == '+' || word[0] == '-';
  const std::string magnitude = word.substr(is_signed ? 1 : 0);
  if (word == "true" || word == "false" || magnitude == "inf" || magnitude == "nan") return {word, "", ""};
  if (magnitude.empty() || !is_decimal_digit(magnitude[0])) {
    return {"", fmt::format("found '{}', expected a value", word), fmt::format("a text needs quotes: \"{}\"", word)};
  }
  const bool is_date = word.size() >= 8 && (word.find(':') != std::string::npos || (word.size() >= 10 && word[4] == '-'));
  if (is_date) return {word, "", ""};
  std::string plain;
  for (size_t i = 0; i < magnitude.size(); ++i) {
    if (magnitude[i] != '_') {
      plain += magnitude[i];
    } else if (i + 1 == magnitude.size() || !is_hex(magnitude[i - 1]) || !is_hex(magnitude[i + 1])) {
      return {"", fmt::format("found '{}', expected digits on both sides of '_'", word), ""};
    }
  }
  const std::string prefix = is_signed ? "" : plain.substr(0, 2);
  const int base = prefix == "0x" ? 16 : prefix == "0o" ? 8 : prefix == "0b" ? 2 : 10;
  if (base != 10) {
    uint64_t integer = 0;
    const char* const end = plain.data() + plain.size();
    const auto [stop, status] = std::from_chars(plain.data() + 2, end, integer, base);
    if (status != std::errc() || stop != end) return {"", fmt::format("found '{}', expected a number", word), ""};
    return {std::to_string(integer), "", ""};
  }
  if (plain.size() > 1 && plain[0] == '0' && is_decimal_digit(plain[1]))
    return {"", fmt::format("found '{}', expected a number", word), "TOML has no numbers with a leading zero"};
  if (!is_decimal(plain))
    return {"", fmt::format("found '{}', expected a number", word), fmt::format("a text needs quotes: \"{}\"", word)};
  return {(word[0] == '-' ? "-" : "") + plain, "", ""};
}

bool append_utf8(uint32_t code_point, std::string& out) {
  if (code_point > 0x10ffff || (code_point >= 0xd800 && code_point < 0xe000)) return false;
  const auto put = [&out](uint32_t byte) { out += static_cast<char>(byte); };
  if (code_point < 0x80) {
    put(code_point);
    return true;
  }
  if (code_point < 0x800) {
    put(0xc0 | code_point >> 6);
  } else if (code_point < 0x10000) {
    put(0xe0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3f));
  } else {
    put(0xf0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3f));
    put(0x80 | (code_point >> 6 & 0x3f));
  }
  put(0x80 | (code_point & 0x3f));
  return true;
}

}  // namespace distsetup
