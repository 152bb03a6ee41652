#include "text/tokenizer/string_index.h"

#include <cstring>

namespace distsetup {
namespace {

// Eight bytes at a time through a multiplication; its high half is mixed back (the idea of FxHash and wyhash). Keys come from files
// and texts; who makes them collide makes encoding slow, not wrong.
uint32_t hash_of(std::string_view key) {
  uint64_t h = 0x9E3779B97F4A7C15 ^ key.size();
  const auto mix = [&](uint64_t block) {
    const auto product = static_cast<unsigned __int128>(h ^ block) * 0xD6E8FEB86659FD93;
    h = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  const char* at = key.data();
  size_t left = key.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t block;
    std::memcpy(&block, at, 8);
    mix(block);
  }
  uint64_t rest = 0;
  std::memcpy(&rest, at, left);
  mix(rest);
  return static_cast<uint32_t>(h ^ h >> 32);
}

}  // namespace

size_t StringIndex::slot_of(std::string_view key, uint32_t hash) const {
  size_t at = hash & (slots_.size() - 1);
  while (slots_[at].number != kNone) {
    const Slot& slot = slots_[at];
    if (slot.hash == hash && slot.size == key.size() && std::memcmp(keys_.data() + slot.begin, key.data(), key.size()) == 0) return at;
    at = (at + 1) & (slots_.size() - 1);
  }
  return at;
}

uint32_t StringIndex::find(std::string_view key) const { return slots_.empty() ? kNone : slots_[slot_of(key, hash_of(key))].number; }

void StringIndex::set(std::string_view key, uint32_t number) {
  if (2 * (num_keys_ + 1) > slots_.size()) grow(slots_.empty() ? 64 : 2 * slots_.size());
  const uint32_t hash = hash_of(key);
  Slot& slot = slots_[slot_of(key, hash)];
  if (slot.number == kNone) {
    slot = {static_cast<uint32_t>(keys_.size()), static_cast<uint32_t>(key.size()), hash, number};
    keys_ += key;
    ++num_keys_;
  }
  slot.number = number;
}

void StringIndex::reserve(size_t num_keys) {
  size_t num_slots = 64;
  while (num_slots < 2 * num_keys) num_slots *= 2;
  if (num_slots > slots_.size()) grow(num_slots);
}

void StringIndex::clear() {
  slots_.assign(slots_.size(), Slot{});
  keys_.clear();
  num_keys_ = 0;
}

void StringIndex::grow(size_t num_slots) {
  std::vector<Slot> old = std::move(slots_);
  slots_.assign(num_slots, Slot{});
  for (const Slot& slot : old) {
    if (slot.number == kNone) continue;
    size_t at = slot.hash & (num_slots - 1);
    while (slots_[at].number != kNone) at = (at + 1) & (num_slots - 1);
    slots_[at] = slot;
  }
}

}  // namespace distsetup
