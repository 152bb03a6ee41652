#include "text/template/attributes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/names.h"
#include "base/text.h"
#include "text/template/characters.h"
#include "text/template/steps.h"
#include "text/template/template_loop.h"
#include "text/template/template_run.h"

namespace distsetup::jinja {
namespace {

using Names = std::vector<std::string_view>;

const Names kTextMethods = {"capitalize", "casefold",     "center",       "count",   "encode",     "endswith",    "expandtabs",
                            "find",       "format",       "format_map",   "index",   "isalnum",    "isalpha",     "isascii",
                            "isdecimal",  "isdigit",      "isidentifier", "islower", "isnumeric",  "isprintable", "isspace",
                            "istitle",    "isupper",      "join",         "ljust",   "lower",      "lstrip",      "maketrans",
                            "partition",  "removeprefix", "removesuffix", "replace", "rfind",      "rindex",      "rjust",
                            "rpartition", "rsplit",       "rstrip",       "split",   "splitlines", "startswith",  "strip",
                            "swapcase",   "title",        "translate",    "upper",   "zfill"};
const Names kMarkupMethods = {"escape", "striptags", "unescape"};
const Names kListMethods = {"copy", "count", "index"};
const Names kListChanges = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
const Names kDictMethods = {"copy", "fromkeys", "get", "items", "keys", "values"};
const Names kDictChanges = {"clear", "pop", "popitem", "setdefault", "update"};
const Names kTupleMethods = {"count", "index"};
const Names kIntegerMethods = {"as_integer_ratio", "bit_count", "bit_length", "conjugate", "from_bytes", "to_bytes"};
const Names kFloatMethods = {"as_integer_ratio", "conjugate", "fromhex", "hex", "is_integer"};
const Names kLoopMethods = {"changed", "cycle"};
const Names kLoopNames = {"depth",  "depth0",   "first",    "index",    "index0",   "last",
                          "length", "nextitem", "previtem", "revindex", "revindex0"};

bool has(const Names& names, std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); }

const Names& methods_of(Type type) {
  static const Names kNothing;
  switch (type) {
    case Type::kText: return kTextMethods;
    case Type::kList: return kListMethods;
    case Type::kDict: return kDictMethods;
    case Type::kTuple:
    case Type::kRange: return kTupleMethods;
    case Type::kBool:
    case Type::kInteger: return kIntegerMethods;
    case Type::kFloat: return kFloatMethods;
    case Type::kLoop: return kLoopMethods;
    default: return kNothing;
  }
}

PyValue refused(const PyValue& object, std::string_view name) {
  return undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(object)));
}

// What Python's getattr finds on the object itself.
std::optional<PyValue> own_attribute(const PyValue& object, std::string_view name) {
  if (object.is(Type::kUndefined)) fail(why_undefined(object));
  if (name.size() > 4 && name.substr(0, 2) == "__" && name.substr(name.size() - 2) == "__") return refused(object, name);
  if (object.is(Type::kNamespace)) {
    const PyValue* found = find_entry(entries_of(object), name);
    if (found == nullptr) return std::nullopt;
    return name.substr(0, 1) == "_" ? refused(object, name) : *found;
  }
  if (object.is(Type::kLoop) && has(kLoopNames, name)) return loop_of(object).attribute(name);
  const bool is_change = (object.is(Type::kList) && has(kListChanges, name)) || (object.is(Type::kDict) && has(kDictChanges, name));
  if (is_change) return refused(object, name);
  if (has(methods_of(object.type), name) || (object.is(Type::kText) && object.flag && has(kMarkupMethods, name)))
    return method(object, name);
  if (object.is_number() && (name == "real" || name == "imag")) {
    if (name == "imag") return object.is(Type::kFloat) ? real(0) : integer(0);
    return object.is(Type::kFloat) ? object : integer(object.whole());
  }
  if (object.is_whole() && (name == "numerator" || name == "denominator"))
    return integer(name == "numerator" ? object.whole() : Integer(1));
  if (object.is(Type::kRange) && (name == "start" || name == "stop" || name == "step")) {
    const HeldRange& range = range_of(object);
    return integer(name == "start" ? range.start : name == "stop" ? range.stop : range.step);
  }
  return std::nullopt;
}

std::string object_name(const PyValue& object) {
  if (object.is(Type::kNone)) return "'None'";
  return fmt::format("'{} object'", type_name(object));
}

// The position that Python means by an index, of `size` items; none: out of range.
std::optional<size_t> place(Integer index, size_t size) {
  if (index < 0) index += static_cast<Integer>(size);
  if (index < 0 || index >= static_cast<Integer>(size)) return std::nullopt;
  return static_cast<size_t>(index);
}

std::optional<PyValue> indexed(const PyValue& object, Integer index) {
  switch (object.type) {
    case Type::kText: {
      const std::string& whole = text_of(object);
      const auto position = place(index, num_characters(whole));
      count_bytes(whole.size());
      if (!position) return std::nullopt;
      return text(utf8(code_points(whole).substr(*position, 1)), object.flag);
    }
    case Type::kList:
    case Type::kTuple: {
      const auto position = place(index, items_of(object).size());
      return position ? std::optional(items_of(object)[*position]) : std::nullopt;
    }
    case Type::kRange: {
      const auto position = place(index, static_cast<size_t>(range_of(object).length));
      if (!position) return std::nullopt;
      return integer(range_of(object).start + static_cast<Integer>(*position) * range_of(object).step);
    }
    default: return std::nullopt;
  }
}

