// SHA-256 (FIPS 180-4), for files, plans, schedules and checkpoints. Hex, 64 characters.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/diagnostic.h"

namespace distsetup {

class Sha256 {
 public:
  explicit Sha256(bool plain = false);  // plain: without the processor's own instructions for it
  void update(const void* data, size_t num_bytes);
  void update(std::string_view text) { update(text.data(), text.size()); }
  std::string hex();  // finishes
 private:
  void blocks(const uint8_t* p, size_t num_blocks);
  bool plain_;
  uint32_t state_[8];
  uint8_t buffer_[64];
  uint64_t num_bytes_ = 0;
};

std::string sha256(std::string_view text);
Result<std::string> sha256_of_file(const std::string& path);

}  // namespace distsetup
