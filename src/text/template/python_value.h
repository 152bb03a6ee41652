// A value while a chat template runs, with the types that Python would give it: templates are written against Python's str(), ==, `in`
// and truth, so these are kept to the letter. Values are shared and never change, but for namespaces and the position of iterators.
// Invariant: `depth` of what a value holds is at most kMaxDepth, so walking (or freeing) a value never exhausts the stack; namespaces
// are the one way to a cycle, and whoever walks values counts the levels.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace distsetup::jinja {

__extension__ typedef __int128 Integer;  // Python's are unbounded; JSON's go to 2^64, and arithmetic beyond this is refused

inline constexpr int kMaxDepth = 200;

// What stops a template: a mistake of the template, of the values, or a limit. Thrown and caught inside this folder only; the
// statement or expression in which it happens adds its place.
struct TemplateError {
  std::string message;
  std::string help;
  int line = 0, column = 0;  // 0: not known yet
};
[[noreturn]] void fail(std::string message, std::string help = "");

enum class Type {
  kUndefined,
  kNone,
  kBool,
  kInteger,
  kFloat,
  kText,
  kList,
  kTuple,
  kDict,
  kView,
  kRange,
  kIterator,
  kNamespace,
  kCallable,
  kLoop
};

struct Held {  // what a PyValue shares
  int depth = 1;
  Held() = default;
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  virtual ~Held() = default;
};

struct PyValue {
  Type type = Type::kUndefined;
  bool flag = false;    // kBool: the value; kText: marked safe (`|safe`), which `+` and methods keep and answer with escaping
  Integer integer = 0;  // kInteger
  double real = 0;      // kFloat
  std::shared_ptr<Held> held = {};

  bool is(Type wanted) const { return type == wanted; }
  bool is_number() const { return type == Type::kBool || type == Type::kInteger || type == Type::kFloat; }
  bool is_whole() const { return type == Type::kBool || type == Type::kInteger; }
  Integer whole() const { return type == Type::kBool ? Integer(flag) : integer; }
  double number() const { return type == Type::kFloat ? real : static_cast<double>(whole()); }
};

using Values = std::vector<PyValue>;
using Entries = std::vector<std::pair<PyValue, PyValue>>;

struct HeldText : Held {  // kText; kUndefined: why it is undefined
  std::string text;
};
struct HeldItems : Held {  // kList, kTuple
  Values items;
};
struct HeldEntries : Held {  // kDict; kNamespace: entries change
  Entries entries;
};
enum class ViewOf { kItems, kKeys, kValues };
struct HeldView : Held {  // kView: dict.items(), .keys(), .values()
  PyValue dict;
  ViewOf of = ViewOf::kItems;
};
struct HeldRange : Held {
  Integer start = 0, stop = 0, step = 1, length = 0;
};
struct HeldIterator : Held {  // what map, select, items … give: it can be walked once
  std::shared_ptr<const Values> items;
  size_t position = 0;
  std::optional<TemplateError> failure;  // what happens after the last item
};

PyValue none();
PyValue boolean(bool value);
PyValue integer(Integer value);
PyValue real(double value);
PyValue text(std::string value, bool is_safe = false);
PyValue undefined(std::string why);
PyValue list(Values items);
PyValue tuple(Values items);
PyValue dict(Entries entries);  // keys differ
PyValue view(PyValue dict, ViewOf of);
PyValue range(Integer start, Integer stop, Integer step);
PyValue iterator(Values items, std::optional<TemplateError> failure = std::nullopt);
// The depth of something that holds these; fails beyond kMaxDepth.
int depth_over(const PyValue& held);
int depth_over(const Values& held);

const std::string& text_of(const PyValue& value);     // kText
const Values& items_of(const PyValue& value);         // kList, kTuple
const Entries& entries_of(const PyValue& value);      // kDict, kNamespace
HeldIterator& iterator_of(const PyValue& value);      // kIterator
const HeldRange& range_of(const PyValue& value);      // kRange
const HeldView& view_of(const PyValue& value);        // kView
std::string why_undefined(const PyValue& undefined);  // "'x' is undefined"

// "str", "dict", "NoneType": as Python's messages name a type.
std::string type_name(const PyValue& value);
bool truth(const PyValue& value);
bool is_hashable(const PyValue& value);
const PyValue* find_entry(const Entries& entries, const PyValue& key);
const PyValue* find_entry(const Entries& entries, std::string_view key);
void set_entry(Entries& entries, PyValue key, PyValue value);

// The values of JSON; text that is not UTF-8 and nesting beyond kMaxDepth fail.
PyValue from_json(const nlohmann::ordered_json& json);

}  // namespace distsetup::jinja
