#include "text/template/filters_of_lists.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "text/template/attributes.h"
#include "text/template/call.h"
#include "text/template/compare.h"
#include "text/template/letter_case.h"
#include "text/template/steps.h"
#include "text/template/value_tests.h"
#include "text/template/walk.h"

namespace distsetup::jinja {
namespace {

PyValue folded(PyValue value, bool is_case_sensitive) {
  if (is_case_sensitive || !value.is(Type::kText)) return value;
  return text(lower_case(text_of(value)));
}

PyValue list_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  (void)Matched("list", arguments, {});
  return list(all_items(input));
}

PyValue first_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  (void)Matched("first", arguments, {});
  std::optional<PyValue> first = Walk(input).next();
  return first ? *first : undefined("no first item, the sequence is empty");
}

bool has_reverse(const PyValue& value) { return !value.is(Type::kIterator) && is_iterable(value); }

PyValue last_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  (void)Matched("last", arguments, {});
  if (!has_reverse(input)) fail(fmt::format("'{}' has no last item", type_name(input)), "turn it into a list first: |list|last");
  const Values items = all_items(input);
  return items.empty() ? undefined("no last item, the sequence is empty") : items.back();
}

PyValue reverse_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  (void)Matched("reverse", arguments, {});
  Values items = all_items(input);
  std::reverse(items.begin(), items.end());
  if (input.is(Type::kText)) {
    std::string out;
    for (const PyValue& one : items) out += text_of(one);
    return text(std::move(out), input.flag);
  }
  return input.is(Type::kIterator) ? list(std::move(items)) : iterator(std::move(items));
}

PyValue items_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  (void)Matched("items", arguments, {});
  if (input.is(Type::kUndefined)) return iterator({});
  if (!input.is(Type::kDict))
    return iterator({}, TemplateError{fmt::format("items needs a dict, found {}", type_name(input)), "", 0, 0});
  return iterator(all_items(view(input, ViewOf::kItems)));
}

// Items with the keys they are ordered by.
struct Keyed {
  PyValue item, key;
};
PyValue sorted(std::vector<Keyed> items, bool is_reverse) {
  const auto before = [](const Keyed& a, const Keyed& b) { return less(a.key, b.key); };
  if (is_reverse) std::reverse(items.begin(), items.end());  // equal items keep their order
  std::stable_sort(items.begin(), items.end(), before);
  if (is_reverse) std::reverse(items.begin(), items.end());
  Values out;
  for (Keyed& one : items) out.push_back(std::move(one.item));
  return list(std::move(out));
}

PyValue sort_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  const Matched given("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool is_sensitive = given.truth_of(1, false);
  Values paths = {none()};
  if (given.has(2)) paths = {given.at(2)};
  if (given.has(2) && given.at(2).is(Type::kText)) {
    paths.clear();
    for (const std::string& path : split(text_of(given.at(2)), ',')) paths.push_back(text(path));
  }
  std::vector<Keyed> keyed;
  for (Walk walk(input); std::optional<PyValue> one = walk.next();) {
    Values keys;
    for (const PyValue& path : paths) keys.push_back(folded(path_of(*one, path), is_sensitive));
    keyed.push_back({std::move(*one), list(std::move(keys))});
  }
  return sorted(std::move(keyed), given.truth_of(0, false));
}

PyValue dictsort_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  const Matched given("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = given.has(1) ? given.text_at(1) : "key";
  if (by != "key" && by != "value") fail("dictsort: 'by' is key or value");
  if (input.is(Type::kUndefined)) fail(why_undefined(input));
  if (!input.is(Type::kDict)) fail(fmt::format("dictsort needs a dict, found {}", type_name(input)));
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : entries_of(input)) {
    keyed.push_back({tuple({key, value}), folded(by == "key" ? key : value, given.truth_of(0, false))});
  }
  return sorted(std::move(keyed), given.truth_of(2, false));
}

// Makes the items of a generator; what fails happens when it is walked that far.
template <class Make>
PyValue generated(const PyValue& input, Make make) {
  Values out;
  std::optional<TemplateError> failure;
  try {
    for (Walk walk(input); std::optional<PyValue> one = walk.next();) make(std::move(*one), out);
  } catch (TemplateError& happened) {
    failure = std::move(happened);
  }
  return iterator(std::move(out), std::move(failure));
}

PyValue unique_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  const Matched given("unique", arguments, {"case_sensitive", "attribute"});
  Values seen;
  return generated(input, [&](PyValue one, Values& out) {
    PyValue key = folded(path_of(one, given.value(1, none())), given.truth_of(0, false));
    if (!is_hashable(key)) fail(fmt::format("unique: '{}' cannot be compared by hash", type_name(key)));
    if (std::any_of(seen.begin(), seen.end(), [&](const PyValue& known) { return equal(known, key); })) return;
    seen.push_back(std::move(key));
    out.push_back(std::move(one));
  });
}

template <bool kIsMax>
PyValue extreme_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  const Matched given(kIsMax ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  std::optional<Keyed> best;
  for (Walk walk(input); std::optional<PyValue> one = walk.next();) {
    PyValue key = folded(path_of(*one, given.value(1, none())), given.truth_of(0, false));
    if (!best || (kIsMax ? less(best->key, key) : less(key, best->key))) best = Keyed{std::move(*one), std::move(key)};
  }
  return best ? best->item : undefined("no item to choose, the sequence is empty");
}

