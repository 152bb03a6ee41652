#include "text/template/container_methods.h"

#include <fmt/format.h>

#include <cmath>

#include "text/template/call.h"
#include "text/template/compare.h"
#include "text/template/steps.h"
#include "text/template/template_loop.h"

namespace distsetup::jinja {
namespace {

void take_nothing(std::string_view name, const CallArguments& arguments) { (void)Matched(name, arguments, {}); }

PyValue dict_method(const PyValue& self, std::string_view name, const CallArguments& arguments) {
  if (name == "get") {
    const Matched given("get()", arguments, {"key", "default"}, 1);
    if (!arguments.keywords.empty()) fail("get() takes no names");
    if (!is_hashable(given.at(0))) fail(fmt::format("'{}' cannot be the key of a dict", type_name(given.at(0))));
    count_steps(entries_of(self).size() / 8);
    const PyValue* found = find_entry(entries_of(self), given.at(0));
    return found != nullptr ? *found : given.value(1, none());
  }
  take_nothing(fmt::format("{}()", name), arguments);
  if (name == "items") return view(self, ViewOf::kItems);
  if (name == "keys") return view(self, ViewOf::kKeys);
  if (name == "values") return view(self, ViewOf::kValues);
  count_steps(entries_of(self).size());
  return dict(entries_of(self));  // copy
}

PyValue row_method(const PyValue& self, std::string_view name, const CallArguments& arguments) {
  if (name == "copy") {
    take_nothing("copy()", arguments);
    return list(items_of(self));
  }
  const Matched given(fmt::format("{}()", name), arguments, {"value"}, 1);
  Integer count = 0, position = 0;
  for (Walk walk(self); std::optional<PyValue> one = walk.next(); ++position) {
    if (!equal(*one, given.at(0))) continue;
    if (name == "index") return integer(position);
    ++count;
  }
  if (name == "index") fail("index(): the value is not in the list");
  return integer(count);
}

PyValue loop_method(const PyValue& self, std::string_view name, const CallArguments& arguments) {
  if (!arguments.keywords.empty()) fail(fmt::format("loop.{}() takes no names", name));
  HeldLoop& loop = loop_of(self);
  if (name == "changed") return boolean(loop.is_changed(arguments.positional));
  if (arguments.positional.empty()) fail("loop.cycle() needs items");
  return arguments.positional[static_cast<size_t>(loop.index0()) % arguments.positional.size()];
}

}  // namespace

PyValue call_container_method(const PyValue& self, std::string_view name, const CallArguments& arguments) {
  if (self.is(Type::kDict) && name != "fromkeys") return dict_method(self, name, arguments);
  if (self.is(Type::kList) || self.is(Type::kTuple) || self.is(Type::kRange)) return row_method(self, name, arguments);
  if (self.is(Type::kLoop)) return loop_method(self, name, arguments);
  if (self.is(Type::kFloat) && name == "is_integer") return boolean(std::isfinite(self.real) && self.real == std::floor(self.real));
  fail(fmt::format("the method '{}' of {} is not read", name, type_name(self)));
}

}  // namespace distsetup::jinja
