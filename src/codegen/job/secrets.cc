// Prefixes: as the services document their tokens (Hugging Face hf_, GitHub ghp_ gho_ github_pat_, OpenAI and others sk-, AWS AKIA,
// Slack xoxb-). Names: words between underscores, so that TOKENIZERS_PARALLELISM is no token; what the value says counts, too.
#include "codegen/job/secrets.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace distsetup {
namespace {

constexpr std::array<std::string_view, 9> kPrefixes = {"hf_",  "ghp_",  "gho_",   "github_pat_", "sk-",
                                                       "AKIA", "xoxb-", "glpat-", "nvapi-"};
constexpr std::array<std::string_view, 7> kWords = {"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY", "CREDENTIALS"};
constexpr std::array<std::string_view, 4> kEnds = {"API_KEY", "ACCESS_KEY", "PRIVATE_KEY", "SECRET_KEY"};
constexpr std::array<std::string_view, 6> kSwitches = {"TRUE", "FALSE", "NONE", "NULL", "YES", "NO"};
constexpr std::array<std::string_view, 2> kKinds = {"_TYPE", "_POLICY"};  // moe_token_dispatcher_type
constexpr std::array<std::string_view, 3> kPlaces = {"_PATH", "_FILE", "_DIR"};
constexpr size_t kShortestToken = 16;  // behind the prefix

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string upper_of(std::string_view name) {
  std::string upper;
  for (const char c : name) upper += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return upper;
}

// A switch or a list is no secret, nor is a number of tokens, nor the file that a secret stands in.
bool is_harmless_value(std::string_view name, std::string_view rest) {
  const std::string value = upper_of(rest.substr(0, rest.find_first_of(" \t\n;\"'")));
  if (value.empty() || value[0] == '[' || value[0] == '{' || value[0] == '(') return true;
  if (std::find(kSwitches.begin(), kSwitches.end(), value) != kSwitches.end()) return true;
  const std::string upper = upper_of(name);
  const bool is_number = value.find_first_not_of("0123456789._") == std::string::npos;
  const bool is_place = std::any_of(kPlaces.begin(), kPlaces.end(), [&upper](std::string_view end) { return upper.ends_with(end); });
  return (is_number && upper.find("TOKEN") != std::string::npos) || (is_place && value.find('/') != std::string::npos);
}

bool is_secret_name(std::string_view name) {
  const std::string upper = upper_of(name);
  if (std::any_of(kKinds.begin(), kKinds.end(), [&upper](std::string_view end) { return upper.ends_with(end); })) return false;
  for (size_t begin = 0; begin <= upper.size();) {
    const size_t end = std::min(upper.find('_', begin), upper.size());
    if (std::find(kWords.begin(), kWords.end(), upper.substr(begin, end - begin)) != kWords.end()) return true;
    begin = end + 1;
  }
  return std::any_of(kEnds.begin(), kEnds.end(), [&upper](std::string_view end) {
    return upper.size() >= end.size() && upper.compare(upper.size() - end.size(), end.size(), end) == 0;
  });
}

}  // namespace

std::string secret_in(std::string_view text) {
  for (size_t at = text.find('='); at != std::string_view::npos; at = text.find('=', at + 1)) {
    size_t begin = at;
    while (begin > 0 && (is_word(text[begin - 1]) || text[begin - 1] == '-')) --begin;
    size_t value = at + 1;
    while (value < text.size() && (text[value] == '"' || text[value] == '\'')) ++value;
    const bool is_read = value >= text.size() || text[value] == '$' || text[value] == '`' || text[value] == ' ';
    const std::string_view name = text.substr(begin, at - begin);
    if (!is_read && is_secret_name(name) && !is_harmless_value(name, text.substr(value))) return std::string(name);
  }
  for (const std::string_view prefix : kPrefixes) {
    for (size_t at = text.find(prefix); at != std::string_view::npos; at = text.find(prefix, at + 1)) {
      if (at > 0 && is_word(text[at - 1])) continue;
      size_t end = at + prefix.size();
      while (end < text.size() && (is_word(text[end]) || text[end] == '-')) ++end;
      const bool has_digit = std::any_of(text.begin() + static_cast<std::ptrdiff_t>(at + prefix.size()),
                                         text.begin() + static_cast<std::ptrdiff_t>(end), [](char c) { return c >= '0' && c <= '9'; });
      if (end - at >= prefix.size() + kShortestToken && has_digit) return fmt::format("a token that begins with {}", prefix);
    }
  }
  return "";
}

}  // namespace distsetup
