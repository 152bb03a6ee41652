#include "text/tokenizer/bpe.h"

#include <algorithm>
#include <limits>

#include "text/tokenizer/unicode.h"

namespace distsetup {
namespace {

constexpr size_t kLongWord = 48;  // symbols from which a heap is faster than looking through all pairs
constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();
constexpr char kBlank[] = "\u2581";

using Symbol = BpeScratch::Symbol;
using Candidate = BpeScratch::Candidate;

uint64_t hash_pair(uint64_t pair) {
  pair *= 0x9E3779B97F4A7C15;
  return pair ^ pair >> 32;
}

void add_symbol(BpeScratch& scratch, uint32_t id, size_t num_bytes) {
  scratch.symbols.push_back({id, static_cast<uint32_t>(num_bytes), -1, -1});
}

// The characters of a word as tokens; unknown ones by the model's rules.
bool first_symbols(const Bpe& bpe, std::string_view word, BpeScratch& scratch) {
  size_t unknown_bytes = 0;  // of the unknown token that is not added yet
  const auto flush = [&] {
    if (unknown_bytes > 0) add_symbol(scratch, bpe.unknown, unknown_bytes);
    unknown_bytes = 0;
  };
  const bool is_plain = bpe.continuing_prefix.empty() && bpe.end_suffix.empty();
  for (size_t at = 0; at < word.size();) {
    const size_t length = bpe.bytes ? 1 : code_point_at(word, at).num_bytes;
    std::string_view text = word.substr(at, length);
    if (!is_plain) {
      scratch.text = at > 0 ? bpe.continuing_prefix : "";
      scratch.text += text;
      if (at + length == word.size()) scratch.text += bpe.end_suffix;
      text = scratch.text;
    }
    at += length;
    const uint32_t id = bpe.vocabulary.find(text);
    if (id != kNoId) {
      flush();
      add_symbol(scratch, id, length);
      continue;
    }
    if (bpe.byte_fallback &&
        std::all_of(text.begin(), text.end(), [&](char c) { return bpe.byte_tokens[static_cast<uint8_t>(c)] != kNoId; })) {
      // An unknown token before these bytes comes behind them: the tokenizers library does not flush it here.
      for (const char c : text) add_symbol(scratch, bpe.byte_tokens[static_cast<uint8_t>(c)], 1);
      continue;
    }
    if (bpe.unknown == kNoId && bpe.needs_unknown) return false;
    if (bpe.unknown == kNoId) continue;
    if (!bpe.fuse_unknown) flush();
    unknown_bytes += length;
  }
  flush();
  return true;
}

void merge_short(const Bpe& bpe, BpeScratch& scratch) {
  std::vector<Symbol>& symbols = scratch.symbols;
  std::vector<uint32_t>&ranks = scratch.ranks, &results = scratch.results;
  const auto look_up = [&](size_t i) {
    const MergeTable::Slot* slot = i + 1 < symbols.size() ? bpe.merges.find(symbols[i].id, symbols[i + 1].id) : nullptr;
    ranks[i] = slot == nullptr ? kNoRank : slot->rank;
    results[i] = slot == nullptr ? kNoId : slot->result;
  };
  ranks.resize(symbols.size());
  results.resize(symbols.size());
  for (size_t i = 0; i < symbols.size(); ++i) look_up(i);
  while (symbols.size() > 1) {
    const auto least = static_cast<size_t>(std::min_element(ranks.begin(), ranks.end()) - ranks.begin());
    if (ranks[least] == kNoRank) return;
    symbols[least].id = results[least];
    symbols[least].num_bytes += symbols[least + 1].num_bytes;
    const auto gone = static_cast<std::ptrdiff_t>(least) + 1;
    symbols.erase(symbols.begin() + gone);
    ranks.erase(ranks.begin() + gone);
    results.erase(results.begin() + gone);
    look_up(least);
    if (least > 0) look_up(least - 1);
  }
}

bool comes_later(const Candidate& a, const Candidate& b) { return a.rank != b.rank ? a.rank > b.rank : a.position > b.position; }

void merge_long(const Bpe& bpe, BpeScratch& scratch) {
  std::vector<Symbol>& symbols = scratch.symbols;
  std::vector<Candidate>& heap = scratch.heap;
  heap.clear();
  const auto count = static_cast<int32_t>(symbols.size());
  const auto candidate = [&](int32_t left) {
    const int32_t right = symbols[left].next;
    const MergeTable::Slot* slot = right < 0 ? nullptr : bpe.merges.find(symbols[left].id, symbols[right].id);
    if (slot == nullptr) return false;
    heap.push_back({slot->rank, static_cast<uint32_t>(left), slot->result});
    return true;
  };
  for (int32_t i = 0; i < count; ++i) {
    symbols[i].previous = i - 1;
    symbols[i].next = i + 1 < count ? i + 1 : -1;
  }
  for (int32_t i = 0; i < count; ++i) candidate(i);
  std::make_heap(heap.begin(), heap.end(), comes_later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), comes_later);
    const Candidate top = heap.back();
    heap.pop_back();
    Symbol& left = symbols[top.position];
    if (left.num_bytes == 0 || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    const MergeTable::Slot* slot = bpe.merges.find(left.id, right.id);
    if (slot == nullptr || slot->result != top.result) continue;  // one of them has been joined otherwise since
    left.id = top.result;
    left.num_bytes += right.num_bytes;
    right.num_bytes = 0;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = static_cast<int32_t>(top.position);
    if (left.previous >= 0 && candidate(left.previous)) std::push_heap(heap.begin(), heap.end(), comes_later);
    if (candidate(static_cast<int32_t>(top.position))) std::push_heap(heap.begin(), heap.end(), comes_later);
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.num_bytes == 0; });
}

}  // namespace

