#include "text/tokenizer/sentencepiece_rules.h"

#include <algorithm>
#include <charconv>

#include "base/names.h"
#include "text/tokenizer/unicode.h"

namespace distsetup {
namespace {

constexpr std::string_view kMetaBlank = "\u2581";

// What the text begins with, and what it becomes.
CharsMap::Rule first_rule(const SentencePieceRules& rules, std::string_view text) {
  size_t verbatim = 0;
  if (rules.verbatim != nullptr) rules.verbatim->prefixes(text, [&](size_t num_bytes, uint32_t) { verbatim = num_bytes; });
  if (verbatim > 0) return {verbatim, text.substr(0, verbatim)};
  if (rules.map != nullptr) {
    if (const auto rule = rules.map->longest(text)) return *rule;
  }
  const size_t length = code_point_at(text, 0).num_bytes;
  return {length, text.substr(0, length)};
}

}  // namespace

void apply_rules(const SentencePieceRules& rules, AlignedText& text) {
  if (text.pieces.empty()) return;
  const std::string input = std::move(text.bytes);
  const std::string_view blank = rules.escape_whitespaces ? kMetaBlank : " ";
  std::string out;
  std::vector<TextRange> spans;
  const auto add = [&](std::string_view bytes, size_t begin, size_t end) {
    out += bytes;
    spans.insert(spans.end(), bytes.size(), {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
  };
  size_t at = 0;
  while (rules.remove_extra_whitespaces && at < input.size()) {
    const CharsMap::Rule rule = first_rule(rules, std::string_view(input).substr(at));
    if (rule.by != " ") break;
    at += rule.num_bytes;
  }
  const bool only_blanks = at == input.size();
  if (rules.dummy_prefix && !only_blanks) add(blank, at, at);
  bool after_blank = rules.remove_extra_whitespaces;
  while (at < input.size()) {
    const CharsMap::Rule rule = first_rule(rules, std::string_view(input).substr(at));
    std::string_view by = rule.by;
    while (after_blank && by.starts_with(' ')) by.remove_prefix(1);
    const size_t end = at + rule.num_bytes;
    // What becomes nothing belongs to the character before it.
    if (by.empty()) {
      for (size_t i = spans.size(); i > 0 && spans[i - 1].end == at; --i) spans[i - 1].end = static_cast<uint32_t>(end);
    }
    for (const char c : by) add(c == ' ' ? blank : std::string_view(&c, 1), at, end);
    if (!by.empty()) after_blank = rules.remove_extra_whitespaces && by.ends_with(' ');
    at = end;
  }
  while (rules.remove_extra_whitespaces && out.ends_with(blank)) {
    out.resize(out.size() - blank.size());
    spans.resize(out.size());
  }
  text.bytes = std::move(out);
  text.spans = std::move(spans);
  text.pieces.clear();
  if (!text.bytes.empty()) text.pieces.push_back({{0, static_cast<uint32_t>(text.bytes.size())}, kNoToken});
}

namespace {

void flush_bytes(std::string& bytes, std::string& out) {
  for (size_t at = 0; at < bytes.size();) {
    const size_t length = utf8_length(std::string_view(bytes).substr(at));
    out += length == 0 ? "\uFFFD" : bytes.substr(at, length);
    at += std::max<size_t>(length, 1);
  }
  bytes.clear();
}

std::string with_blanks(std::string_view piece) {
  std::string out;
  while (!piece.empty()) {
    const size_t next = std::min(piece.find(kMetaBlank), piece.size());
    out += piece.substr(0, next);
    if (next == piece.size()) break;
    out += ' ';
    piece.remove_prefix(next + kMetaBlank.size());
  }
  return out;
}

}  // namespace

std::string decode_pieces(const SentencePieceDecoding& decoding, const std::vector<std::string>& tokens,
                          const std::vector<uint32_t>& ids) {
  std::string out, bytes;
  bool at_begin = true, dropped = false;
  for (const uint32_t id : ids) {
    const PieceKind kind = id < decoding.kinds.size() ? decoding.kinds[id] : PieceKind::kText;
    std::string_view piece = tokens[id];
    if (kind == PieceKind::kByte) {
      int byte = 0;
      std::from_chars(piece.data() + 3, piece.data() + 5, byte, 16);
      bytes += static_cast<char>(byte);
      continue;
    }
    flush_bytes(bytes, out);
    if (dropped || !out.empty()) at_begin = false;
    dropped = false;
    if (kind == PieceKind::kControl) continue;
    if (kind == PieceKind::kUnknown) {
      out += decoding.unknown_as;
      continue;
    }
    if (at_begin && (decoding.drops_first_blank || decoding.drops_first_blanks) && piece.starts_with(kMetaBlank)) {
      piece.remove_prefix(kMetaBlank.size());
      dropped = !decoding.drops_first_blanks;
    }
    out += with_blanks(piece);
  }
  flush_bytes(bytes, out);
  return out;
}

}  // namespace distsetup
