// utf8proc 2.8 has the properties of Unicode 15, as Python 3.12 does. A Python with another Unicode differs in the characters that are
// younger than one of them: what repr() escapes, and upper and lower case.
#include "text/template/characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "base/names.h"

namespace distsetup::jinja {
namespace {

bool is_among(char32_t c, std::u32string_view pairs) {  // pairs: first, last, first, last …
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    if (c >= pairs[i] && c <= pairs[i + 1]) return true;
  }
  return false;
}

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

// Unicode's Other_Lowercase and Other_Uppercase (PropList.txt): letters in all but their category.
constexpr std::u32string_view kOtherLower =
    U"\u00aa\u00aa\u00ba\u00ba\u02b0\u02b8\u02c0\u02c1\u02e0\u02e4\u0345\u0345\u037a\u037a\u1d2c\u1d6a\u1d78\u1d78\u1d9b\u1dbf\u2071"
    U"\u2071"
    U"\u207f\u207f\u2090\u209c\u2170\u217f\u24d0\u24e9\u2c7c\u2c7d\ua69c\ua69d\ua770\ua770\ua7f8\ua7f9\uab5c\uab5f\U00010780\U00010780"
    U"\U00010783\U00010785\U00010787\U000107b0\U000107b2\U000107ba";
constexpr std::u32string_view kOtherUpper = U"\u2160\u216f\u24b6\u24cf\U0001f130\U0001f149\U0001f150\U0001f169\U0001f170\U0001f189";

char32_t decode(std::string_view text, size_t& position) {
  utf8proc_int32_t c = 0;
  const auto length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + position),
                                       static_cast<utf8proc_ssize_t>(text.size() - position), &c);
  position += static_cast<size_t>(std::max<utf8proc_ssize_t>(length, 1));
  return length > 0 ? static_cast<char32_t>(c) : U'\ufffd';
}

}  // namespace

size_t num_characters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::vector<std::string> characters_of(std::string_view text) {
  std::vector<std::string> out;
  for (size_t position = 0; position < text.size();) {
    const size_t length = std::max<size_t>(utf8_length(text.substr(position)), 1);
    out.emplace_back(text.substr(position, length));
    position += length;
  }
  return out;
}

std::u32string code_points(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t position = 0; position < text.size();) out += decode(text, position);
  return out;
}

void append_code_point(std::string& to, char32_t code_point) {
  utf8proc_uint8_t bytes[4];
  to.append(reinterpret_cast<const char*>(bytes),
            static_cast<size_t>(utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes)));
}

std::string utf8(std::u32string_view code_points) {
  std::string out;
  for (const char32_t c : code_points) append_code_point(out, c);
  return out;
}

bool is_space(char32_t c) {
  return (c >= 0x9 && c <= 0xd) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
         c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c == U' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool is_alphabetic(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_digit_like(char32_t c) {
  return is_decimal(c) || is_among(c,
                                   U"\u00b2\u00b3\u00b9\u00b9\u1369\u1371\u19da\u19da\u2070\u2070\u2074\u2079\u2080\u2089\u2460\u2468"
                                   U"\u2474\u247c\u2488\u2490\u24ea\u24ea\u24f5\u24fd\u24ff\u24ff\u2776\u277e\u2780\u2788\u278a\u2792"
                                   U"\U00010a40\U00010a43\U00010e60\U00010e68\U00011052\U0001105a\U0001f100\U0001f10a");
}

bool is_numeric(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}

bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || is_among(c, kOtherLower); }
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU || is_among(c, kOtherUpper); }
bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

std::string_view strip(std::string_view text, Side side, std::optional<std::string_view> chars) {
  const std::u32string dropped = chars ? code_points(*chars) : U"";
  const auto goes = [&](char32_t c) { return chars ? dropped.find(c) != std::u32string::npos : is_space(c); };
  size_t begin = 0, end = text.size();
  while (side != Side::kRight && begin < end) {
    size_t after = begin;
    if (!goes(decode(text, after))) break;
    begin = after;
  }
  while (side != Side::kLeft && end > begin) {
    size_t start = end - 1;
    while (start > begin && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
    size_t after = start;
    if (!goes(decode(text, after))) break;
    end = start;
  }
  return text.substr(begin, end - begin);
}

bool is_blank(std::string_view text) { return strip(text, Side::kLeft).empty(); }

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace distsetup::jinja
