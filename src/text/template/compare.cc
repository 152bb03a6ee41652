#include "text/template/compare.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/template/steps.h"
#include "text/template/walk.h"

namespace distsetup::jinja {
namespace {

bool equal_entries(const Entries& a, const Entries& b) {
  if (a.size() != b.size()) return false;
  return std::all_of(a.begin(), a.end(), [&](const auto& entry) {
    count_steps(1 + b.size() / 8);
    const PyValue* other = find_entry(b, entry.first);
    return other != nullptr && equal(entry.second, *other);
  });
}

bool equal_items(const Values& a, const Values& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](const PyValue& x, const PyValue& y) { return equal(x, y); });
}

bool equal_ranges(const HeldRange& a, const HeldRange& b) {
  if (a.length != b.length) return false;
  return a.length == 0 || (a.start == b.start && (a.length == 1 || a.step == b.step));
}

// dict_keys and dict_items are sets; dict_values is only itself.
bool equal_views(const PyValue& a, const PyValue& b) {
  if (view_of(a).of != view_of(b).of || view_of(a).of == ViewOf::kValues) return a.held == b.held;
  const Entries& left = entries_of(view_of(a).dict);
  const Entries& right = entries_of(view_of(b).dict);
  if (view_of(a).of == ViewOf::kItems) return equal_entries(left, right);
  return left.size() == right.size() &&
         std::all_of(left.begin(), left.end(), [&](const auto& entry) { return find_entry(right, entry.first) != nullptr; });
}

bool equal_numbers(const PyValue& a, const PyValue& b) {
  if (a.is_whole() && b.is_whole()) return a.whole() == b.whole();
  return a.number() == b.number();
}

}  // namespace

bool equal(const PyValue& a, const PyValue& b) {
  count_steps(1);
  if (a.is_number() && b.is_number()) return equal_numbers(a, b);
  if (a.type != b.type) return false;
  switch (a.type) {
    case Type::kUndefined:
    case Type::kNone: return true;
    case Type::kText: return text_of(a) == text_of(b);
    case Type::kList:
    case Type::kTuple: return a.held == b.held || equal_items(items_of(a), items_of(b));
    case Type::kDict: return a.held == b.held || equal_entries(entries_of(a), entries_of(b));
    case Type::kRange: return equal_ranges(range_of(a), range_of(b));
    case Type::kView: return equal_views(a, b);
    default: return a.held == b.held;
  }
}

bool less(const PyValue& a, const PyValue& b) {
  count_steps(1);
  if (a.is_whole() && b.is_whole()) return a.whole() < b.whole();
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  if (a.is(Type::kText) && b.is(Type::kText)) return text_of(a) < text_of(b);  // the order of UTF-8 bytes is that of code points
  if (a.type == b.type && (a.is(Type::kList) || a.is(Type::kTuple))) {
    const Values& left = items_of(a);
    const Values& right = items_of(b);
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (!equal(left[i], right[i])) return less(left[i], right[i]);
    }
    return left.size() < right.size();
  }
  for (const PyValue* one : {&a, &b}) {
    if (one->is(Type::kUndefined)) fail(why_undefined(*one));
  }
  fail(fmt::format("'<' is not defined between {} and {}", type_name(a), type_name(b)));
}

bool contains(const PyValue& container, const PyValue& item) {
  if (container.is(Type::kText)) {
    if (!item.is(Type::kText)) fail(fmt::format("'in' a text needs a text on its left side, found {}", type_name(item)));
    count_steps(text_of(container).size() / 32);
    return text_of(container).find(text_of(item)) != std::string::npos;
  }
  const bool is_keys = container.is(Type::kView) && view_of(container).of == ViewOf::kKeys;
  if (container.is(Type::kDict) || is_keys) {
    if (!is_hashable(item)) fail(fmt::format("'{}' cannot be the key of a dict", type_name(item)));
    const Entries& entries = entries_of(is_keys ? view_of(container).dict : container);
    count_steps(entries.size() / 8);
    return find_entry(entries, item) != nullptr;
  }
  for (Walk walk(container); std::optional<PyValue> one = walk.next();) {
    if (equal(*one, item)) return true;
  }
  return false;
}

bool is_same(const PyValue& a, const PyValue& b) {
  if (a.type != b.type) return false;
  switch (a.type) {
    case Type::kNone: return true;
    case Type::kBool: return a.flag == b.flag;
    case Type::kInteger: return a.integer == b.integer && a.integer >= -5 && a.integer <= 256;
    case Type::kFloat: return false;
    default: return a.held == b.held;
  }
}

}  // namespace distsetup::jinja
