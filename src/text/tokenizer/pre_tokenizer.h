// Steps that cut a text into the pieces that a model splits into tokens: the pre-tokenizers of tokenizer.json.
#pragma once
#include <string>
#include <variant>

#include "text/tokenizer/aligned_text.h"
#include "text/tokenizer/regex.h"

namespace distsetup {

// What becomes of the text between pieces: with "-" in "a--b": a b | a - - b | a- - b | a - -b | a -- b
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct RegexSplit {
  Regex regex;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // what the pattern does not match is between
};
// A character is between when it is...
enum class CharacterClass { kNumeric, kPunctuation, kWhiteSpace, kOneCharacter };
struct CharacterSplit {
  CharacterClass what = CharacterClass::kNumeric;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  uint32_t character = 0;  // of kOneCharacter
};
// A blank before a piece that has none.
struct PrefixSpace {};
// Every byte as a character of its own, as GPT-2 writes them in its vocabulary (byte_level.h).
struct BytesAsCharacters {};
enum class PrependScheme { kNever, kFirst, kAlways };
// Blanks as another character, which is put before a piece that does not begin with it.
struct Metaspace {
  std::string replacement = "\u2581";
  PrependScheme prepend = PrependScheme::kAlways;
  bool split = true;  // before each of them
};
struct FixedLength {
  size_t num_characters = 5;
};

using PreTokenizer = std::variant<RegexSplit, CharacterSplit, PrefixSpace, BytesAsCharacters, Metaspace, FixedLength>;

// False: a regular expression gave up on this text.
bool pre_tokenize(const PreTokenizer& step, AlignedText& text, RegexScratch& scratch);

}  // namespace distsetup
