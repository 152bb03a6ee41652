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

// What both say: the words they begin with alike, or the one that is known at all.
ShellValue agreed(const ShellValue& a, const ShellValue& b) {
  ShellValue out = !a.is_known && a.words.size() <= 1 ? b : a;
  if (a.text == b.text && a.is_known == b.is_known && a.words.size() == b.words.size()) {
    out.is_certain = a.is_certain && b.is_certain;
    return out;
  }
  out.is_certain = false;
  const bool is_one_unknown = (!a.is_known && a.words.size() <= 1) || (!b.is_known && b.words.size() <= 1);
  if (is_one_unknown) return !b.is_known && b.words.size() <= 1 ? a : out;
  const size_t most = std::min(a.words.size(), b.words.size());
  size_t same = 0;
  while (same < most && a.words[same].text == b.words[same].text) ++same;
  const ShellValue& shorter = a.words.size() <= b.words.size() ? a : b;
  if (same == most) {
    out = shorter;
    out.is_certain = false;
    return out;
  }
  out = {};
  out.is_known = out.is_certain = false;
  out.is_array = a.is_array;
  if (same > 0) out.words.assign(a.words.begin(), a.words.begin() + static_cast<std::ptrdiff_t>(same));
  return out;
}

}  // namespace

void ShellVariables::merge(const std::vector<Changes>& parts, bool may_be_none) {
  Changes all;
  std::map<std::string, size_t, std::less<>> num_changes;
  for (const Changes& part : parts) {
    for (const auto& [name, value] : part) {
      const auto [it, is_new] = all.try_emplace(name, value);
      if (!is_new) it->second = agreed(it->second, value);
      ++num_changes[name];
    }
  }
  for (auto& [name, value] : all) {
    const ShellValue* before = find(name);
    const bool is_everywhere = !may_be_none && num_changes[name] == parts.size();
    if (before != nullptr && !is_everywhere) {
      set(name, agreed(*before, value));
    } else {
      value.is_certain = value.is_certain && is_everywhere;
      set(name, std::move(value));
    }
  }
}

}  // namespace distsetup::foreign
