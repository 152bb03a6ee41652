// Unicode's normal forms with what they do to alignments, lower case and grapheme clusters. Decompositions and combining classes are
// those of Unicode 9, which the tokenizers library 0.23 uses: utf8proc's (Unicode 15) less what is younger.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace distsetup {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// A character of a rewritten text. `change`: 0 it replaces one character, 1 it is put in, -n it replaces one and the n behind it go.
struct ChangedCharacter {
  uint32_t value = 0;
  int change = 0;
};

std::vector<ChangedCharacter> normal_form(NormalForm form, std::string_view text);
// Where the grapheme cluster that begins at `at` ends (UAX 29, extended).
size_t end_of_cluster(std::string_view text, size_t at);
// The lower case of a character: one, or two of U+0130.
void append_lower(std::vector<ChangedCharacter>& to, uint32_t code_point);

}  // namespace distsetup
