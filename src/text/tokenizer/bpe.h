// Byte-pair encoding: a word begins as single characters (or bytes), and the neighbours whose pair has the lowest rank are joined
// until no pair is left that may be. Of pairs of the same rank the leftmost is joined first.
//
// One structure serves tokenizer.json's BPE, SentencePiece's (rank = order of the pieces' scores) and tiktoken's (rank = id). Merging
// is quadratic for short words, because that is fastest there, and takes n log n steps for long ones: a word may be a megabyte.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/string_index.h"

namespace distsetup {

constexpr uint32_t kNoId = UINT32_MAX;

// A token of a word: for which bytes of the word it stands.
struct WordToken {
  uint32_t id = 0, begin = 0, end = 0;
};

// left and right may be joined to `result`.
struct BpeMerge {
  uint32_t left = 0, right = 0, result = 0, rank = 0;
};

class MergeTable {
 public:
  void reserve(size_t num_merges);
  // The last merge of a pair counts.
  void set(const BpeMerge& merge);
  // nullptr: these two are not joined.
  struct Slot {
    uint64_t pair = UINT64_MAX;
    uint32_t rank = 0, result = 0;
  };
  const Slot* find(uint32_t left, uint32_t right) const;

 private:
  std::vector<Slot> slots_;
  size_t num_pairs_ = 0;
  size_t mask_ = 0;
};

struct Bpe {
  StringIndex vocabulary;  // a token's text -> its id; with `bytes` the bytes it stands for
  MergeTable merges;
  bool bytes = false;                         // words begin as bytes, not as characters
  bool ignore_merges = false;                 // a word that is a token is that token, whatever the merges say
  bool fuse_unknown = false;                  // unknown characters beside each other are one token
  uint32_t unknown = kNoId;                   // for characters that are no token; none: they are dropped...
  bool needs_unknown = false;                 // ... or, where the file names a token for them that it does not have, an error
  bool byte_fallback = false;                 // they become the tokens of their bytes, where all of these exist
  std::array<uint32_t, 256> byte_tokens{};    // <0x00> to <0xFF>, kNoId where there is none
  std::string continuing_prefix, end_suffix;  // of a word's characters but the first; of its last
  // No token has this character behind another one, so that a word may be cut before each of them; empty: it may not.
  std::string cut_before;
};

// Working memory, one for each thread.
struct BpeScratch {
  struct Symbol {
    uint32_t id = 0, num_bytes = 0;
    int32_t previous = -1, next = -1;
  };
  struct Candidate {
    uint32_t rank = 0, position = 0, result = 0;
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::vector<uint32_t> ranks, results;
  std::string text;
};

// Appends the tokens of a word. False: it has a character that is no token, see needs_unknown.
bool encode_word(const Bpe& bpe, std::string_view word, BpeScratch& scratch, std::vector<WordToken>& tokens);
// Sets cut_before, from the texts of all tokens that merges make.
void find_cuts(Bpe& bpe, const std::vector<std::string>& merged_texts);

}  // namespace distsetup
