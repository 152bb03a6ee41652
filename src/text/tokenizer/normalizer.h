// Steps that rewrite a text before it is cut: the normalizers of tokenizer.json.
#pragma once
#include <memory>
#include <string>
#include <variant>

#include "text/tokenizer/aligned_text.h"
#include "text/tokenizer/chars_map.h"
#include "text/tokenizer/normal_form.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/sentencepiece_rules.h"

namespace distsetup {

struct Lowercase {};
struct StripSpace {
  bool left = true, right = true;
};
struct PrependText {
  std::string text;
};
struct ReplaceMatches {
  Regex regex;
  std::string content;
};
// As SentencePiece's rule nmt: control characters are left out, what looks like a blank becomes one.
struct NmtRules {};
struct ByteCharacters {};  // see byte_level.h

// tokenizer.json's Precompiled: by grapheme clusters of less than six bytes, else by characters.
struct PrecompiledRules {
  std::shared_ptr<const CharsMap> map;
};

using Normalizer = std::variant<NormalForm, Lowercase, StripSpace, PrependText, ReplaceMatches, NmtRules, ByteCharacters,
                                PrecompiledRules, SentencePieceRules>;

// Every piece that is no token by itself. False: a regular expression gave up on this text.
bool normalize(const Normalizer& step, AlignedText& text, RegexScratch& scratch);

}  // namespace distsetup
