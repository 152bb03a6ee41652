// How SentencePiece itself rewrites a text and decodes pieces; of tokenizer.json's `Precompiled` only the rules are the same.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer/aligned_text.h"
#include "text/tokenizer/chars_map.h"
#include "text/tokenizer/unigram.h"

namespace distsetup {

struct SentencePieceRules {
  std::shared_ptr<const CharsMap> map;         // none: no rules
  std::shared_ptr<const PrefixTrie> verbatim;  // user-defined pieces, which no rule touches
  bool dummy_prefix = true;                    // a blank before the text
  bool remove_extra_whitespaces = true;        // at the ends, and of several blanks all but one
  bool escape_whitespaces = true;              // blanks as U+2581
};
void apply_rules(const SentencePieceRules& rules, AlignedText& text);

enum class PieceKind : uint8_t { kText, kUnknown, kControl, kByte };
struct SentencePieceDecoding {
  std::vector<PieceKind> kinds;  // by id
  std::string unknown_as = " \u2047 ";
  bool drops_first_blank = true, drops_first_blanks = false;
};
std::string decode_pieces(const SentencePieceDecoding& decoding, const std::vector<std::string>& tokens,
                          const std::vector<uint32_t>& ids);

}  // namespace distsetup
