#include "text/template/python_value.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/names.h"
#include "text/template/compare.h"
#include "text/template/template_loop.h"

namespace distsetup::jinja {

void fail(std::string message, std::string help) { throw TemplateError{std::move(message), std::move(help)}; }

int depth_over(const PyValue& held) {
  const int depth = 1 + (held.held ? held.held->depth : 0);
  if (depth > kMaxDepth) fail(fmt::format("a value is nested more than {} deep", kMaxDepth));
  return depth;
}

int depth_over(const Values& held) {
  int depth = 1;
  for (const PyValue& one : held) depth = std::max(depth, depth_over(one));
  return depth;
}

PyValue none() { return {.type = Type::kNone}; }
PyValue boolean(bool value) { return {.type = Type::kBool, .flag = value}; }
PyValue integer(Integer value) { return {.type = Type::kInteger, .integer = value}; }
PyValue real(double value) { return {.type = Type::kFloat, .real = value}; }

PyValue text(std::string value, bool is_safe) {
  auto held = std::make_shared<HeldText>();
  held->text = std::move(value);
  return {.type = Type::kText, .flag = is_safe, .held = std::move(held)};
}

PyValue undefined(std::string why) {
  PyValue value = text(std::move(why));
  value.type = Type::kUndefined;
  return value;
}

PyValue list(Values items) {
  auto held = std::make_shared<HeldItems>();
  held->depth = depth_over(items);
  held->items = std::move(items);
  return {.type = Type::kList, .held = std::move(held)};
}

PyValue tuple(Values items) {
  PyValue value = list(std::move(items));
  value.type = Type::kTuple;
  return value;
}

PyValue dict(Entries entries) {
  auto held = std::make_shared<HeldEntries>();
  for (const auto& [key, value] : entries) held->depth = std::max({held->depth, depth_over(key), depth_over(value)});
  held->entries = std::move(entries);
  return {.type = Type::kDict, .held = std::move(held)};
}

PyValue view(PyValue dict, ViewOf of) {
  auto held = std::make_shared<HeldView>();
  held->depth = depth_over(dict);
  held->dict = std::move(dict);
  held->of = of;
  return {.type = Type::kView, .held = std::move(held)};
}

PyValue range(Integer start, Integer stop, Integer step) {
  auto held = std::make_shared<HeldRange>();
  held->start = start, held->stop = stop, held->step = step;
  if (step > 0 && stop > start) held->length = (stop - start + step - 1) / step;
  if (step < 0 && stop < start) held->length = (start - stop - step - 1) / -step;
  return {.type = Type::kRange, .held = std::move(held)};
}

PyValue iterator(Values items, std::optional<TemplateError> failure) {
  auto held = std::make_shared<HeldIterator>();
  held->depth = depth_over(items);
  held->items = std::make_shared<const Values>(std::move(items));
  held->failure = std::move(failure);
  return {.type = Type::kIterator, .held = std::move(held)};
}

const std::string& text_of(const PyValue& value) { return static_cast<const HeldText&>(*value.held).text; }
const Values& items_of(const PyValue& value) { return static_cast<const HeldItems&>(*value.held).items; }
const Entries& entries_of(const PyValue& value) { return static_cast<const HeldEntries&>(*value.held).entries; }
HeldIterator& iterator_of(const PyValue& value) { return static_cast<HeldIterator&>(*value.held); }
const HeldRange& range_of(const PyValue& value) { return static_cast<const HeldRange&>(*value.held); }
const HeldView& view_of(const PyValue& value) { return static_cast<const HeldView&>(*value.held); }

std::string why_undefined(const PyValue& undefined) {
  return undefined.held ? static_cast<const HeldText&>(*undefined.held).text : "the value is undefined";
}

std::string type_name(const PyValue& value) {
  switch (value.type) {
    case Type::kUndefined: return "Undefined";
    case Type::kNone: return "NoneType";
    case Type::kBool: return "bool";
    case Type::kInteger: return "int";
    case Type::kFloat: return "float";
    case Type::kText: return value.flag ? "Markup" : "str";
    case Type::kList: return "list";
    case Type::kTuple: return "tuple";
    case Type::kDict: return "dict";
    case Type::kView: break;
    case Type::kRange: return "range";
    case Type::kIterator: return "generator";
    case Type::kNamespace: return "Namespace";
    case Type::kCallable: return "function";
    case Type::kLoop: return "LoopContext";
  }
  const ViewOf of = view_of(value).of;
  return of == ViewOf::kItems ? "dict_items" : of == ViewOf::kKeys ? "dict_keys" : "dict_values";
}

bool truth(const PyValue& value) {
  switch (value.type) {
    case Type::kUndefined:
    case Type::kNone: return false;
    case Type::kBool: return value.flag;
    case Type::kInteger: return value.integer != 0;
    case Type::kFloat: return value.real != 0;
    case Type::kText: return !text_of(value).empty();
    case Type::kList:
    case Type::kTuple: return !items_of(value).empty();
    case Type::kDict: return !entries_of(value).empty();
    case Type::kView: return !entries_of(view_of(value).dict).empty();
    case Type::kRange: return range_of(value).length > 0;
    case Type::kLoop: return loop_of(value).length() > 0;
    case Type::kIterator:
    case Type::kNamespace:
    case Type::kCallable: return true;
  }
  return true;
}

bool is_hashable(const PyValue& value) {
  if (value.is(Type::kTuple)) return std::all_of(items_of(value).begin(), items_of(value).end(), is_hashable);
  return !value.is(Type::kList) && !value.is(Type::kDict) && !(value.is(Type::kView) && view_of(value).of != ViewOf::kValues);
}

const PyValue* find_entry(const Entries& entries, std::string_view key) {
  for (const auto& [name, value] : entries) {
    if (name.is(Type::kText) && text_of(name) == key) return &value;
  }
  return nullptr;
}

const PyValue* find_entry(const Entries& entries, const PyValue& key) {
  if (key.is(Type::kText)) return find_entry(entries, text_of(key));
  for (const auto& [name, value] : entries) {
    if (equal(name, key)) return &value;
  }
  return nullptr;
}

void set_entry(Entries& entries, PyValue key, PyValue value) {
  if (!is_hashable(key)) fail(fmt::format("'{}' cannot be the key of a dict", type_name(key)));
  if (const PyValue* known = find_entry(entries, key)) {
    const_cast<PyValue&>(*known) = std::move(value);  // NOLINT: found in `entries`, which we may change
  } else {
    entries.emplace_back(std::move(key), std::move(value));
  }
}

namespace {

PyValue checked_text(const std::string& value) {
  if (!is_utf8(value)) fail("a text of the values is not UTF-8");
  return text(value);
}

PyValue from_json_at(const nlohmann::ordered_json& json, int depth) {
  if (depth > kMaxDepth) fail(fmt::format("the values are nested more than {} deep", kMaxDepth));
  using Json = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Json::null: return none();
    case Json::boolean: return boolean(json.get<bool>());
    case Json::number_integer: return integer(json.get<int64_t>());
    case Json::number_unsigned: return integer(json.get<uint64_t>());
    case Json::number_float: return real(json.get<double>());
    case Json::string: return checked_text(json.get_ref<const std::string&>());
    case Json::array: {
      Values items;
      for (const auto& one : json) items.push_back(from_json_at(one, depth + 1));
      return list(std::move(items));
    }
    case Json::object: {
      Entries entries;
      for (const auto& [key, one] : json.items()) entries.emplace_back(checked_text(key), from_json_at(one, depth + 1));
      return dict(std::move(entries));
    }
    default: fail("the values hold something that JSON text cannot say");
  }
}

}  // namespace

PyValue from_json(const nlohmann::ordered_json& json) { return from_json_at(json, 1); }

}  // namespace distsetup::jinja