void MergeTable::reserve(size_t num_merges) {
  size_t num_slots = 64;
  while (num_slots < 2 * num_merges) num_slots *= 2;
  if (num_slots <= slots_.size()) return;
  const std::vector<Slot> old = std::move(slots_);
  slots_.assign(num_slots, Slot{});
  mask_ = num_slots - 1;
  num_pairs_ = 0;
  for (const Slot& slot : old) {
    if (slot.pair != UINT64_MAX)
      set({static_cast<uint32_t>(slot.pair >> 32), static_cast<uint32_t>(slot.pair), slot.result, slot.rank});
  }
}

void MergeTable::set(const BpeMerge& merge) {
  if (2 * (num_pairs_ + 1) > slots_.size()) reserve(std::max<size_t>(32, 2 * num_pairs_));
  const uint64_t pair = uint64_t{merge.left} << 32 | merge.right;
  size_t at = hash_pair(pair) & mask_;
  while (slots_[at].pair != UINT64_MAX && slots_[at].pair != pair) at = (at + 1) & mask_;
  if (slots_[at].pair == UINT64_MAX) ++num_pairs_;
  slots_[at] = {pair, merge.rank, merge.result};
}

const MergeTable::Slot* MergeTable::find(uint32_t left, uint32_t right) const {
  if (slots_.empty()) return nullptr;
  const uint64_t pair = uint64_t{left} << 32 | right;
  size_t at = hash_pair(pair) & mask_;
  while (slots_[at].pair != pair) {
    if (slots_[at].pair == UINT64_MAX) return nullptr;
    at = (at + 1) & mask_;
  }
  return &slots_[at];
}

bool encode_word(const Bpe& bpe, std::string_view word, BpeScratch& scratch, std::vector<WordToken>& tokens) {
  if (bpe.ignore_merges) {
    const uint32_t whole = bpe.vocabulary.find(word);
    if (whole != kNoId) {
      tokens.push_back({whole, 0, static_cast<uint32_t>(word.size())});
      return true;
    }
  }
  scratch.symbols.clear();
  if (!first_symbols(bpe, word, scratch)) return false;
  if (scratch.symbols.size() < kLongWord) {
    merge_short(bpe, scratch);
  } else {
    merge_long(bpe, scratch);
  }
  uint32_t begin = 0;
  for (const Symbol& symbol : scratch.symbols) {
    tokens.push_back({symbol.id, begin, begin + symbol.num_bytes});
    begin += symbol.num_bytes;
  }
  return true;
}

void find_cuts(Bpe& bpe, const std::vector<std::string>& merged_texts) {
  const std::string_view blank = kBlank;
  if (bpe.bytes || bpe.ignore_merges || !bpe.continuing_prefix.empty() || !bpe.end_suffix.empty()) return;
  if (bpe.vocabulary.find(blank) == kNoId) return;
  for (const std::string& text : merged_texts) {
    for (size_t at = text.find(blank); at != std::string::npos; at = text.find(blank, at + 1)) {
      if (at > 0 && text.compare(at - std::min(at, blank.size()), blank.size(), blank) != 0) return;
    }
  }
  bpe.cut_before = blank;
}

}  // namespace distsetup
