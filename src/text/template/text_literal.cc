#include "text/template/text_literal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/names.h"
#include "text/template/characters.h"

namespace distsetup::jinja {
namespace {

char simple_escape(char c) {
  switch (c) {
    case 'a': return '\a';
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'v': return '\v';
    case '\\':
    case '\'':
    case '"': return c;
    default: return 0;
  }
}

// Reads hexadecimal digits of \x, \u, \U; false: too few, or no character.
bool append_hex(TextLiteral& to, std::string_view digits, size_t wanted) {
  if (digits.size() < wanted) return false;
  uint32_t number = 0;
  for (const char c : digits.substr(0, wanted)) {
    if (std::isxdigit(static_cast<unsigned char>(c)) == 0) return false;
    number = number * 16 + static_cast<uint32_t>(is_digit(c) ? c - '0' : std::tolower(static_cast<unsigned char>(c)) - 'a' + 10);
  }
  if (number > 0x10ffff || (number >= 0xd800 && number < 0xe000)) return false;
  append_code_point(to.text, number);
  return true;
}

// jinja2 writes other characters than ASCII as escapes first, so behind a backslash the escape's letters stay.
std::string escaped_character(std::string_view character) {
  const auto number = static_cast<uint32_t>(code_points(character).front());
  return number < 0x100     ? fmt::format("\\x{:02x}", number)
         : number < 0x10000 ? fmt::format("\\u{:04x}", number)
                            : fmt::format("\\U{:08x}", number);
}

// The escape behind a backslash at the start of `rest`; returns how many bytes it takes.
size_t append_escape(TextLiteral& to, std::string_view rest) {
  const char c = rest[0];
  if (c == '\n') return 1;
  if (const char simple = simple_escape(c)) {
    to.text += simple;
    return 1;
  }
  if (c >= '0' && c <= '7') {
    uint32_t number = 0;
    size_t length = 0;
    for (; length < 3 && length < rest.size() && rest[length] >= '0' && rest[length] <= '7'; ++length) {
      number = number * 8 + static_cast<uint32_t>(rest[length] - '0');
    }
    append_code_point(to.text, number);
    return length;
  }
  if (c == 'x' || c == 'u' || c == 'U') {
    const size_t wanted = c == 'x' ? 2 : c == 'u' ? 4 : 8;
    if (!append_hex(to, rest.substr(1), wanted))
      to.mistake = fmt::format("'\\{}' needs {} hexadecimal digits of a character", c, wanted);
    return 1 + wanted;
  }
  if (c == 'N') {
    to.mistake = "'\\N{name}' is not read: write the character itself";
    return 1;
  }
  const size_t length = std::max<size_t>(utf8_length(rest), 1);
  to.text += length > 1 ? escaped_character(rest.substr(0, length)) : fmt::format("\\{}", c);
  return length;
}

}  // namespace

TextLiteral text_literal(std::string_view between_quotes) {
  TextLiteral literal;
  for (size_t i = 0; i < between_quotes.size() && literal.mistake.empty();) {
    if (between_quotes[i] == '\\' && i + 1 < between_quotes.size()) {
      i += 1 + append_escape(literal, between_quotes.substr(i + 1));
    } else {
      literal.text += between_quotes[i++];
    }
  }
  return literal;
}

}  // namespace distsetup::jinja
