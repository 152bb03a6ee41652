#include "text/tokenizer/byte_level.h"

#include <array>

#include "text/tokenizer/unicode.h"

namespace distsetup {
namespace {

struct ByteAlphabet {
  std::array<std::string, 256> characters;
  std::array<int16_t, 0x144> bytes;  // by code point; -1: none

  ByteAlphabet() {
    bytes.fill(-1);
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool is_itself = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
      const uint32_t code_point = is_itself ? byte : next++;
      append_utf8(characters[byte], code_point);
      bytes[code_point] = static_cast<int16_t>(byte);
    }
  }
};

const ByteAlphabet& alphabet() {
  static const ByteAlphabet made;
  return made;
}

}  // namespace

std::string_view byte_character(uint8_t byte) { return alphabet().characters[byte]; }

std::optional<uint8_t> character_byte(uint32_t code_point) {
  const ByteAlphabet& letters = alphabet();
  if (code_point >= letters.bytes.size() || letters.bytes[code_point] < 0) return std::nullopt;
  return static_cast<uint8_t>(letters.bytes[code_point]);
}

std::optional<std::string> bytes_of_characters(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    const std::optional<uint8_t> byte = character_byte(c.value);
    if (!byte) return std::nullopt;
    out += static_cast<char>(*byte);
    at += c.num_bytes;
  }
  return out;
}

}  // namespace distsetup
