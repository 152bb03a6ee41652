#include "text/tokenizer/pre_tokenizer.h"

#include <algorithm>

#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/unicode.h"

namespace distsetup {
namespace {

struct SplitPart {
  TextRange range;
  bool is_match = false;
};

// The whole of [0, size) as matches and what is between them.
void parts_of(const std::vector<TextRange>& matches, uint32_t size, bool invert, std::vector<SplitPart>& parts) {
  parts.clear();
  uint32_t end = 0;
  for (const TextRange match : matches) {
    if (end != match.begin) parts.push_back({{end, match.begin}, invert});
    parts.push_back({match, !invert});
    end = match.end;
  }
  if (end != size) parts.push_back({{end, size}, invert});
}

// Joins parts as the behaviour wants it; parts that are left out become empty.
void join(std::vector<SplitPart>& parts, SplitBehavior behavior) {
  std::vector<SplitPart> joined;
  bool previous = false;
  const auto append = [&](const SplitPart& part, bool with_last) {
    if (with_last && !joined.empty()) {
      joined.back().range = {std::min(joined.back().range.begin, part.range.begin), std::max(joined.back().range.end, part.range.end)};
    } else {
      joined.push_back(part);
    }
    previous = part.is_match;
  };
  switch (behavior) {
    case SplitBehavior::kIsolated: return;
    case SplitBehavior::kRemoved:
      for (const SplitPart& part : parts) {
        if (!part.is_match) joined.push_back(part);
      }
      break;
    case SplitBehavior::kContiguous:
      for (const SplitPart& part : parts) append(part, part.is_match == previous);
      break;
    case SplitBehavior::kMergedWithPrevious:
      for (const SplitPart& part : parts) append(part, part.is_match && !previous);
      break;
    case SplitBehavior::kMergedWithNext:
      for (size_t i = parts.size(); i-- > 0;) append(parts[i], parts[i].is_match && !previous);
      std::reverse(joined.begin(), joined.end());
      break;
  }
  parts = std::move(joined);
}

// Cuts every piece that is no token yet where `find` says: (bytes of the piece, matches) -> whether it could.
template <class Find>
bool cut_pieces(AlignedText& text, SplitBehavior behavior, bool invert, std::string_view bytes, Find find) {
  std::vector<Piece> pieces;
  pieces.reserve(text.pieces.size() + bytes.size() / 4);
  std::vector<TextRange> matches;
  std::vector<SplitPart> parts;
  for (const Piece& piece : text.pieces) {
    if (piece.token != kNoToken) {
      pieces.push_back(piece);
      continue;
    }
    const TextRange in = piece.range;
    if (!find(bytes.substr(in.begin, in.end - in.begin), matches)) return false;
    parts_of(matches, in.end - in.begin, invert, parts);
    join(parts, behavior);
    for (const SplitPart& part : parts) {
      if (part.range.begin < part.range.end) pieces.push_back({{in.begin + part.range.begin, in.begin + part.range.end}, kNoToken});
    }
  }
  text.pieces = std::move(pieces);
  return true;
}

bool is_in_class(const CharacterSplit& split, uint32_t c) {
  switch (split.what) {
    case CharacterClass::kNumeric: return is_numeric(c);
    case CharacterClass::kPunctuation: return is_punctuation(c);
    case CharacterClass::kWhiteSpace: return is_white_space(c);
    case CharacterClass::kOneCharacter: return c == split.character;
  }
  return false;
}

bool apply(const RegexSplit& split, AlignedText& text, RegexScratch& scratch) {
  bool changed = false;
  const std::string other = with_stand_ins(text.bytes, changed);
  return cut_pieces(
      text, split.behavior, split.invert, changed ? other : text.bytes,
      [&](std::string_view piece, std::vector<TextRange>& matches) { return split.regex.find_all(piece, scratch, matches); });
}

bool apply(const CharacterSplit& split, AlignedText& text, RegexScratch&) {
  return cut_pieces(text, split.behavior, false, text.bytes, [&](std::string_view piece, std::vector<TextRange>& matches) {
    matches.clear();
    for (size_t at = 0; at < piece.size();) {
      const CodePoint c = code_point_at(piece, at);
      if (is_in_class(split, c.value)) matches.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(at + c.num_bytes)});
      at += c.num_bytes;
    }
    return true;
  });
}

