// How near two names are: edit distance with insertion, deletion, substitution and swap of neighbours each costing one (optimal
// string alignment, Damerau 1964), on ASCII-lowered bytes without '-' and '_'. Names are short, so the quadratic form is enough.
#include "base/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>

namespace distsetup {
namespace {

constexpr size_t kMaxListed = 12;

char lower_char(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string without_separators(std::string_view text) {
  std::string folded = lower(text);
  std::erase_if(folded, [](char c) { return c == '-' || c == '_'; });
  return folded;
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), previous(b.size() + 1), current(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitution = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({previous[j] + 1, current[j - 1] + 1, substitution});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) current[j] = std::min(current[j], before[j - 2] + 1);
    }
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), lower_char);
  return out;
}

std::string_view trim(std::string_view text, std::string_view blanks) {
  const size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

bool same_name(std::string_view a, std::string_view b) {
  const auto fold = [](char c) { return c == '-' ? '_' : lower_char(c); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return fold(x) == fold(y); });
}

// Whether the edit distance is more than the limit for certain: no edit adds and none takes away more than one byte, and swaps
// neither.
static bool is_farther(std::string_view a, std::string_view b, size_t limit) {
  const size_t gap = a.size() > b.size() ? a.size() - b.size() : b.size() - a.size();
  if (gap > limit) return true;
  std::array<int, 256> more{};  // of each byte, how many more are in a
  for (const char c : a) ++more[static_cast<unsigned char>(c)];
  for (const char c : b) --more[static_cast<unsigned char>(c)];
  int only_in_a = 0, only_in_b = 0;
  for (const int n : more) (n > 0 ? only_in_a : only_in_b) += n;
  return static_cast<size_t>(std::max(only_in_a, -only_in_b)) > limit;
}

// 'zero4' and 'zero0', but not digits that only changed places.
static bool differs_in_digits(std::string_view a, std::string_view b) {
  const auto is_like = [](char x, char y) { return x == y || (is_digit(x) && is_digit(y)); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), is_like) && !std::is_permutation(a.begin(), a.end(), b.begin(), b.end());
}

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  const std::string wanted = without_separators(name);
  constexpr size_t kShort = 5;
  const size_t limit = wanted.size() < kShort ? 1 : 1 + name.size() / 4;
  size_t best = std::numeric_limits<size_t>::max();
  std::string nearest;
  bool is_one_of_several = false;  // 'zero4' is as near to zero0 as to zero3
  for (const std::string& candidate : candidates) {
    const std::string known = without_separators(candidate);
    if (is_farther(wanted, known, limit)) continue;
    const size_t distance = edit_distance(wanted, known);
    // Every letter changed is not a likeness: 'x' is not near 'y' though the distance is one.
    const bool near = distance <= limit && (distance == 0 || distance < wanted.size());
    if (!near || distance > best) continue;
    const bool is_other_number = wanted.size() <= kShort && differs_in_digits(wanted, known);
    if (distance == best && is_other_number) is_one_of_several = true;
    if (distance == best) continue;
    best = distance;
    nearest = candidate;
    is_one_of_several = false;
  }
  return is_one_of_several ? "" : nearest;
}

std::string misspelt_name(std::string_view name, std::span<const std::string> candidates) {
  constexpr size_t kShortest = 5;
  const auto digits = [](std::string_view text) {
    std::string out;
    std::copy_if(text.begin(), text.end(), std::back_inserter(out), is_digit);
    return out;
  };
  const std::string wanted = without_separators(name);
  for (const std::string& candidate : candidates) {
    const std::string known = without_separators(candidate);
    const size_t most = std::max(known.size(), wanted.size()), least = std::min(known.size(), wanted.size());
    if (least < kShortest || most - least > 1 || digits(known) != digits(wanted)) continue;
    if (edit_distance(wanted, known) <= 1) return candidate;
  }
  return "";
}

std::string suggest(std::string_view name, std::span<const std::string> candidates) {
  if (const std::string nearest = nearest_name(name, candidates); !nearest.empty()) return fmt::format("did you mean '{}'", nearest);
  if (candidates.empty()) return "";
  const size_t listed = std::min(candidates.size(), kMaxListed);
  std::string text = "known: ";
  for (size_t i = 0; i < listed; ++i) text += (i > 0 ? ", " : "") + candidates[i];
  if (candidates.size() > listed) text += fmt::format(" and {} more", candidates.size() - listed);
  return text;
}

size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool surrogate = first == 0xed && byte(1) >= 0xa0;
  const bool too_large = first == 0xf4 && byte(1) >= 0x90;
  return overlong || surrogate || too_large ? 0 : length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace distsetup
