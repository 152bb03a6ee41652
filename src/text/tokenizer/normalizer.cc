#include "text/tokenizer/normalizer.h"

#include <algorithm>

#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/unicode.h"

namespace distsetup {
namespace {

std::vector<uint32_t> code_points(std::string_view text) {
  std::vector<uint32_t> out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    out.push_back(c.value);
    at += c.num_bytes;
  }
  return out;
}

// Writes characters in place of the old text's [begin, end), after `skipped` characters of it that go. See ChangedCharacter.
void write_changed(AlignedTextBuilder& builder, const AlignedText& text, TextRange range,
                   const std::vector<ChangedCharacter>& characters) {
  uint32_t at = range.begin;
  const auto next = [&] {
    if (at < range.end) at += code_point_at(text.bytes, at).num_bytes;
  };
  std::string utf8;
  for (const ChangedCharacter& one : characters) {
    utf8.clear();
    append_utf8(utf8, one.value);
    if (one.change > 0) {
      builder.replace(utf8, at > range.begin ? at - 1 : range.begin);
      continue;
    }
    builder.replace(utf8, std::min(at, range.end - 1));
    for (int i = one.change; i <= 0; ++i) next();
  }
}

// Rewrites every piece that is no token by `rewrite`: (piece's range, builder) -> nothing.
template <class Rewrite>
void rewrite_pieces(AlignedText& text, Rewrite rewrite) {
  AlignedTextBuilder builder(text);
  for (const Piece& piece : text.pieces) {
    builder.begin_piece();
    if (piece.token == kNoToken) {
      rewrite(piece.range, builder);
    } else {
      builder.copy(piece.range);
    }
    builder.end_piece(piece.token);
  }
  text = builder.take();
}

// Stretches that a normal form can change: what is not ASCII, with the one character before it.
std::vector<TextRange> foreign_stretches(std::string_view text, uint32_t begin, uint32_t end) {
  std::vector<TextRange> out;
  for (uint32_t at = begin; at < end; ++at) {
    if (static_cast<uint8_t>(text[at]) < 0x80) continue;
    const uint32_t first = at > begin ? at - 1 : at;
    while (at < end && static_cast<uint8_t>(text[at]) >= 0x80) ++at;
    out.push_back({first, at});
  }
  return out;
}

bool apply(NormalForm form, AlignedText& text, RegexScratch&) {
  struct Change {
    TextRange range;
    std::vector<ChangedCharacter> characters;
  };
  std::vector<Change> changes;
  for (const Piece& piece : text.pieces) {
    if (piece.token != kNoToken) continue;
    for (const TextRange stretch : foreign_stretches(text.bytes, piece.range.begin, piece.range.end)) {
      std::vector<ChangedCharacter> characters = normal_form(form, text.view(stretch));
      const std::vector<uint32_t> old = code_points(text.view(stretch));
      const bool same = std::equal(old.begin(), old.end(), characters.begin(), characters.end(),
                                   [](uint32_t a, const ChangedCharacter& b) { return a == b.value; });
      if (!same) changes.push_back({stretch, std::move(characters)});
    }
  }
  if (changes.empty()) return true;
  size_t next = 0;
  rewrite_pieces(text, [&](TextRange range, AlignedTextBuilder& builder) {
    uint32_t done = range.begin;
    for (; next < changes.size() && changes[next].range.begin < range.end; ++next) {
      builder.copy({done, changes[next].range.begin});
      write_changed(builder, text, changes[next].range, changes[next].characters);
      done = changes[next].range.end;
    }
    builder.copy({done, range.end});
  });
  return true;
}

bool apply(const Lowercase&, AlignedText& text, RegexScratch&) {
  rewrite_pieces(text, [&](TextRange range, AlignedTextBuilder& builder) {
    std::vector<ChangedCharacter> characters;
    for (const uint32_t c : code_points(text.view(range))) append_lower(characters, c);
    write_changed(builder, text, range, characters);
  });
  return true;
}

bool apply(const StripSpace& strip, AlignedText& text, RegexScratch&) {
  rewrite_pieces(text, [&](TextRange range, AlignedTextBuilder& builder) {
    while (strip.left && range.begin < range.end) {
      const CodePoint c = code_point_at(text.bytes, range.begin);
      if (!is_white_space(c.value)) break;
      range.begin += c.num_bytes;
    }
    while (strip.right && range.begin < range.end) {
      const size_t last = previous_at(text.bytes, range.end);
      if (!is_white_space(code_point_at(text.bytes, last).value)) break;
      range.end = static_cast<uint32_t>(last);
    }
    builder.copy(range);
  });
  return true;
}

// `make`: the character to keep, or none.
template <class Make>
void filter(AlignedText& text, Make make) {
  rewrite_pieces(text, [&](TextRange range, AlignedTextBuilder& builder) {
    std::string utf8;
    for (uint32_t at = range.begin; at < range.end;) {
      const CodePoint c = code_point_at(text.bytes, at);
      utf8.clear();
      if (make(c.value, utf8)) builder.replace(utf8, at);
      at += c.num_bytes;
    }
  });
}

bool apply(const NmtRules&, AlignedText& text, RegexScratch&) {
  filter(text, [](uint32_t c, std::string& utf8) {
    const bool is_blank = c == 9 || c == 10 || c == 12 || c == 13 || c == 0x1680 || (c >= 0x200B && c <= 0x200F) || c == 0x2028 ||
                          c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
    append_utf8(utf8, is_blank ? ' ' : c);
    return !((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F);
  });
  return true;
}

bool apply(const PrependText& prepend, AlignedText& text, RegexScratch&) {
  rewrite_pieces(text, [&](TextRange range, AlignedTextBuilder& builder) {
    builder.replace(prepend.text, range.begin);
    builder.copy(range);
  });
  return true;
}

bool apply(const ReplaceMatches& replace, AlignedText& text, RegexScratch& scratch) {
  bool changed = false, found = false;
  const std::string other = with_stand_ins(text.bytes, changed);
  const std::string_view bytes = changed ? other : text.bytes;
  std::vector<std::vector<TextRange>> matches(text.pieces.size());
  for (size_t i = 0; i < text.pieces.size(); ++i) {
    const TextRange in = text.pieces[i].range;
    if (text.pieces[i].token != kNoToken) continue;
    if (!replace.regex.find_all(bytes.substr(in.begin, in.end - in.begin), scratch, matches[i])) return false;
    found |= !matches[i].empty();
  }
  if (!found) return true;
  const std::vector<Piece> pieces = text.pieces;
  size_t next = 0;
  rewrite_pieces(text, [&](TextRange range, AlignedTextBuilder& builder) {
    while (pieces[next].token != kNoToken) ++next;
    uint32_t done = range.begin;
    for (const TextRange match : matches[next++]) {
      builder.copy({done, range.begin + match.begin});
      // put in behind the last character that it replaces
      const uint32_t end = range.begin + match.end;
      builder.replace(replace.content, end > range.begin ? end - 1 : end);
      done = end;
    }
    builder.copy({done, range.end});
  });
  return true;
}

bool apply(const ByteCharacters&, AlignedText& text, RegexScratch&) {
  rewrite_pieces(text, [&](TextRange range, AlignedTextBuilder& builder) {
    for (uint32_t at = range.begin; at < range.end; ++at) builder.replace(byte_character(static_cast<uint8_t>(text.bytes[at])), at);
  });
  return true;
}

// What a rule makes of `old` characters: the same number replaced, more put in, fewer taken away at the end.
void add_replaced(std::vector<ChangedCharacter>& characters, std::string_view old, std::string_view by) {
  const std::vector<uint32_t> added = code_points(by);
  for (const uint32_t c : added) characters.push_back({c, 0});
  const int more = static_cast<int>(added.size()) - static_cast<int>(num_code_points(old));
  for (int i = 0; i < more; ++i) characters[characters.size() - 1 - static_cast<size_t>(i)].change = 1;
  if (more < 0 && !characters.empty()) characters.back().change += more;
}

constexpr size_t kLongCluster = 6;  // bytes; rules are for shorter ones

bool apply(const PrecompiledRules& rules, AlignedText& text, RegexScratch&) {
  rewrite_pieces(text, [&](TextRange range, AlignedTextBuilder& builder) {
    const std::string_view piece = text.view(range);
    std::vector<ChangedCharacter> characters;
    bool changed = false;
    const auto add = [&](std::string_view part) {
      const auto rule = rules.map->shortest(part);
      if (rule) {
        add_replaced(characters, part, rule->by);
        changed = true;
      }
      return rule.has_value();
    };
    for (size_t at = 0; at < piece.size();) {
      const std::string_view cluster = piece.substr(at, end_of_cluster(piece, at) - at);
      at += cluster.size();
      if (cluster.size() < kLongCluster && add(cluster)) continue;
      for (size_t i = 0; i < cluster.size();) {
        const CodePoint c = code_point_at(cluster, i);
        if (!add(cluster.substr(i, c.num_bytes))) characters.push_back({c.value, 0});
        i += c.num_bytes;
      }
    }
    if (changed) {
      write_changed(builder, text, range, characters);
    } else {
      builder.copy(range);
    }
  });
  return true;
}

bool apply(const SentencePieceRules& rules, AlignedText& text, RegexScratch&) {
  apply_rules(rules, text);
  return true;
}

}  // namespace

bool normalize(const Normalizer& step, AlignedText& text, RegexScratch& scratch) {
  return std::visit([&](const auto& one) { return apply(one, text, scratch); }, step);
}

}  // namespace distsetup
