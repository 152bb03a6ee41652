#include "text/template/functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/template/call.h"
#include "text/template/python_text.h"
#include "text/template/steps.h"
#include "text/template/walk.h"

namespace distsetup::jinja {
namespace {

constexpr Integer kMaxRange = 100'000;  // jinja2's sandbox has the same
constexpr size_t kMaxTimeFormat = 4096;
constexpr std::array<std::string_view, 5> kFunctions = {"dict", "namespace", "raise_exception", "range", "strftime_now"};

// dict(mapping or pairs, name=value…)
Entries entries_from(const CallArguments& arguments, std::string_view callee) {
  if (arguments.positional.size() > 1) fail(fmt::format("{} takes at most one argument without a name", callee));
  Entries entries;
  if (!arguments.positional.empty()) {
    const PyValue& from = arguments.positional[0];
    if (from.is(Type::kDict)) {
      entries = entries_of(from);
      count_steps(entries.size());
    } else {
      for (Walk walk(from); std::optional<PyValue> pair = walk.next();) {
        Values both = all_items(*pair);
        if (both.size() != 2) fail(fmt::format("{} needs pairs, found {} items", callee, both.size()));
        count_steps(entries.size() / 8);
        set_entry(entries, std::move(both[0]), std::move(both[1]));
      }
    }
  }
  for (const auto& [name, value] : arguments.keywords) set_entry(entries, text(name), value);
  return entries;
}

PyValue make_namespace(TemplateRun& run, const CallArguments& arguments) {
  Entries entries = entries_from(arguments, "namespace()");
  for (const auto& [key, value] : entries) {
    const bool is_hidden = key.is(Type::kText) && text_of(key).substr(0, 1) == "_";
    if (is_hidden) fail(fmt::format("a namespace takes no attribute that begins with an underscore, found '{}'", text_of(key)));
  }
  return run.make_namespace(std::move(entries));
}

PyValue make_range(const CallArguments& arguments) {
  const Matched given("range()", arguments, {"start", "stop", "step"}, 1);
  if (!arguments.keywords.empty()) fail("range() takes no names");
  const bool has_start = given.has(1);
  const Integer start = has_start ? given.whole(0, 0) : 0, stop = has_start ? given.whole(1, 0) : given.whole(0, 0);
  const Integer step = given.whole(2, 1);
  if (step == 0) fail("the step of range() is 0");
  constexpr Integer kFar = Integer(1) << 62;  // so that nothing overflows, here and in slices
  if (start > kFar || start < -kFar || stop > kFar || stop < -kFar || step > kFar || step < -kFar)
    fail("range() with more than 18 digits");
  PyValue made = range(start, stop, step);
  if (range_of(made).length > kMaxRange) fail(fmt::format("range() of more than {} items", kMaxRange));
  return made;
}

// What datetime.now().strftime() makes of a format: %f and the time zone are Python's own.
PyValue strftime_now(const std::tm& now, const CallArguments& arguments) {
  const Matched given("strftime_now()", arguments, {"format"}, 1);
  const std::string& format = given.text_at(0);
  std::string adapted;
  for (size_t i = 0; i < format.size(); ++i) {
    const char next = format[i] == '%' && i + 1 < format.size() ? format[i + 1] : '\0';
    if (next == 'f') adapted += "000000";
    if (next == 'f' || next == 'z' || next == 'Z') {
      ++i;
    } else {
      adapted += format[i];
      if (next != '\0') adapted += format[++i];
    }
  }
  if (adapted.empty()) return text("");
  if (adapted.size() > kMaxTimeFormat) fail(fmt::format("strftime_now() takes at most {} bytes", kMaxTimeFormat));
  std::string out(adapted.size() * 32 + 256, '\0');
  out.resize(std::strftime(out.data(), out.size(), adapted.c_str(), &now));
  return text(std::move(out));
}

}  // namespace

bool is_function(std::string_view name) { return std::find(kFunctions.begin(), kFunctions.end(), name) != kFunctions.end(); }

PyValue call_function(TemplateRun& run, const PyValue& callee, const CallArguments& arguments) {
  const std::string& name = callable_of(callee).name;
  if (name == "raise_exception") {
    const Matched given("raise_exception()", arguments, {"message"}, 1);
    fail("the template refuses the conversation: " + python_str(given.at(0)));
  }
  if (name == "namespace") return make_namespace(run, arguments);
  if (name == "dict") return dict(entries_from(arguments, "dict()"));
  if (name == "range") return make_range(arguments);
  return strftime_now(run.now, arguments);
}

}  // namespace distsetup::jinja
