#include "text/tokenizer/aligned_text.h"

#include "text/tokenizer/unicode.h"

namespace distsetup {

TextRange AlignedText::in_input(TextRange range) const {
  if (!spans.empty()) return {spans[range.begin].begin, spans[range.end - 1].end};
  while (range.begin > 0 && is_continuation(bytes[range.begin])) --range.begin;
  while (range.end < bytes.size() && is_continuation(bytes[range.end])) ++range.end;
  return range;
}

AlignedText aligned_text(std::string_view input) {
  AlignedText text;
  text.bytes = input;
  if (!input.empty()) text.pieces.push_back({{0, static_cast<uint32_t>(input.size())}, kNoToken});
  return text;
}

void AlignedTextBuilder::end_piece(int64_t token) {
  const auto end = static_cast<uint32_t>(to_.bytes.size());
  if (end > piece_begin_) to_.pieces.push_back({{piece_begin_, end}, token});
  piece_begin_ = end;
}

void AlignedTextBuilder::copy(TextRange range) {
  to_.bytes += from_.view(range);
  if (!from_.spans.empty()) {
    to_.spans.insert(to_.spans.end(), from_.spans.begin() + range.begin, from_.spans.begin() + range.end);
    return;
  }
  for (uint32_t at = range.begin; at < range.end;) {
    const uint32_t length = code_point_at(from_.bytes, at).num_bytes;
    to_.spans.insert(to_.spans.end(), length, {at, at + length});
    at += length;
  }
}

void AlignedTextBuilder::add(std::string_view text, TextRange span) {
  to_.bytes += text;
  to_.spans.insert(to_.spans.end(), text.size(), span);
}

}  // namespace distsetup