PyValue map_filter(TemplateRun& run, const PyValue& input, const CallArguments& arguments) {
  if (!truth(input)) return iterator({});
  const auto is_attribute = [](const auto& keyword) { return keyword.first == "attribute"; };
  if (arguments.positional.empty() && std::any_of(arguments.keywords.begin(), arguments.keywords.end(), is_attribute)) {
    const Matched given("map", arguments, {"attribute", "default"}, 1);
    const PyValue* absent = given.has_value(1) ? &given.at(1) : nullptr;
    return generated(input, [&](PyValue one, Values& out) { out.push_back(path_of(std::move(one), given.at(0), absent)); });
  }
  if (arguments.positional.empty() || !arguments.positional[0].is(Type::kText)) {
    return iterator({}, TemplateError{"map needs the name of a filter, or attribute=", "", 0, 0});
  }
  CallArguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  return generated(input,
                   [&](PyValue one, Values& out) { out.push_back(apply_filter(run, text_of(arguments.positional[0]), one, rest)); });
}

// select, reject, selectattr, rejectattr: [attribute,] [test, its arguments]
template <bool kIsSelect, bool kHasAttribute>
PyValue select_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  if (!truth(input)) return iterator({});
  CallArguments rest = arguments;
  const auto take = [&]() -> std::optional<PyValue> {
    if (rest.positional.empty()) return std::nullopt;
    PyValue first = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return first;
  };
  const std::optional<PyValue> path = kHasAttribute ? take() : std::optional(none());
  if (!path) return iterator({}, TemplateError{"selectattr and rejectattr need the name of an attribute", "", 0, 0});
  const std::optional<PyValue> test = take();
  return generated(input, [&](PyValue one, Values& out) {
    const PyValue asked = path_of(one, *path);
    if (test && !test->is(Type::kText)) fail("the name of a test is a text");
    const bool holds = test ? apply_test(text_of(*test), asked, rest) : truth(asked);
    if (holds == kIsSelect) out.push_back(std::move(one));
  });
}

PyValue batch_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  const Matched given("batch", arguments, {"linecount", "fill_with"}, 1);
  const Integer size = given.whole(0, 1);
  if (size < 1) fail("batch: 'linecount' is at least 1");
  Values rows, row;
  for (Walk walk(input); std::optional<PyValue> one = walk.next();) {
    if (static_cast<Integer>(row.size()) == size) rows.push_back(list(std::exchange(row, {})));
    row.push_back(std::move(*one));
  }
  if (!row.empty()) {
    while (given.has_value(1) && static_cast<Integer>(row.size()) < size) {
      count_steps(1);
      row.push_back(given.at(1));
    }
    rows.push_back(list(std::move(row)));
  }
  return iterator(std::move(rows));
}

PyValue slice_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  const Matched given("slice", arguments, {"slices", "fill_with"}, 1);
  const Values items = all_items(input);
  const Integer num_slices = given.whole(0, 1);
  if (num_slices < 1) fail("slice: 'slices' is at least 1");
  const auto size = static_cast<Integer>(items.size());
  Values rows;
  Integer begin = 0;
  for (Integer i = 0; i < num_slices; ++i) {
    count_steps(1);
    const Integer end = begin + size / num_slices + (i < size % num_slices ? 1 : 0);
    Values row(items.begin() + static_cast<std::ptrdiff_t>(begin), items.begin() + static_cast<std::ptrdiff_t>(end));
    if (given.has_value(1) && i >= size % num_slices) row.push_back(given.at(1));
    rows.push_back(list(std::move(row)));
    begin = end;
  }
  return iterator(std::move(rows));
}

// (grouper, list) pairs; `.grouper` and `.list` are not read, which loops do not need.
PyValue groupby_filter(TemplateRun&, const PyValue& input, const CallArguments& arguments) {
  const Matched given("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const PyValue* absent = given.has_value(1) ? &given.at(1) : nullptr;
  const auto value_at = [&](const PyValue& one) { return path_of(one, given.at(0), absent); };
  std::vector<Keyed> keyed;
  for (Walk walk(input); std::optional<PyValue> one = walk.next();) {
    PyValue key = folded(value_at(*one), given.truth_of(2, false));
    keyed.push_back({std::move(*one), std::move(key)});
  }
  std::stable_sort(keyed.begin(), keyed.end(), [](const Keyed& a, const Keyed& b) { return less(a.key, b.key); });
  Values groups;
  for (size_t i = 0; i < keyed.size();) {
    Values members;
    const size_t begin = i;
    for (; i < keyed.size() && equal(keyed[i].key, keyed[begin].key); ++i) members.push_back(keyed[i].item);
    groups.push_back(tuple({value_at(keyed[begin].item), list(std::move(members))}));
  }
  return list(std::move(groups));
}

}  // namespace

std::vector<NamedFilter> list_filters() {
  return {{"list", list_filter},
          {"first", first_filter},
          {"last", last_filter},
          {"reverse", reverse_filter},
          {"items", items_filter},
          {"sort", sort_filter},
          {"dictsort", dictsort_filter},
          {"unique", unique_filter},
          {"max", extreme_filter<true>},
          {"min", extreme_filter<false>},
          {"map", map_filter},
          {"select", select_filter<true, false>},
          {"reject", select_filter<false, false>},
          {"selectattr", select_filter<true, true>},
          {"rejectattr", select_filter<false, true>},
          {"batch", batch_filter},
          {"slice", slice_filter},
          {"groupby", groupby_filter}};
}

}  // namespace distsetup::jinja
