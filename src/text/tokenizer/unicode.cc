#include "text/tokenizer/unicode.h"

#include <utf8proc.h>

#include <array>

#include "base/names.h"
#include "text/tokenizer/unicode_table.h"

namespace distsetup {
namespace {

constexpr uint32_t kMongolianVowelSeparator = 0x180E;  // PCRE2 calls it white space, Unicode has not since 6.3

// By category: a code point of three and one of four bytes that Unicode has had in that category since 13 or before.
struct StandInPair {
  Category category;
  uint32_t three_bytes, four_bytes;
};
constexpr StandInPair kStandIns[] = {
    {Category::kLu, 0x1E00, 0x10400}, {Category::kLl, 0x1E01, 0x10428}, {Category::kLm, 0x0971, 0x16B40},
    {Category::kLo, 0x0904, 0x10280}, {Category::kMn, 0x0900, 0x101FD}, {Category::kMc, 0x0903, 0x11000},
    {Category::kNd, 0x0966, 0x104A0}, {Category::kNo, 0x2070, 0x10107}, {Category::kPd, 0x2010, 0x10EAD},
    {Category::kPo, 0x0964, 0x10100}, {Category::kSm, 0x2200, 0x1D6C1}, {Category::kSo, 0x2100, 0x10137},
    {Category::kCf, 0x2060, 0x110BD},
};
constexpr uint32_t kHan = 0x20000;

bool is_young_han(uint32_t c) { return (c >= 0x2EBF0 && c <= 0x2EE5D) || (c >= 0x31350 && c <= 0x323AF); }

uint32_t stand_in(uint32_t code_point) {
  if (code_point == kMongolianVowelSeparator) return 0x2060;
  if (is_young_han(code_point)) return kHan;
  const std::optional<Category> young = young_category(code_point);
  if (!young) return code_point;
  for (const StandInPair& one : kStandIns) {
    if (one.category == *young) return code_point < 0x10000 ? one.three_bytes : one.four_bytes;
  }
  return code_point;
}

// Of each 256 code points: one of them has a stand-in.
const std::array<bool, 0x1100>& blocks_with_stand_ins() {
  static const std::array<bool, 0x1100> blocks = [] {
    std::array<bool, 0x1100> some{};
    for (uint32_t c = 0x800; c < 0x110000; ++c) {
      if (stand_in(c) != c) some[c >> 8] = true;
    }
    return some;
  }();
  return blocks;
}

bool is_one_of(Category category, std::initializer_list<Category> wanted) {
  for (const Category one : wanted) {
    if (one == category) return true;
  }
  return false;
}

}  // namespace

void append_utf8(std::string& to, uint32_t c) {
  if (c < 0x80) {
    to += static_cast<char>(c);
  } else if (c < 0x800) {
    to += {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
  } else if (c < 0x10000) {
    to += {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F)), static_cast<char>(0x80 | (c & 0x3F))};
  } else {
    to += {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 0x3F)), static_cast<char>(0x80 | (c >> 6 & 0x3F)),
           static_cast<char>(0x80 | (c & 0x3F))};
  }
}

size_t num_code_points(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += !is_continuation(c);
  return count;
}

size_t find_invalid(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = static_cast<uint8_t>(text[at]) < 0x80 ? 1 : utf8_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::string_view::npos;
}

std::string replace_invalid(std::string_view bytes) {
  std::string out;
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t bad = find_invalid(bytes.substr(at));
    out += bytes.substr(at, bad);
    if (bad == std::string_view::npos) break;
    at += bad;
    out += "\xEF\xBF\xBD";
    // How far it was a beginning: the second byte has a narrower range after E0, ED, F0, F4.
    const uint8_t first = static_cast<uint8_t>(bytes[at]);
    const size_t wanted = first >= 0xC2 && first < 0xE0   ? 2
                          : first >= 0xE0 && first < 0xF0 ? 3
                          : first >= 0xF0 && first < 0xF5 ? 4
                                                          : 1;
    size_t length = 1;
    for (; length < wanted && at + length < bytes.size(); ++length) {
      const uint8_t next = static_cast<uint8_t>(bytes[at + length]);
      const uint8_t low = length > 1 ? 0x80 : first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
      const uint8_t high = length > 1 ? 0xBF : first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
      if (next < low || next > high) break;
    }
    at += length;
  }
  return out;
}

Category category(uint32_t code_point) {
  if (const std::optional<Category> young = young_category(code_point)) return *young;
  return static_cast<Category>(utf8proc_category(static_cast<utf8proc_int32_t>(code_point)));
}

bool is_white_space(uint32_t c) {
  return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(uint32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  if ((c >= 0x11DE0 && c <= 0x11DE9) || (c >= 0x16FF4 && c <= 0x16FF6)) return true;  // Unicode 17, which Rust's char knows
  return is_one_of(category(c), {Category::kNd, Category::kNl, Category::kNo});
}

bool is_punctuation(uint32_t c) {
  if (c < 0x80) return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  if (c == 0x166D || c == 0x111C9) return true;  // were punctuation in Unicode 8
  return is_one_of(category(c),
                   {Category::kPc, Category::kPd, Category::kPs, Category::kPe, Category::kPi, Category::kPf, Category::kPo}) &&
         !is_young_punctuation(c);
}

bool is_word(uint32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  // Alphabetic beyond letters, letter numbers and marks: letters in circles and squares. Joiners count as parts of words.
  if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
      (c >= 0x1F170 && c <= 0x1F189) || c == 0x200C || c == 0x200D) {
    return true;
  }
  return is_one_of(category(c), {Category::kMn, Category::kMc, Category::kMe, Category::kLu, Category::kLl, Category::kLt,
                                 Category::kLm, Category::kLo, Category::kNd, Category::kNl, Category::kPc});
}

std::string with_stand_ins(std::string_view text, bool& changed) {
  const std::array<bool, 0x1100>& blocks = blocks_with_stand_ins();
  std::string out;
  changed = false;
  for (size_t at = 0; at < text.size();) {
    if (static_cast<uint8_t>(text[at]) < 0xE0) {  // the youngest has three bytes
      ++at;
      continue;
    }
    const CodePoint c = code_point_at(text, at);
    if (blocks[c.value >> 8]) {
      const uint32_t other = stand_in(c.value);
      if (other != c.value) {
        if (!changed) out = text;
        changed = true;
        std::string bytes;
        append_utf8(bytes, other);
        out.replace(at, c.num_bytes, bytes);
      }
    }
    at += c.num_bytes;
  }
  return out;
}

}  // namespace distsetup
