#include "text/template/value_tests.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "text/template/arithmetic.h"
#include "text/template/call.h"
#include "text/template/compare.h"
#include "text/template/python_text.h"
#include "text/template/text_methods.h"
#include "text/template/walk.h"

namespace distsetup::jinja {
namespace {

bool is_divisible(const PyValue& value, const PyValue& by, Integer rest) { return equal(arithmetic("%", value, by), integer(rest)); }

// len() and [] work: also for undefined, as jinja2 has it, and not for what is walked once.
bool is_sequence(const PyValue& value) {
  switch (value.type) {
    case Type::kUndefined:
    case Type::kText:
    case Type::kList:
    case Type::kTuple:
    case Type::kDict:
    case Type::kRange: return true;
    default: return false;
  }
}

bool question(const PyValue& value, std::string_view method) { return truth(call_text_method(text(python_str(value)), method, {})); }

using Alone = bool (*)(const PyValue&);
const std::map<std::string, Alone, std::less<>>& tests_alone() {
  static const std::map<std::string, Alone, std::less<>> all = {
      {"defined", [](const PyValue& v) { return !v.is(Type::kUndefined); }},
      {"undefined", [](const PyValue& v) { return v.is(Type::kUndefined); }},
      {"none", [](const PyValue& v) { return v.is(Type::kNone); }},
      {"boolean", [](const PyValue& v) { return v.is(Type::kBool); }},
      {"true", [](const PyValue& v) { return v.is(Type::kBool) && v.flag; }},
      {"false", [](const PyValue& v) { return v.is(Type::kBool) && !v.flag; }},
      {"integer", [](const PyValue& v) { return v.is(Type::kInteger); }},
      {"float", [](const PyValue& v) { return v.is(Type::kFloat); }},
      {"number", [](const PyValue& v) { return v.is_number(); }},
      {"string", [](const PyValue& v) { return v.is(Type::kText); }},
      {"mapping", [](const PyValue& v) { return v.is(Type::kDict); }},
      {"sequence", is_sequence},
      {"iterable", is_iterable},
      {"callable", [](const PyValue& v) { return v.is(Type::kCallable) || v.is(Type::kUndefined) || v.is(Type::kLoop); }},
      {"escaped", [](const PyValue& v) { return v.is(Type::kText) && v.flag; }},
      {"lower", [](const PyValue& v) { return question(v, "islower"); }},
      {"upper", [](const PyValue& v) { return question(v, "isupper"); }},
      {"odd", [](const PyValue& v) { return is_divisible(v, integer(2), 1); }},
      {"even", [](const PyValue& v) { return is_divisible(v, integer(2), 0); }},
  };
  return all;
}

using Beside = bool (*)(const PyValue&, const PyValue&);
const std::map<std::string, Beside, std::less<>>& tests_beside() {
  static constexpr Beside kEqual = [](const PyValue& a, const PyValue& b) { return equal(a, b); };
  static constexpr Beside kDiffers = [](const PyValue& a, const PyValue& b) { return !equal(a, b); };
  static constexpr Beside kLess = [](const PyValue& a, const PyValue& b) { return is_ordered("<", a, b); };
  static constexpr Beside kAtMost = [](const PyValue& a, const PyValue& b) { return is_ordered("<=", a, b); };
  static constexpr Beside kGreater = [](const PyValue& a, const PyValue& b) { return is_ordered(">", a, b); };
  static constexpr Beside kAtLeast = [](const PyValue& a, const PyValue& b) { return is_ordered(">=", a, b); };
  static const std::map<std::string, Beside, std::less<>> all = {
      {"==", kEqual},
      {"eq", kEqual},
      {"equalto", kEqual},
      {"!=", kDiffers},
      {"ne", kDiffers},
      {"<", kLess},
      {"lt", kLess},
      {"lessthan", kLess},
      {"<=", kAtMost},
      {"le", kAtMost},
      {">", kGreater},
      {"gt", kGreater},
      {"greaterthan", kGreater},
      {">=", kAtLeast},
      {"ge", kAtLeast},
      {"sameas", is_same},
      {"in", [](const PyValue& a, const PyValue& b) { return contains(b, a); }},
      {"divisibleby", [](const PyValue& a, const PyValue& b) { return is_divisible(a, b, 0); }},
  };
  return all;
}

}  // namespace

const std::vector<std::string>& test_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, test] : tests_alone()) all.push_back(name);
    for (const auto& [name, test] : tests_beside()) all.push_back(name);
    return all;
  }();
  return names;
}

bool apply_test(std::string_view name, const PyValue& value, const CallArguments& arguments) {
  if (const auto alone = tests_alone().find(name); alone != tests_alone().end()) {
    (void)Matched(name, arguments, {});
    return alone->second(value);
  }
  const auto beside = tests_beside().find(name);
  if (beside == tests_beside().end())
    fail(fmt::format("unknown test '{}'", name), fmt::format("known: {}", fmt::join(test_names(), ", ")));
  const Matched given(name, arguments, {"other"}, 1);
  return beside->second(value, given.at(0));
}

}  // namespace distsetup::jinja
