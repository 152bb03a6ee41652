#include "text/tokenizer/unicode_table.h"

#include <algorithm>
#include <iterator>

namespace distsetup {
namespace {

struct CategoryRange {
  uint32_t first, last;
  Category category;
};

// Unicode Character Database 16.0, DerivedGeneralCategory.txt, less that of 14.0.
constexpr CategoryRange kYoung[] = {
    // clang-format off
    {0x897, 0x897, Category::kMn}, {0xCF3, 0xCF3, Category::kMc}, {0xECE, 0xECE, Category::kMn},
    {0x1B4E, 0x1B4F, Category::kPo}, {0x1B7F, 0x1B7F, Category::kPo}, {0x1C89, 0x1C89, Category::kLu},
    {0x1C8A, 0x1C8A, Category::kLl}, {0x2427, 0x2429, Category::kSo}, {0x2FFC, 0x2FFF, Category::kSo},
    {0x31E4, 0x31E5, Category::kSo}, {0x31EF, 0x31EF, Category::kSo}, {0xA7CB, 0xA7CC, Category::kLu},
    {0xA7CD, 0xA7CD, Category::kLl}, {0xA7DA, 0xA7DA, Category::kLu}, {0xA7DB, 0xA7DB, Category::kLl},
    {0xA7DC, 0xA7DC, Category::kLu}, {0x105C0, 0x105F3, Category::kLo}, {0x10D40, 0x10D49, Category::kNd},
    {0x10D4A, 0x10D4D, Category::kLo}, {0x10D4E, 0x10D4E, Category::kLm}, {0x10D4F, 0x10D4F, Category::kLo},
    {0x10D50, 0x10D65, Category::kLu}, {0x10D69, 0x10D6D, Category::kMn}, {0x10D6E, 0x10D6E, Category::kPd},
    {0x10D6F, 0x10D6F, Category::kLm}, {0x10D70, 0x10D85, Category::kLl}, {0x10D8E, 0x10D8F, Category::kSm},
    {0x10EC2, 0x10EC4, Category::kLo}, {0x10EFC, 0x10EFF, Category::kMn}, {0x1123F, 0x11240, Category::kLo},
    {0x11241, 0x11241, Category::kMn}, {0x11380, 0x11389, Category::kLo}, {0x1138B, 0x1138B, Category::kLo},
    {0x1138E, 0x1138E, Category::kLo}, {0x11390, 0x113B5, Category::kLo}, {0x113B7, 0x113B7, Category::kLo},
    {0x113B8, 0x113BA, Category::kMc}, {0x113BB, 0x113C0, Category::kMn}, {0x113C2, 0x113C2, Category::kMc},
    {0x113C5, 0x113C5, Category::kMc}, {0x113C7, 0x113CA, Category::kMc}, {0x113CC, 0x113CD, Category::kMc},
    {0x113CE, 0x113CE, Category::kMn}, {0x113CF, 0x113CF, Category::kMc}, {0x113D0, 0x113D0, Category::kMn},
    {0x113D1, 0x113D1, Category::kLo}, {0x113D2, 0x113D2, Category::kMn}, {0x113D3, 0x113D3, Category::kLo},
    {0x113D4, 0x113D5, Category::kPo}, {0x113D7, 0x113D8, Category::kPo}, {0x113E1, 0x113E2, Category::kMn},
    {0x116D0, 0x116E3, Category::kNd}, {0x1171E, 0x1171E, Category::kMc}, {0x11B00, 0x11B09, Category::kPo},
    {0x11BC0, 0x11BE0, Category::kLo}, {0x11BE1, 0x11BE1, Category::kPo}, {0x11BF0, 0x11BF9, Category::kNd},
    {0x11F00, 0x11F01, Category::kMn}, {0x11F02, 0x11F02, Category::kLo}, {0x11F03, 0x11F03, Category::kMc},
    {0x11F04, 0x11F10, Category::kLo}, {0x11F12, 0x11F33, Category::kLo}, {0x11F34, 0x11F35, Category::kMc},
    {0x11F36, 0x11F3A, Category::kMn}, {0x11F3E, 0x11F3F, Category::kMc}, {0x11F40, 0x11F40, Category::kMn},
    {0x11F41, 0x11F41, Category::kMc}, {0x11F42, 0x11F42, Category::kMn}, {0x11F43, 0x11F4F, Category::kPo},
    {0x11F50, 0x11F59, Category::kNd}, {0x11F5A, 0x11F5A, Category::kMn}, {0x1342F, 0x1342F, Category::kLo},
    {0x13439, 0x1343F, Category::kCf}, {0x13440, 0x13440, Category::kMn}, {0x13441, 0x13446, Category::kLo},
    {0x13447, 0x13455, Category::kMn}, {0x13460, 0x143FA, Category::kLo}, {0x16100, 0x1611D, Category::kLo},
    {0x1611E, 0x16129, Category::kMn}, {0x1612A, 0x1612C, Category::kMc}, {0x1612D, 0x1612F, Category::kMn},
    {0x16130, 0x16139, Category::kNd}, {0x16D40, 0x16D42, Category::kLm}, {0x16D43, 0x16D6A, Category::kLo},
    {0x16D6B, 0x16D6C, Category::kLm}, {0x16D6D, 0x16D6F, Category::kPo}, {0x16D70, 0x16D79, Category::kNd},
    {0x18CFF, 0x18CFF, Category::kLo}, {0x1B132, 0x1B132, Category::kLo}, {0x1B155, 0x1B155, Category::kLo},
    {0x1CC00, 0x1CCEF, Category::kSo}, {0x1CCF0, 0x1CCF9, Category::kNd}, {0x1CD00, 0x1CEB3, Category::kSo},
    {0x1D2C0, 0x1D2D3, Category::kNo}, {0x1DF25, 0x1DF2A, Category::kLl}, {0x1E030, 0x1E06D, Category::kLm},
    {0x1E08F, 0x1E08F, Category::kMn}, {0x1E4D0, 0x1E4EA, Category::kLo}, {0x1E4EB, 0x1E4EB, Category::kLm},
    {0x1E4EC, 0x1E4EF, Category::kMn}, {0x1E4F0, 0x1E4F9, Category::kNd}, {0x1E5D0, 0x1E5ED, Category::kLo},
    {0x1E5EE, 0x1E5EF, Category::kMn}, {0x1E5F0, 0x1E5F0, Category::kLo}, {0x1E5F1, 0x1E5FA, Category::kNd},
    {0x1E5FF, 0x1E5FF, Category::kPo}, {0x1F6DC, 0x1F6DC, Category::kSo}, {0x1F774, 0x1F776, Category::kSo},
    {0x1F77B, 0x1F77F, Category::kSo}, {0x1F7D9, 0x1F7D9, Category::kSo}, {0x1F8B2, 0x1F8BB, Category::kSo},
    {0x1F8C0, 0x1F8C1, Category::kSo}, {0x1FA75, 0x1FA77, Category::kSo}, {0x1FA87, 0x1FA89, Category::kSo},
    {0x1FA8F, 0x1FA8F, Category::kSo}, {0x1FAAD, 0x1FAAF, Category::kSo}, {0x1FABB, 0x1FABF, Category::kSo},
    {0x1FAC6, 0x1FAC6, Category::kSo}, {0x1FACE, 0x1FACF, Category::kSo}, {0x1FADA, 0x1FADC, Category::kSo},
    {0x1FADF, 0x1FADF, Category::kSo}, {0x1FAE8, 0x1FAE9, Category::kSo}, {0x1FAF7, 0x1FAF8, Category::kSo},
    {0x1FBCB, 0x1FBEF, Category::kSo}, {0x2B739, 0x2B739, Category::kLo}, {0x2EBF0, 0x2EE5D, Category::kLo},
    {0x31350, 0x323AF, Category::kLo},
    // clang-format on
};

struct CodePointRange {
  uint32_t first, last;
};

// What became punctuation after Unicode 8; between the ends of a range nothing else is punctuation.
constexpr CodePointRange kYoungPunctuation[] = {
    // clang-format off
    {0x61D, 0x61D}, {0x9FD, 0xA76}, {0xC77, 0xC84}, {0x1B4E, 0x1B4F}, {0x1B7D, 0x1B7F}, {0x2E43, 0x2E5D}, {0x10D6E, 0x10F89},
    {0x113D4, 0x1145D}, {0x11660, 0x116B9}, {0x1183B, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x16D6D, 0x16FE2}, {0x1E5FF, 0x1E95F},
    // clang-format on
};

template <class Range, size_t N>
const Range* find_range(const Range (&ranges)[N], uint32_t code_point) {
  const Range* at =
      std::lower_bound(std::begin(ranges), std::end(ranges), code_point, [](const Range& r, uint32_t c) { return r.last < c; });
  return at != std::end(ranges) && at->first <= code_point ? at : nullptr;
}

}  // namespace

std::optional<Category> young_category(uint32_t code_point) {
  const CategoryRange* range = code_point < kYoung[0].first ? nullptr : find_range(kYoung, code_point);
  return range == nullptr ? std::nullopt : std::optional(range->category);
}

bool is_young_punctuation(uint32_t code_point) { return find_range(kYoungPunctuation, code_point) != nullptr; }

}  // namespace distsetup