// Start, stop and step of a slice over `size` items, as slice.indices().
struct Bounds {
  Integer start = 0, stop = 0, step = 1;
};
Bounds bounds(const Slice& slice, size_t num_items) {
  const auto size = static_cast<Integer>(num_items);
  Bounds out;
  constexpr Integer kFar = Integer(1) << 62;  // no text or list is longer
  if (!slice.step.is(Type::kNone)) out.step = std::clamp(slice.step.whole(), -kFar, kFar);
  if (out.step == 0) fail("the step of a slice is 0");
  const bool is_back = out.step < 0;
  const Integer low = is_back ? -1 : 0, high = is_back ? size - 1 : size;
  const auto end = [&](const PyValue& given, Integer absent) {
    if (given.is(Type::kNone)) return absent;
    Integer value = given.whole();
    if (value < 0) value += size;
    return std::clamp(value, low, std::max(low, high));
  };
  out.start = end(slice.start, is_back ? high : low);
  out.stop = end(slice.stop, is_back ? low : high);
  return out;
}

}  // namespace

PyValue attribute_of(const PyValue& object, std::string_view name) {
  if (std::optional<PyValue> own = own_attribute(object, name)) return std::move(*own);
  if (object.is(Type::kDict)) {
    count_steps(entries_of(object).size() / 8);
    if (const PyValue* found = find_entry(entries_of(object), name)) return *found;
  }
  return undefined(fmt::format("{} has no attribute '{}'", object_name(object), name));
}

PyValue item_of(const PyValue& object, const PyValue& key) {
  if (object.is(Type::kUndefined)) fail(why_undefined(object));
  if (object.is(Type::kDict) && is_hashable(key)) {
    count_steps(entries_of(object).size() / 8);
    if (const PyValue* found = find_entry(entries_of(object), key)) return *found;
  }
  if (key.is_whole()) {
    if (std::optional<PyValue> found = indexed(object, key.whole())) return std::move(*found);
  }
  if (key.is(Type::kText)) {
    if (std::optional<PyValue> own = own_attribute(object, text_of(key))) return std::move(*own);
    return undefined(fmt::format("{} has no attribute '{}'", object_name(object), text_of(key)));
  }
  if (key.is_whole()) return undefined(fmt::format("{} has no element {}", object_name(object), key.whole()));
  return undefined(fmt::format("{} has no such element", object_name(object)));
}

PyValue slice_of(const PyValue& object, const Slice& slice) {
  if (object.is(Type::kUndefined)) fail(why_undefined(object));
  const bool has_slices = object.is(Type::kText) || object.is(Type::kList) || object.is(Type::kTuple) || object.is(Type::kRange);
  if (!has_slices) fail(fmt::format("'{}' has no slices", type_name(object)));
  for (const PyValue* end : {&slice.start, &slice.stop, &slice.step}) {
    if (!end->is(Type::kNone) && !end->is_whole())
      fail(fmt::format("a slice goes from one whole number to another, found {}", type_name(*end)));
  }
  const auto size = *length_of(object);
  const Bounds ends = bounds(slice, size);
  if (object.is(Type::kRange)) {
    const HeldRange& held = range_of(object);
    Integer step = 0;
    if (__builtin_mul_overflow(held.step, ends.step, &step)) fail("the step of a range has more than 38 digits");
    return range(held.start + ends.start * held.step, held.start + ends.stop * held.step, step);
  }
  const auto goes_on = [&](Integer i) { return ends.step > 0 ? i < ends.stop : i > ends.stop; };
  if (object.is(Type::kText)) {
    count_bytes(text_of(object).size());
    const std::u32string points = code_points(text_of(object));
    std::u32string out;
    for (Integer i = ends.start; goes_on(i); i += ends.step) out += points[static_cast<size_t>(i)];
    return text(utf8(out), object.flag);
  }
  Values out;
  for (Integer i = ends.start; goes_on(i); i += ends.step) out.push_back(items_of(object)[static_cast<size_t>(i)]);
  count_bytes(out.size() * sizeof(PyValue));
  return object.is(Type::kList) ? list(std::move(out)) : tuple(std::move(out));
}

PyValue path_of(PyValue object, const PyValue& path, const PyValue* absent) {
  if (path.is(Type::kNone)) return object;
  const auto step = [&](const PyValue& key) {
    object = item_of(object, key);
    if (absent != nullptr && object.is(Type::kUndefined)) object = *absent;
  };
  if (path.is(Type::kText)) {
    for (const std::string& part : split(text_of(path), '.')) {
      const bool is_index = !part.empty() && part.size() < 10 && std::all_of(part.begin(), part.end(), is_digit);
      step(is_index ? integer(std::stoi(part)) : text(part));
    }
  } else {
    step(path);
  }
  return object;
}

}  // namespace distsetup::jinja
