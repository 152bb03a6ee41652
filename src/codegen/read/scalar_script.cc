// Line folding of YAML 1.2.2: 6.5, 7.3 (flow scalars) and 8.1.3 (the folded style). What a scalar drops becomes a character that joins
// the words around it.
#include "codegen/read/scalar_script.h"

#include <algorithm>
#include <memory>

#include "codegen/shell/words.h"

namespace distsetup::foreign {
namespace {

bool is_yaml_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// The lines of a block scalar whose mark (| or >) stands at `mark`.
TextSpan block_range(std::string_view text, size_t mark) {
  const size_t first = std::min(text.find('\n', mark), text.size());
  size_t at = std::min(first + 1, text.size());
  size_t block_indent = std::string::npos;
  while (at < text.size()) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const size_t blanks = std::min(text.find_first_not_of(' ', at), text.size()) - at;
    const bool is_empty = at + blanks >= end;
    if (!is_empty && block_indent == std::string::npos) block_indent = blanks;
    if (!is_empty && (blanks < block_indent || blanks == 0)) break;
    at = end + 1;
  }
  return {std::min(first + 1, text.size()), std::min(at, text.size())};
}

// The line break between two lines of text is a blank; those around an empty line and around one that is further in stay.
void fold_block(std::string& text, TextSpan range) {
  size_t before = std::string::npos, indent = std::string::npos;  // the break behind the last line, where that can be folded
  for (size_t at = range.begin; at < range.end;) {
    const size_t end = std::min(text.find('\n', at), range.end);
    size_t first = at;
    while (first < end && text[first] == ' ') ++first;
    const bool is_empty = first == end || (first + 1 == end && text[first] == '\r');
    if (!is_empty && indent == std::string::npos) indent = first - at;
    const bool is_text = !is_empty && first - at == indent && text[first] != '\t';
    if (is_text && before != std::string::npos) text[before] = ' ';
    before = is_text && end < range.end ? end : std::string::npos;
    at = end + 1;
  }
}

// Of several line breaks in a row the first is dropped, a single one is a blank.
void fold_flow(std::string& text, TextSpan range) {
  for (size_t at = range.begin; at < range.end; ++at) {
    if (text[at] != '\n') continue;
    text[at] = ' ';
    while (at + 1 < range.end && (is_yaml_blank(text[at + 1]) || text[at + 1] == '\n')) ++at;
  }
}

// "a \"b\"": of a run of escapes first what is dropped, then what they stand for, so that nothing stands between that.
void unescape_double(std::string& text, TextSpan range) {
  for (size_t at = range.begin; at + 1 < range.end; ++at) {
    std::string meant;
    const size_t begin = at;
    for (; at + 1 < range.end && text[at] == '\\'; at += 2) {
      const char c = text[at + 1];
      const bool is_break = c == '\n' || (c == '\r' && at + 2 < range.end && text[at + 2] == '\n');
      const bool is_plain = c == '"' || c == '\\' || c == '/' || c == ' ' || c == 'n' || c == 't';
      if (!is_break && !is_plain) break;
      if (is_plain) meant += c == 'n' ? '\n' : c == 't' ? '\t' : c;
      if (!is_break) continue;
      size_t next = at + 2;
      while (next < range.end && (is_yaml_blank(text[next]) || text[next] == '\n')) ++next;
      at = next - 2;
    }
    if (at == begin) continue;
    const size_t end = std::min(at, range.end);
    std::fill(text.begin() + static_cast<std::ptrdiff_t>(begin), text.begin() + static_cast<std::ptrdiff_t>(end), kWordJoint);
    std::copy(meant.begin(), meant.end(), text.begin() + static_cast<std::ptrdiff_t>(end - meant.size()));
    at = end - 1;
  }
}

// 'it''s'
void unescape_single(std::string& text, TextSpan range) {
  for (size_t at = range.begin; at + 1 < range.end; ++at) {
    if (text[at] != '\'' || text[at + 1] != '\'') continue;
    text[at] = kWordJoint;
    ++at;
  }
}

size_t closing_quote(std::string_view text, size_t open) {
  const char quote = text[open];
  for (size_t at = open + 1; at < text.size(); ++at) {
    if (quote == '"' && text[at] == '\\') {
      ++at;
    } else if (text[at] == quote) {
      if (quote == '"' || at + 1 >= text.size() || text[at + 1] != '\'') return at;
      ++at;
    }
  }
  return open + 1;
}

// A plain scalar has no escapes: all that is not blank is in the file as it is in the value.
size_t end_of_plain(std::string_view text, size_t begin, std::string_view value) {
  size_t at = begin;
  for (const char c : value) {
    if (is_yaml_blank(c) || c == '\n') continue;
    while (at < text.size() && (is_yaml_blank(text[at]) || text[at] == '\n')) ++at;
    if (at >= text.size() || text[at] != c) break;
    ++at;
  }
  return at;
}

}  // namespace

TextSpan write_script(Document& d, const Value& value) {
  if (d.script_text == nullptr) d.script_text = std::make_shared<std::string>(d.text);
  std::string& text = *d.script_text;
  const size_t begin = d.offset(value.location);
  if (begin >= text.size()) return {0, 0};
  const char c = d.text[begin];
  const bool is_block = c == '|' || c == '>', is_quoted = value.quoted && (c == '"' || c == '\'');
  const TextSpan range = is_block    ? block_range(d.text, begin)
                         : is_quoted ? TextSpan{begin + 1, closing_quote(d.text, begin)}
                                     : TextSpan{begin, end_of_plain(d.text, begin, value.text)};
  const auto same = [&](const std::string& other) { return other.compare(range.begin, range.end - range.begin, d.cut(range)) == 0; };
  if (!same(text) || c == '|') return range;  // an alias of a scalar that is written already
  if (c == '>') {
    fold_block(text, range);
    return range;
  }
  fold_flow(text, range);
  if (!is_quoted) return range;
  std::string escapes = d.text;  // what one stands for is folded no more
  c == '"' ? unescape_double(escapes, range) : unescape_single(escapes, range);
  for (size_t at = range.begin; at < range.end; ++at) {
    if (escapes[at] != d.text[at]) text[at] = escapes[at];
  }
  return range;
}

}  // namespace distsetup::foreign
