#include "text/tokenizer/unigram.h"

#include <algorithm>
#include <cmath>

#include "text/tokenizer/unicode.h"

namespace distsetup {
namespace {

constexpr double kUnknownPenalty = 10;  // below the lowest score; SentencePiece's kUnkPenalty, which the tokenizers library took over

// The tokens of unknown text: those of its bytes where there are all of them.
void add_unknown(const Unigram& unigram, std::string_view word, uint32_t begin, uint32_t end, std::vector<WordToken>& tokens) {
  const std::string_view text = word.substr(begin, end - begin);
  const bool as_bytes = unigram.byte_fallback && std::all_of(text.begin(), text.end(), [&](char c) {
                          return unigram.byte_tokens[static_cast<uint8_t>(c)] != kNoId;
                        });
  if (!as_bytes) {
    tokens.push_back({unigram.unknown, begin, end});
    return;
  }
  for (const char c : text) tokens.push_back({unigram.byte_tokens[static_cast<uint8_t>(c)], begin, end});
}

// SentencePiece from 0.2.1 on: so that sums in single precision stay fine enough in a long text, they start anew at this size.
constexpr double kLargestSum = 100000;

// As SentencePiece starts its sums anew: those from `at` on lose that of `at`.
void start_anew(size_t at, size_t frontier, std::vector<UnigramScratch::Node>& nodes) {
  const auto lost = static_cast<float>(nodes[at].best);
  for (size_t i = at; i <= frontier; ++i) {
    if (i == at || nodes[i].reached) nodes[i].best = static_cast<float>(nodes[i].best) - lost;
  }
}

// Every sum is rounded as it is kept.
bool find_path(const Unigram& unigram, std::string_view word, std::vector<UnigramScratch::Node>& nodes) {
  const bool single = unigram.sum == ScoreSum::kSingle;
  const auto kept = [&](double score) { return single ? static_cast<double>(static_cast<float>(score)) : score; };
  nodes.assign(word.size() + 1, {});
  size_t frontier = 0;  // the last node reached
  const auto offer = [&](size_t from, size_t to, uint32_t id, double score) {
    UnigramScratch::Node& node = nodes[to];
    frontier = std::max(frontier, to);
    score = kept(score);
    if (!node.reached || score > node.best) node = {score, static_cast<uint32_t>(from), id, true};
  };
  const double unknown_score = kept(unigram.lowest_score - kUnknownPenalty);
  for (size_t at = 0; at < word.size();) {
    if (single && std::abs(nodes[at].best) > kLargestSum) start_anew(at, frontier, nodes);
    const double here = nodes[at].best;
    const size_t length = code_point_at(word, at).num_bytes;
    bool has_character = false;
    unigram.pieces.prefixes(word.substr(at), [&](size_t num_bytes, uint32_t id) {
      offer(at, at + num_bytes, id, unigram.scores[id] + here);
      has_character |= num_bytes == length;
    });
    if (!has_character) {
      if (unigram.unknown == kNoId) return false;
      offer(at, at + length, unigram.unknown, kept(unknown_score + here));
    }
    at += length;
  }
  return true;
}

}  // namespace

void PrefixTrie::insert(std::string_view key, uint32_t id) {
  if (!key.empty()) keys_.emplace_back(key, id);
}

void PrefixTrie::finish() {
  std::stable_sort(keys_.begin(), keys_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  // Nodes level by level: each is a range of keys that share their first `depth` bytes.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> nodes{{0, keys_.size(), 0}};
  ids_ = {kNoId};
  first_ = {};
  for (size_t n = 0; n < nodes.size(); ++n) {
    const Range range = nodes[n];
    first_.push_back(static_cast<uint32_t>(to_.size()));
    size_t at = range.begin;
    for (; at < range.end && keys_[at].first.size() == range.depth; ++at) ids_[n] = keys_[at].second;
    while (at < range.end) {
      const auto byte = static_cast<uint8_t>(keys_[at].first[range.depth]);
      const size_t begin = at;
      while (at < range.end && static_cast<uint8_t>(keys_[at].first[range.depth]) == byte) ++at;
      const auto child = static_cast<uint32_t>(nodes.size());
      nodes.push_back({begin, at, range.depth + 1});
      ids_.push_back(kNoId);
      bytes_.push_back(byte);
      to_.push_back(child);
      if (n == 0) root_[byte] = child;
    }
  }
  first_.push_back(static_cast<uint32_t>(to_.size()));
  keys_ = {};
}

bool encode_word(const Unigram& unigram, std::string_view word, UnigramScratch& scratch, std::vector<WordToken>& tokens) {
  if (!find_path(unigram, word, scratch.nodes)) return false;
  std::vector<WordToken>& path = scratch.backwards;
  path.clear();
  for (auto end = static_cast<uint32_t>(word.size()); end > 0;) {
    const UnigramScratch::Node& node = scratch.nodes[end];
    if (unigram.fuse_unknown && node.id == unigram.unknown && !path.empty() && path.back().id == unigram.unknown) {
      path.back().begin = node.from;
    } else {
      path.push_back({node.id, node.from, end});
    }
    end = node.from;
  }
  for (size_t i = path.size(); i-- > 0;) {
    if (path[i].id == unigram.unknown) {
      add_unknown(unigram, word, path[i].begin, path[i].end, tokens);
    } else {
      tokens.push_back(path[i]);
    }
  }
  return true;
}

}  // namespace distsetup
