// Keys of a file that do not go together (`checks` of a table).
#include "codegen/read/checks.h"

#include <algorithm>
#include <charconv>

#include "base/diagnostic_codes.h"
#include "base/names.h"
#include "codegen/read/match.h"

namespace distsetup {
namespace {

const FoundKey* key_at(const std::vector<FoundKey>& found, std::string_view key) {
  for (const FoundKey& one : found) {
    if (is_same_key(one.key, key)) return &one;
  }
  return nullptr;
}

double number_in(std::string_view text) {
  double number = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// One wanted text of a check's condition against a key of the file, or what the tool assumes for it.
bool is_wanted(const FoundKey* found, const std::string& wanted) {
  if (wanted == "null") return found == nullptr || found->is_assumed;
  if (wanted == "*") return found != nullptr && !found->is_assumed && !found->is_maybe;
  if (found == nullptr || !found->unknown.empty()) return false;
  if (wanted[0] == '>') return number_in(found->text) > number_in(std::string_view(wanted).substr(1));
  const bool has_part = wanted.size() > 1 && found->text.find(wanted.substr(1)) != std::string::npos;
  if (wanted[0] == '~') return has_part;
  if (wanted[0] == '!') return !has_part;
  return same_name(found->text, wanted);
}

std::string filled(const std::string& text, const std::vector<FoundKey>& found) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t close = text[at] == '{' ? text.find('}', at) : std::string::npos;
    const FoundKey* key = close == std::string::npos ? nullptr : key_at(found, text.substr(at + 1, close - at - 1));
    if (key == nullptr) {
      out += text[at++];
    } else {
      out += key->text;
      at = close + 1;
    }
  }
  return out;
}

}  // namespace

std::vector<Complaint> complaints_about(const KeyTable& table, const std::vector<FoundKey>& found) {
  std::vector<Complaint> out;
  for (const KeyCheck& check : table.checks) {
    const FoundKey* first = nullptr;
    bool holds = true;
    for (const auto& [key, texts] : check.given) {
      const FoundKey* one = key_at(found, key);
      bool any = false;
      for (const std::string& text : texts) any = any || is_wanted(one, text);
      holds = holds && any;
      if (first == nullptr && one != nullptr && !one->is_assumed) first = one;
    }
    if (!holds || first == nullptr) continue;
    Diagnostic diagnostic = error(code::kConflict, first->at, filled(check.message, found), filled(check.help, found));
    diagnostic.severity = check.severity;
    diagnostic.length = static_cast<int>(first->key.size());
    const FoundKey* weights = check.weights.empty() ? nullptr : key_at(found, check.weights);
    out.push_back({check.trainer, weights == nullptr ? "" : weights->text, std::move(diagnostic)});
  }
  return out;
}

std::string extended_by(const KeyTable& table, const std::vector<FoundKey>& found) {
  for (const FoundKey& one : found) {
    const bool names_one = std::any_of(table.extended_by.begin(), table.extended_by.end(),
                                       [&one](const std::string& key) { return is_same_key(one.key, key); });
    if (names_one && !one.text.empty()) return one.key;
  }
  return "";
}

}  // namespace distsetup
