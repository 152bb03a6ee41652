// UTF-8 and what tokenizers ask of a code point. Texts are valid UTF-8 here: encode() has checked them.
//
// Categories are those of Unicode 16, which the regular expressions of the tokenizers library 0.23 use. utf8proc 2.8 knows Unicode 15;
// what came later is a table of ours (unicode_table.h).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace distsetup {

// A general category by its two letters, "Lu".
enum class Category : uint8_t {
  kCn,
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCs,
  kCo
};

struct CodePoint {
  uint32_t value = 0;
  uint32_t num_bytes = 1;
};

// The code point at `at`, which begins one.
inline CodePoint code_point_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[at + i])); };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (first < 0xF0) return {(first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}
inline bool is_continuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }
// Where the character before `at` begins; at > 0.
inline size_t previous_at(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && is_continuation(text[at]));
  return at;
}
void append_utf8(std::string& to, uint32_t code_point);
size_t num_code_points(std::string_view text);
// Bytes to valid UTF-8: every longest beginning of a character that does not end as one becomes U+FFFD (Unicode 3.9, as in WHATWG).
std::string replace_invalid(std::string_view bytes);
// The first byte that belongs to no valid character, or npos.
size_t find_invalid(std::string_view text);

Category category(uint32_t code_point);
bool is_white_space(uint32_t code_point);  // the property White_Space
bool is_numeric(uint32_t code_point);      // Nd, Nl, No
bool is_punctuation(uint32_t code_point);  // P*, and ASCII's symbols too
bool is_word(uint32_t code_point);         // \w of a regular expression: alphabetic, marks, decimal digits, connectors

// Code points that PCRE2 10.42 knows otherwise than the tokenizers library does, as one of the same length in UTF-8 that both know the
// same way. `changed` is set when there was one.
std::string with_stand_ins(std::string_view text, bool& changed);

}  // namespace distsetup