bool apply(const PrefixSpace&, AlignedText& text, RegexScratch&) {
  bool all_have = true;
  for (const Piece& piece : text.pieces) all_have &= piece.token != kNoToken || text.bytes[piece.range.begin] == ' ';
  if (all_have) return true;
  AlignedTextBuilder builder(text);
  for (const Piece& piece : text.pieces) {
    builder.begin_piece();
    if (piece.token == kNoToken && text.bytes[piece.range.begin] != ' ') builder.replace(" ", piece.range.begin);
    builder.copy(piece.range);
    builder.end_piece(piece.token);
  }
  text = builder.take();
  return true;
}

bool apply(const BytesAsCharacters&, AlignedText& text, RegexScratch&) {
  AlignedTextBuilder builder(text);
  for (const Piece& piece : text.pieces) {
    builder.begin_piece();
    if (piece.token != kNoToken) builder.copy(piece.range);
    for (uint32_t at = piece.range.begin; piece.token == kNoToken && at < piece.range.end; ++at)
      builder.replace(byte_character(static_cast<uint8_t>(text.bytes[at])), at);
    builder.end_piece(piece.token);
  }
  text = builder.take();
  return true;
}

bool apply(const Metaspace& meta, AlignedText& text, RegexScratch&) {
  AlignedTextBuilder builder(text);
  for (const Piece& piece : text.pieces) {
    const TextRange in = piece.range;
    builder.begin_piece();
    if (piece.token != kNoToken) {
      builder.copy(in);
      builder.end_piece(piece.token);
      continue;
    }
    const bool begins_with_it = text.bytes[in.begin] == ' ' || text.view(in).starts_with(meta.replacement);
    const bool is_first = text.in_input({in.begin, in.begin + 1}).begin == 0;
    if (!begins_with_it && (meta.prepend == PrependScheme::kAlways || (meta.prepend == PrependScheme::kFirst && is_first)))
      builder.replace(meta.replacement, in.begin);
    uint32_t copied = in.begin;
    for (uint32_t at = in.begin; at < in.end; ++at) {
      const bool is_blank = text.bytes[at] == ' ';
      const bool is_replacement = !is_blank && text.bytes.compare(at, meta.replacement.size(), meta.replacement) == 0 &&
                                  at + meta.replacement.size() <= in.end;
      if (!is_blank && !is_replacement) continue;
      builder.copy({copied, at});
      if (meta.split) {
        builder.end_piece();
        builder.begin_piece();
      }
      copied = at;
      if (is_blank) {
        builder.replace(meta.replacement, at);
        copied = at + 1;
      }
    }
    builder.copy({copied, in.end});
    builder.end_piece();
  }
  text = builder.take();
  return true;
}

bool apply(const FixedLength& fixed, AlignedText& text, RegexScratch&) {
  return cut_pieces(text, SplitBehavior::kIsolated, false, text.bytes, [&](std::string_view piece, std::vector<TextRange>& matches) {
    matches.clear();
    uint32_t begin = 0;
    size_t count = 0;
    for (uint32_t at = 0; at < piece.size(); at += code_point_at(piece, at).num_bytes) {
      if (count++ % fixed.num_characters == 0 && at > 0) {
        matches.push_back({begin, at});
        begin = at;
      }
    }
    matches.push_back({begin, static_cast<uint32_t>(piece.size())});
    return true;
  });
}

}  // namespace

bool pre_tokenize(const PreTokenizer& step, AlignedText& text, RegexScratch& scratch) {
  return std::visit([&](const auto& one) { return apply(one, text, scratch); }, step);
}

}  // namespace distsetup
