#include "codegen/lint/misspelt.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

#include "base/names.h"

namespace distsetup::lint {
namespace {

std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (c == '_' || c == '-' || c == '.') {
      words.emplace_back();
    } else {
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return words;
}

std::string joined(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c != '_' && c != '-' && c != ' ') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

std::string digits_of(std::string_view word) {
  std::string digits;
  std::copy_if(word.begin(), word.end(), std::back_inserter(digits), is_digit);
  return digits;
}

bool is_slip(const std::string& a, const std::string& b) {
  constexpr size_t kShort = 4, kLong = 9;
  const size_t size = std::min(a.size(), b.size());
  if (a[0] != b[0]) return false;  // hardly anybody misspells the first letter: "patch", "batch"
  if (size + 1 < kShort || std::max(a.size(), b.size()) < kShort || digits_of(a) != digits_of(b)) return false;
  return edit_distance(a, b) <= (size >= kLong ? 2u : 1u);
}

ptrdiff_t num_letters(std::string_view name) {
  return std::count_if(name.begin(), name.end(), [](char c) { return c != '_' && c != '-' && c != '.' && c != ' '; });
}

// Of both ways to be a slip the first letter is kept, and most candidates have another.
bool has_same_first_letter(std::string_view a, std::string_view b) {
  const auto first = [](std::string_view name) {
    const size_t at = name.find_first_not_of("_-. ");
    return at == std::string_view::npos ? 0 : std::tolower(static_cast<unsigned char>(name[at]));
  };
  return first(a) == first(b);
}

bool is_misspelt(std::string_view name, std::string_view candidate) {
  if (!has_same_first_letter(name, candidate)) return false;
  constexpr size_t kMostLetters = 100;   // no tool has so long a name
  constexpr ptrdiff_t kMostChanged = 4;  // two slips of two letters each
  if (name.size() > kMostLetters || std::abs(num_letters(name) - num_letters(candidate)) > kMostChanged) return false;
  if (joined(name) == joined(candidate)) return true;
  const std::vector<std::string> a = words_of(name), b = words_of(candidate);
  if (a.size() != b.size()) return false;
  int num_slips = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    if (!is_slip(a[i], b[i]) || ++num_slips > 2) return false;
  }
  return true;
}

}  // namespace

std::string misspelt_name(std::string_view name, std::span<const std::string> candidates) {
  const auto found =
      std::find_if(candidates.begin(), candidates.end(), [name](const std::string& one) { return is_misspelt(name, one); });
  return found == candidates.end() ? "" : *found;
}

std::string misspelt_option(const std::vector<NameEntry>& entries, std::string_view spelled) {
  const auto near = [&entries](std::string_view name) {
    const auto found =
        std::find_if(entries.begin(), entries.end(), [name](const NameEntry& one) { return is_misspelt(name, one.name); });
    return found == entries.end() ? "" : found->name;
  };
  std::string name = near(spelled);
  // "-nodes" for "--nodes"
  const bool has_one_dash = spelled.size() > 3 && spelled[0] == '-' && spelled[1] != '-';
  return name.empty() && has_one_dash ? near("-" + std::string(spelled)) : name;
}

bool is_spank_option(std::string_view spelled) {
  // The last is of SageMaker HyperPod's clusters.
  static constexpr std::array<std::string_view, 15> kOptions = {
      "--image",  "--module", "--volume", "--clearenv", "--env",         "--entrypoint", "--workdir",    "--perf",
      "--tmpdir", "--uenv",   "--view",   "--x11",      "--environment", "--quotatype",  "--auto-resume"};
  static constexpr std::array<std::string_view, 4> kFamilies = {"--container-", "--shifter", "--scitas-", "--no-container-"};
  return std::find(kOptions.begin(), kOptions.end(), spelled) != kOptions.end() ||
         std::any_of(kFamilies.begin(), kFamilies.end(),
                     [spelled](std::string_view head) { return spelled.substr(0, head.size()) == head; });
}

}  // namespace distsetup::lint
