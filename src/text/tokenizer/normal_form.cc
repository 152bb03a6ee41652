#include "text/tokenizer/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "text/tokenizer/unicode.h"

namespace distsetup {
namespace {

struct YoungRange {
  uint32_t first, last;
};

// The tokenizers library decomposes by Unicode 9. What Unicode 10 to 15 gave a decomposition...
constexpr YoungRange kYoungDecompositions[] = {{0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xAB69, 0xAB69},   {0x10781, 0x107BA},
                                               {0x11938, 0x11938}, {0x1E030, 0x1E06D}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}};
// ... and what they gave a combining class other than 0.
constexpr YoungRange kYoungMarks[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},     {0xD3B, 0xD3C},
    {0xEBA, 0xEBA},     {0xECE, 0xECE},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},
    {0x10D24, 0x10D27}, {0x10EAB, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B},
    {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11938, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47},
    {0x11A99, 0x11A99}, {0x11D42, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F},
    {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}};

template <size_t N>
bool is_in(const YoungRange (&ranges)[N], uint32_t c) {
  const YoungRange* range =
      std::lower_bound(std::begin(ranges), std::end(ranges), c, [](const YoungRange& r, uint32_t x) { return r.last < x; });
  return range != std::end(ranges) && range->first <= c;
}

int combining_class(uint32_t c) {
  if (c < 0x300) return 0;
  const int known = utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
  return known != 0 && is_in(kYoungMarks, c) ? 0 : known;
}

// Characters with their classes, decomposed and in canonical order.
struct Decomposed {
  ChangedCharacter character;
  int combining = 0;
};

std::vector<Decomposed> decompose(std::string_view text, bool compatible) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<Decomposed> out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    at += c.num_bytes;
    utf8proc_int32_t parts[32];  // the longest decomposition has 18 (U+FDFA)
    int last_class = 0;
    const utf8proc_ssize_t count =
        c.value < 0x80 || is_in(kYoungDecompositions, c.value)
            ? 0
            : utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.value), parts, 32, options, &last_class);
    if (count <= 0 || count > 32) {
      out.push_back({{c.value, 0}, combining_class(c.value)});
      continue;
    }
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      const auto part = static_cast<uint32_t>(parts[i]);
      out.push_back({{part, i > 0 ? 1 : 0}, combining_class(part)});
    }
  }
  for (size_t begin = 0; begin < out.size();) {
    size_t end = begin + 1;
    while (end < out.size() && out[end].combining != 0) ++end;
    // the character at `begin` too, when the text begins with a mark
    std::stable_sort(out.begin() + static_cast<std::ptrdiff_t>(begin), out.begin() + static_cast<std::ptrdiff_t>(end),
                     [](const Decomposed& a, const Decomposed& b) { return a.combining < b.combining; });
    begin = end;
  }
  return out;
}

// The one character that these two compose to, 0 when there is none.
uint32_t compose(uint32_t first, uint32_t second) {
  if (second < 0x300) return 0;
  utf8proc_int32_t pair[3] = {static_cast<utf8proc_int32_t>(first), static_cast<utf8proc_int32_t>(second), 0};
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const bool joined = utf8proc_normalize_utf32(pair, 2, options) == 1;
  return joined && !is_in(kYoungDecompositions, static_cast<uint32_t>(pair[0])) ? static_cast<uint32_t>(pair[0]) : 0;
}

std::vector<ChangedCharacter> composed(const std::vector<Decomposed>& parts) {
  std::vector<ChangedCharacter> out;
  size_t starter = 0;  // in `out`
  bool has_starter = false;
  int last_class = -1;  // of what stands behind the starter and did not join it; -1: nothing
  for (const auto& [character, combining] : parts) {
    if (has_starter && last_class < combining) {
      const uint32_t joined = compose(out[starter].value, character.value);
      if (joined != 0) {
        out[starter] = {joined, out[starter].change + character.change - 1};
        continue;
      }
    }
    out.push_back(character);
    if (combining == 0) {
      starter = out.size() - 1;
      has_starter = true;
      last_class = -1;
    } else {
      last_class = combining;
    }
  }
  return out;
}

}  // namespace

std::vector<ChangedCharacter> normal_form(NormalForm form, std::string_view text) {
  const std::vector<Decomposed> parts = decompose(text, form == NormalForm::kNfkc || form == NormalForm::kNfkd);
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) return composed(parts);
  std::vector<ChangedCharacter> out;
  for (const Decomposed& part : parts) out.push_back(part.character);
  return out;
}

size_t end_of_cluster(std::string_view text, size_t at) {
  utf8proc_int32_t state = 0;
  CodePoint c = code_point_at(text, at);
  for (at += c.num_bytes; at < text.size();) {
    const CodePoint next = code_point_at(text, at);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.value), static_cast<utf8proc_int32_t>(next.value), &state))
      break;
    c = next;
    at += c.num_bytes;
  }
  return at;
}

void append_lower(std::vector<ChangedCharacter>& to, uint32_t c) {
  if (c == 0x130) {
    to.push_back({'i', 0});
    to.push_back({0x307, 1});
    return;
  }
  // Unicode 16 and 17
  if (c >= 0x10D50 && c <= 0x10D65) return to.push_back({c + 0x20, 0});
  if (c == 0x1C89 || c == 0xA7CC || c == 0xA7CE || c == 0xA7D2 || c == 0xA7D4 || c == 0xA7DA) return to.push_back({c + 1, 0});
  if (c >= 0x16EA0 && c <= 0x16EB8) return to.push_back({c + 0x1B, 0});
  if (c == 0xA7CB) return to.push_back({0x264, 0});
  if (c == 0xA7DC) return to.push_back({0x19B, 0});
  to.push_back({static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), 0});
}

}  // namespace distsetup
