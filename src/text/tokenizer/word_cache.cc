#include "text/tokenizer/word_cache.h"

namespace distsetup {
namespace {

constexpr size_t kMostWords = size_t{1} << 18;

}  // namespace

bool WordCache::find(std::string_view word, std::vector<WordToken>& tokens) const {
  const uint32_t number = index_.find(word);
  if (number == StringIndex::kNone) return false;
  const Entry& entry = entries_[number];
  tokens.insert(tokens.end(), tokens_.begin() + entry.begin, tokens_.begin() + entry.begin + entry.size);
  return true;
}

void WordCache::add(std::string_view word, std::span<const WordToken> tokens) {
  if (entries_.size() >= kMostWords) {
    index_.clear();
    entries_.clear();
    tokens_.clear();
  }
  index_.set(word, static_cast<uint32_t>(entries_.size()));
  entries_.push_back({static_cast<uint32_t>(tokens_.size()), static_cast<uint32_t>(tokens.size())});
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

}  // namespace distsetup
