#include "text/tokenizer/added_tokens.h"

#include <algorithm>

#include "text/tokenizer/unicode.h"

namespace distsetup {
namespace {

bool is_single_word(std::string_view text, size_t begin, size_t end) {
  const bool touches_before = begin > 0 && is_word(code_point_at(text, previous_at(text, begin)).value);
  const bool touches_behind = end < text.size() && is_word(code_point_at(text, end).value);
  return !touches_before && !touches_behind;
}

size_t skip_white_space(std::string_view text, size_t at) {
  while (at < text.size()) {
    const CodePoint c = code_point_at(text, at);
    if (!is_white_space(c.value)) break;
    at += c.num_bytes;
  }
  return at;
}

size_t skip_white_space_before(std::string_view text, size_t at, size_t least) {
  while (at > least) {
    const size_t before = previous_at(text, at);
    if (!is_white_space(code_point_at(text, before).value)) break;
    at = before;
  }
  return std::max(at, least);
}

}  // namespace

void AddedTokenMatcher::add(const AddedToken& token, std::string_view text) {
  if (text.empty()) return;
  trie_.insert(text, static_cast<uint32_t>(tokens_.size()));
  can_begin_[static_cast<uint8_t>(text[0])] = true;
  tokens_.push_back(token);
}

void AddedTokenMatcher::finish() { trie_.finish(); }

void AddedTokenMatcher::cut(AlignedText& text, bool with_special) const {
  if (tokens_.empty()) return;
  std::vector<Piece> pieces;
  const auto add = [&](size_t begin, size_t end, int64_t token) {
    if (begin < end) pieces.push_back({{static_cast<uint32_t>(begin), static_cast<uint32_t>(end)}, token});
  };
  for (const Piece& piece : text.pieces) {
    if (piece.token != kNoToken) {
      pieces.push_back(piece);
      continue;
    }
    const std::string_view whole = text.view(piece.range);
    const size_t shift = piece.range.begin;
    size_t done = 0;
    for (size_t at = 0; at < whole.size();) {
      size_t length = 0;
      uint32_t which = 0;
      if (can_begin_[static_cast<uint8_t>(whole[at])]) {
        trie_.prefixes(whole.substr(at), [&](size_t num_bytes, uint32_t id) {
          length = num_bytes;
          which = id;
        });
      }
      if (length == 0) {
        ++at;
        continue;
      }
      size_t begin = at, end = at + length;
      at = end;
      const AddedToken& token = tokens_[which];
      if (token.special && !with_special) continue;
      if (token.single_word && !is_single_word(whole, begin, end)) continue;
      if (begin < done) continue;  // inside the white space that the token before has taken
      if (token.lstrip) begin = skip_white_space_before(whole, begin, done);
      if (token.rstrip) end = skip_white_space(whole, end);
      add(shift + done, shift + begin, kNoToken);
      add(shift + begin, shift + end, token.id);
      done = end;
    }
    add(shift + done, shift + whole.size(), kNoToken);
  }
  text.pieces = std::move(pieces);
}

}  // namespace distsetup
