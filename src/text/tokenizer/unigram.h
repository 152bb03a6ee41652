// Unigram: every piece has a score (a logarithm of its probability), and a text becomes the pieces with the largest sum. Viterbi from
// left to right; of equal sums the first one found stays, which is the one with the longest last piece.
//
// tokenizer.json sums in double precision, SentencePiece in single: near ties fall differently, so both are here.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/bpe.h"

namespace distsetup {

// From the beginning of a text to the ids of all tokens that it begins with: a trie in arrays.
class PrefixTrie {
 public:
  void insert(std::string_view key, uint32_t id);
  void finish();  // after the last insert; of equal keys the last one counts
  // Calls found(bytes, id) for every key that `text` begins with, from the shortest.
  template <class Found>
  void prefixes(std::string_view text, Found found) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<uint8_t>(text[i]));
      if (node == 0) return;
      if (ids_[node] != kNoId) found(i + 1, ids_[node]);
    }
  }

 private:
  uint32_t child(uint32_t node, uint8_t byte) const {
    if (node == 0) return root_[byte];
    for (uint32_t edge = first_[node]; edge < first_[node + 1]; ++edge) {
      if (bytes_[edge] == byte) return to_[edge];
    }
    return 0;
  }

  std::vector<std::pair<std::string, uint32_t>> keys_;  // until finish()
  std::array<uint32_t, 256> root_{};                    // children of node 0
  std::vector<uint32_t> first_;                         // node -> its first edge; one more at the end
  std::vector<uint8_t> bytes_;                          // of each edge
  std::vector<uint32_t> to_;
  std::vector<uint32_t> ids_;  // of each node
};

enum class ScoreSum { kDouble, kSingle };

struct Unigram {
  PrefixTrie pieces;
  std::vector<double> scores;  // by id
  double lowest_score = 0;
  uint32_t unknown = kNoId;
  bool fuse_unknown = true;
  bool byte_fallback = false;
  std::array<uint32_t, 256> byte_tokens{};
  ScoreSum sum = ScoreSum::kDouble;
};

struct UnigramScratch {
  struct Node {
    double best = 0;
    uint32_t from = 0, id = kNoId;
    bool reached = false;
  };
  std::vector<Node> nodes;
  std::vector<WordToken> backwards;
};

// Appends the tokens of a word. False: a character is in no piece and there is no token for unknown ones.
bool encode_word(const Unigram& unigram, std::string_view word, UnigramScratch& scratch, std::vector<WordToken>& tokens);

}  // namespace distsetup
