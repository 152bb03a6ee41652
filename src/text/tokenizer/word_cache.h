// Words that an encoder has seen, with their tokens: most words of a text come again. It is emptied when it is full.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer/bpe.h"
#include "text/tokenizer/string_index.h"

namespace distsetup {

class WordCache {
 public:
  static constexpr size_t kMostBytes = 128;  // of a word that is kept

  // Appends the tokens of a word that it has.
  bool find(std::string_view word, std::vector<WordToken>& tokens) const;
  void add(std::string_view word, std::span<const WordToken> tokens);

 private:
  struct Entry {
    uint32_t begin = 0, size = 0;  // in tokens_
  };
  StringIndex index_;
  std::vector<Entry> entries_;
  std::vector<WordToken> tokens_;
};

}  // namespace distsetup
