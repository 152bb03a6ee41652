// Tokens that are found in a text before it is cut: "<|im_end|>". Those that stand for themselves are looked for in the input, those
// marked `normalized` in what the normalizers make of it. The leftmost match counts, of those the longest.
#pragma once
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/aligned_text.h"
#include "text/tokenizer/unigram.h"

namespace distsetup {

struct AddedToken {
  uint32_t id = 0;
  std::string content;
  bool single_word = false;             // not where it touches letters or digits
  bool lstrip = false, rstrip = false;  // white space before it, behind it belongs to it
  bool normalized = false;
  bool special = false;  // left out of decoded text on request
};

class AddedTokenMatcher {
 public:
  void add(const AddedToken& token, std::string_view text);  // what it looks like where it is looked for
  void finish();
  bool empty() const { return tokens_.empty(); }
  // Cuts the pieces that are no tokens. `with_special`: special ones count too.
  void cut(AlignedText& text, bool with_special) const;

 private:
  std::vector<AddedToken> tokens_;
  PrefixTrie trie_;  // to positions in tokens_
  std::array<bool, 256> can_begin_{};
};

}  // namespace distsetup
