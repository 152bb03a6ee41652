// The wire format of protocol buffers, as far as reading a file of known fields needs it (protobuf.dev, "Encoding").
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace distsetup {

struct ProtoField {
  uint32_t number = 0;
  uint64_t value = 0;      // of a varint or a fixed number
  std::string_view bytes;  // of a text or a message
  bool is_bytes = false;
  float as_float() const;  // of a 32-bit number
};

// The fields of a message one after the other.
class ProtoReader {
 public:
  explicit ProtoReader(std::string_view message) : rest_(message) {}
  std::optional<ProtoField> next();  // none: at the end, or damaged
  bool is_damaged() const { return damaged_; }

 private:
  std::optional<uint64_t> varint();
  std::optional<ProtoField> damaged() {
    damaged_ = true;
    return std::nullopt;
  }
  std::string_view rest_;
  bool damaged_ = false;
};

}  // namespace distsetup
