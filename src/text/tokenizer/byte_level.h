// The alphabet in which byte-level vocabularies are written: each byte is one printable character. Bytes that are printable in Latin-1
// are themselves; the others follow from U+0100 on, in order. From OpenAI's GPT-2 (encoder.py, bytes_to_unicode).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace distsetup {

std::string_view byte_character(uint8_t byte);  // in UTF-8
std::optional<uint8_t> character_byte(uint32_t code_point);
// The bytes that such a text stands for; none when one of its characters is not in the alphabet.
std::optional<std::string> bytes_of_characters(std::string_view text);

}  // namespace distsetup
