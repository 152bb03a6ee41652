#include "text/template/text_splits.h"

#include <algorithm>

#include "base/names.h"
#include "text/template/characters.h"
#include "text/template/steps.h"

namespace distsetup::jinja {
namespace {

// Bytes of the line break at the start of `text`; 0: none is there.
size_t line_break(std::string_view text) {
  if (text.substr(0, 2) == "\r\n") return 2;
  const char c = text[0];
  if ((c >= '\n' && c <= '\r') || (c >= '\x1c' && c <= '\x1e')) return 1;
  for (const std::string_view mark : {"\u0085", "\u2028", "\u2029"}) {
    if (text.substr(0, mark.size()) == mark) return mark.size();
  }
  return 0;
}

}  // namespace

Texts split_at(std::string_view text, std::string_view separator, Integer max) {
  Texts out;
  while (max < 0 || static_cast<Integer>(out.size()) < max) {
    const size_t at = text.find(separator);
    if (at == std::string_view::npos) break;
    out.emplace_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  out.emplace_back(text);
  return out;
}

Texts split_from_right(std::string_view text, std::string_view separator, Integer max) {
  Texts out;
  while (max < 0 || static_cast<Integer>(out.size()) < max) {
    const size_t at = text.rfind(separator);
    if (at == std::string_view::npos) break;
    out.emplace_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  out.emplace_back(text);
  std::reverse(out.begin(), out.end());
  return out;
}

Texts split_at_space(std::string_view text, Integer max) {
  Texts out;
  for (text = strip(text, Side::kLeft); !text.empty(); text = strip(text, Side::kLeft)) {
    if (max >= 0 && static_cast<Integer>(out.size()) == max) {
      out.emplace_back(text);  // what is left keeps the whitespace at its end
      break;
    }
    size_t end = 0;
    while (end < text.size() && strip(text.substr(end, utf8_length(text.substr(end))), Side::kLeft) != "")
      end += utf8_length(text.substr(end));
    out.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return out;
}

Texts split_at_space_from_right(std::string_view text, Integer max) {
  Texts out;
  for (text = strip(text, Side::kRight); !text.empty(); text = strip(text, Side::kRight)) {
    if (max >= 0 && static_cast<Integer>(out.size()) == max) {
      out.emplace_back(text);
      break;
    }
    size_t begin = text.size();
    while (begin > 0) {
      size_t start = begin - 1;
      while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
      if (is_blank(text.substr(start, begin - start))) break;
      begin = start;
    }
    out.emplace_back(text.substr(begin));
    text = text.substr(0, begin);
  }
  std::reverse(out.begin(), out.end());
  return out;
}

Texts split_lines(std::string_view text, bool keeps_ends) {
  Texts out;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t size = line_break(text.substr(at));
    if (size == 0) {
      ++at;
      continue;
    }
    out.emplace_back(text.substr(begin, at - begin + (keeps_ends ? size : 0)));
    at += size;
    begin = at;
  }
  if (begin < text.size()) out.emplace_back(text.substr(begin));
  return out;
}

std::string replaced(std::string_view text, std::string_view old, std::string_view with, Integer max) {
  std::string out;
  Integer times = 0;
  const auto is_more = [&] { return max < 0 || times < max; };
  if (old.empty()) {  // between all characters
    for (const std::string& one : characters_of(text)) {
      if (is_more()) out += with, ++times;
      out += one;
      count_bytes(with.size() + 32);
    }
    return is_more() ? out + std::string(with) : out;
  }
  size_t begin = 0;
  for (size_t at = text.find(old); at != std::string_view::npos && is_more(); at = text.find(old, begin), ++times) {
    out += text.substr(begin, at - begin);
    out += with;
    begin = at + old.size();
    count_bytes(with.size() + 32);
  }
  return out + std::string(text.substr(begin));
}

std::string aligned(std::string_view text, Align align, Integer width, std::string_view fill) {
  const auto size = static_cast<Integer>(num_characters(text));
  if (width <= size) return std::string(text);
  constexpr Integer kMaxWidth = 1 << 24;
  if (width > kMaxWidth) fail("a text is filled to more than 16,777,216 characters");
  const Integer missing = width - size;
  count_bytes(static_cast<uint64_t>(missing) * fill.size());
  Integer left = align == Align::kRight ? missing : 0;
  if (align == Align::kCentre) left = missing / 2 + (missing & width & 1);  // as Python rounds
  std::string out;
  for (Integer i = 0; i < left; ++i) out += fill;
  out += text;
  for (Integer i = left; i < missing; ++i) out += fill;
  return out;
}

}  // namespace distsetup::jinja
