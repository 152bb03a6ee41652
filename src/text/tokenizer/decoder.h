// Steps from tokens back to text: the decoders of tokenizer.json. Each takes and returns a list of texts, which are joined at the end.
#pragma once
#include <string>
#include <variant>
#include <vector>

#include "text/tokenizer/regex.h"

namespace distsetup {

struct DecodeByteLevel {};     // characters back to bytes (byte_level.h); invalid UTF-8 becomes U+FFFD
struct DecodeByteFallback {};  // <0xE2> back to bytes
struct DecodeFuse {};          // one text of all
struct DecodeReplace {
  Regex regex;
  std::string content;
};
struct DecodeStrip {  // up to so many of this character from the ends of each token
  std::string character;
  size_t start = 0, stop = 0;
};
struct DecodeMetaspace {
  std::string replacement;
  bool drops_first = true;
};
struct DecodeEndSuffix {  // becomes a blank, at the end nothing
  std::string suffix;
};
struct DecodeJoin {};  // without decoders: blanks between tokens

using Decoder = std::variant<DecodeByteLevel, DecodeByteFallback, DecodeFuse, DecodeReplace, DecodeStrip, DecodeMetaspace,
                             DecodeEndSuffix, DecodeJoin>;

// False: a regular expression gave up.
bool decode_step(const Decoder& step, std::vector<std::string>& texts, RegexScratch& scratch);

}  // namespace distsetup
