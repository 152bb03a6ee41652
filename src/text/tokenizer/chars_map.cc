#include "text/tokenizer/chars_map.h"

#include <cstring>

namespace distsetup {
namespace {

// A unit of the double array: label in bits 0-7 and 31, "has a value" in bit 8, offset in bits 10-30, eight times as far with bit 9.
bool has_value(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FF; }
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }

}  // namespace

std::optional<CharsMap> CharsMap::parse(std::string_view bytes) {
  uint32_t trie_bytes = 0;
  if (bytes.size() <= sizeof(trie_bytes)) return std::nullopt;
  std::memcpy(&trie_bytes, bytes.data(), sizeof(trie_bytes));
  bytes.remove_prefix(sizeof(trie_bytes));
  if (trie_bytes >= bytes.size() || trie_bytes % 4 != 0 || trie_bytes == 0 || bytes.back() != '\0') return std::nullopt;
  CharsMap map;
  map.units_.resize(trie_bytes / 4);
  std::memcpy(map.units_.data(), bytes.data(), trie_bytes);
  map.texts_ = bytes.substr(trie_bytes);
  return map;
}

std::optional<CharsMap::Rule> CharsMap::find(std::string_view text, Take take) const {
  std::optional<Rule> rule;
  size_t node = offset_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    node ^= static_cast<uint8_t>(text[i]);
    if (node >= units_.size() || label_of(units_[node]) != static_cast<uint8_t>(text[i])) break;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_value(unit)) continue;
    if (node >= units_.size()) break;
    const uint32_t begin = value_of(units_[node]);
    if (begin >= texts_.size()) break;
    rule = Rule{i + 1, std::string_view(texts_.data() + begin)};
    if (take == Take::kShortest) break;
  }
  return rule;
}

}  // namespace distsetup
