// Regular expressions of tokenizer files, on PCRE2. The files are written for other engines: tokenizer.json for Oniguruma, tiktoken
// and tekken for Rust's. A pattern is translated where the engines differ in what they match, and refused by name where it cannot be:
//
//   \w        also marks and what is alphabetic, of numbers only Nd (and, a quirk of Oniguruma, the superscripts and fractions of
//             Latin-1)
//   \h \H     a hexadecimal digit (Oniguruma)
//   \p{Han}   the script; in PCRE2 the script's extensions
//   [a[bc]]   a union; of negated classes and with && refused
//   ^ $       of every line (Oniguruma)
//   x{2,3}+   a repeated repetition, not a possessive one (Oniguruma)
//
// What a code point is comes from Unicode 16 through stand-ins (unicode.h), because PCRE2 10.42 knows Unicode 14.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

namespace distsetup {

enum class RegexDialect { kOniguruma, kRust };

// Bytes [begin, end) of a text.
struct TextRange {
  uint32_t begin = 0, end = 0;
  bool operator==(const TextRange&) const = default;
};

// What matching needs besides the pattern; one for each thread, for all patterns.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

class Regex {
 public:
  // `where` is the file, `path` the place of the pattern in it as messages name it ("pre_tokenizer.pattern").
  static Result<Regex> compile(std::string_view pattern, RegexDialect dialect, const Location& where, const std::string& path);

  // All matches in `text` from left to right, which do not overlap; an empty one is not taken directly behind another. Empty matches
  // are returned too. False: the pattern gave up on this text (PCRE2's limits of steps and memory).
  bool find_all(std::string_view text, RegexScratch& scratch, std::vector<TextRange>& matches) const;

 private:
  std::shared_ptr<const void> code_;  // pcre2_code
};

}  // namespace distsetup
