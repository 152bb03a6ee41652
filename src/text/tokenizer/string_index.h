// From a text to a number, for the words of a vocabulary and for words seen before: a table with open addressing, because a tokenizer
// asks it for every word.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace distsetup {

class StringIndex {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // The number of `key`, kNone when it has none.
  uint32_t find(std::string_view key) const;
  // Keeps a copy of the key. One that is there gets the new number.
  void set(std::string_view key, uint32_t number);
  void reserve(size_t num_keys);
  void clear();
  size_t size() const { return num_keys_; }
  size_t num_bytes() const { return keys_.size(); }  // of all keys

 private:
  struct Slot {
    uint32_t begin = 0, size = 0;  // of the key in keys_
    uint32_t hash = 0;
    uint32_t number = kNone;  // kNone: the slot is free
  };
  size_t slot_of(std::string_view key, uint32_t hash) const;
  void grow(size_t num_slots);

  std::vector<Slot> slots_;  // a power of two, at most half full
  std::string keys_;
  size_t num_keys_ = 0;
};

}  // namespace distsetup
