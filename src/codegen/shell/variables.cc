#include "codegen/shell/variables.h"

#include <algorithm>

namespace distsetup::foreign {
const ShellValue* ShellVariables::find(std::string_view name) const {
  const auto it = values_.find(name);
  return it == values_.end() ? nullptr : &it->second;
}

void ShellVariables::remember(std::string_view name) {
  if (before_.empty() || before_.back().find(name) != before_.back().end()) return;
  const ShellValue* now = find(name);
  before_.back().emplace(name, now == nullptr ? std::nullopt : std::optional<ShellValue>(*now));
}

std::optional<ShellValue> ShellVariables::take(std::string_view name) {
  remember(name);
  const auto it = values_.find(name);
  if (it == values_.end()) return std::nullopt;
  return std::move(it->second);
}

void ShellVariables::set(std::string_view name, ShellValue value) {
  if (value.text.size() > kMaxValueBytes || value.words.size() > kMaxValueWords) {
    value = {};
    value.is_known = false;
  }
  remember(name);
  const auto it = values_.find(name);
  if (it == values_.end()) {
    values_.emplace(name, std::move(value));
  } else {
    it->second = std::move(value);
  }
}

void ShellVariables::set_unknown(std::string_view name) {
  ShellValue value;
  value.is_known = false;
  set(name, std::move(value));
}

void ShellVariables::begin() { before_.emplace_back(); }

ShellVariables::Changes ShellVariables::end() {
  Changes out;
  for (auto& [name, value] : before_.back()) {
    const auto it = values_.find(name);
    out.emplace(name, std::move(it->second));
    if (value) {
      it->second = std::move(*value);
    } else {
      values_.erase(it);
    }
  }
  before_.pop_back();
  return out;
}

namespace {

using Words = std::vector<ShellWord>;

bool is_option(const ShellWord& word) {
  return word.text.size() > 1 && word.text[0] == '-' && (word.text[1] < '0' || word.text[1] > '9');
}

// From `at` on: options, each with the words behind it.
std::vector<Words> options_of(const Words& words, size_t at) {
  std::vector<Words> out;
  for (; at < words.size(); ++at) {
    if (out.empty() || is_option(words[at])) out.emplace_back();
    out.back().push_back(words[at]);
  }
  return out;
}

bool are_same(const Words& a, const Words& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const ShellWord& x, const ShellWord& y) { return x.text == y.text; });
}

std::string option_name(const ShellWord& word) { return word.text.substr(0, word.text.find('=')); }

// Options that have other values there: "--lr=$ARGS", which only the running script knows; and that the others lack:
// "--lr=${ARGS:+}", which nobody knows to be given.
void add_unknown(const std::vector<Words>& these, const std::vector<Words>& others, std::string_view name, Words& out) {
  for (const Words& one : these) {
    const bool is_shared = std::any_of(others.begin(), others.end(), [&one](const Words& other) { return are_same(one, other); });
    const std::string option = option_name(one[0]);
    const bool is_there =
        std::any_of(out.begin(), out.end(), [&option](const ShellWord& word) { return option_name(word) == option; });
    if (is_shared || is_there) continue;
    const bool is_in_both =
        std::any_of(others.begin(), others.end(), [&option](const Words& other) { return option_name(other[0]) == option; });
    ShellWord word = one[0];
    word.text = option + (is_in_both ? "=$" + std::string(name) : "=${" + std::string(name) + ":+}");
    word.parts = {{ShellQuote::kDouble, word.text, word.span}};
    out.push_back(std::move(word));
  }
}

// What both lists say: the words they begin with alike, and the options that both have.
Words agreed_words(const Words& a, const Words& b, std::string_view name) {
  constexpr size_t kMostOptions = 100;  // every one is held against every other
  const size_t most = std::min(a.size(), b.size());
  size_t same = 0;
  while (same < most && a[same].text == b[same].text) ++same;
  const auto is_value = [&same](const Words& words) { return same < words.size() && !is_option(words[same]); };
  // "--lr 1" and "--lr 2"; "--lr=1" has its value
  const bool may_take = same > 0 && is_option(a[same - 1]) && a[same - 1].text.find('=') == std::string::npos;
  if (may_take && (is_value(a) || is_value(b))) --same;
  Words out(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(same));
  const std::vector<Words> of_a = options_of(a, same), of_b = options_of(b, same);
  if (is_value(a) || is_value(b) || of_a.size() > kMostOptions || of_b.size() > kMostOptions) return out;
  for (const Words& one : of_a) {
    const bool is_shared = std::any_of(of_b.begin(), of_b.end(), [&one](const Words& other) { return are_same(one, other); });
    if (is_shared) out.insert(out.end(), one.begin(), one.end());
  }
  add_unknown(of_a, of_b, name, out);
  add_unknown(of_b, of_a, name, out);
  return out;
}

// No word of it says an option either.
bool is_unknown(const ShellValue& value) {
  return !value.is_known && (value.words.empty() || (value.words.size() == 1 && !is_option(value.words[0])));
}

// What both say, or the one that is known at all.
ShellValue agreed(const ShellValue& a, const ShellValue& b, std::string_view name) {
  ShellValue out = is_unknown(a) ? b : a;
  if (a.text == b.text && a.is_known == b.is_known && a.words.size() == b.words.size()) {
    out.is_certain = a.is_certain && b.is_certain;
    return out;
  }
  out.is_certain = false;
  if (is_unknown(a) || is_unknown(b)) return is_unknown(b) ? a : out;
  const ShellValue& shorter = a.words.size() <= b.words.size() ? a : b;
  Words words = agreed_words(a.words, b.words, name);
  const bool is_shorter = are_same(words, shorter.words);
  out = is_shorter ? shorter : ShellValue();
  out.is_certain = false;
  if (is_shorter) return out;
  out.is_known = false;
  out.is_array = a.is_array;
  out.words = std::move(words);
  return out;
}

}  // namespace

void ShellVariables::merge(const std::vector<Changes>& parts, bool may_be_none) {
  Changes all;
  std::map<std::string, size_t, std::less<>> num_changes;
  for (const Changes& part : parts) {
    for (const auto& [name, value] : part) {
      const auto [it, is_new] = all.try_emplace(name, value);
      if (!is_new) it->second = agreed(it->second, value, name);
      ++num_changes[name];
    }
  }
  for (auto& [name, value] : all) {
    const ShellValue* before = find(name);
    const bool is_everywhere = !may_be_none && num_changes[name] == parts.size();
    if (before != nullptr && !is_everywhere) {
      set(name, agreed(*before, value, name));
    } else {
      value.is_certain = value.is_certain && is_everywhere;
      set(name, std::move(value));
    }
  }
}

}  // namespace distsetup::foreign
