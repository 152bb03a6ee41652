#include "text/template/call.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/template/container_methods.h"
#include "text/template/execute.h"
#include "text/template/functions.h"
#include "text/template/text_methods.h"

namespace distsetup::jinja {

PyValue call(TemplateRun& run, const PyValue& callee, CallArguments arguments) {
  if (callee.is(Type::kUndefined)) fail(why_undefined(callee));
  if (callee.is(Type::kLoop)) fail("the loop is called: recursive loops are not read", "write a macro that calls itself");
  if (!callee.is(Type::kCallable)) fail(fmt::format("'{}' cannot be called", type_name(callee)));
  const HeldCallable& held = callable_of(callee);
  const Deeper deeper(run);
  if (held.macro != nullptr) return call_macro(run, callee, std::move(arguments));
  if (held.self.is(Type::kUndefined)) return call_function(run, callee, arguments);
  if (held.self.is(Type::kText)) return call_text_method(held.self, held.name, arguments);
  return call_container_method(held.self, held.name, arguments);
}

Matched::Matched(std::string_view callee, const CallArguments& arguments, std::initializer_list<std::string_view> names,
                 size_t num_required)
    : callee_(callee), names_(names), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names_.size()) {
    fail(fmt::format("{} takes at most {} arguments, found {}", callee, names_.size(), arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.keywords) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) fail(fmt::format("{} has no parameter '{}'", callee, name));
    const PyValue*& place = values_[static_cast<size_t>(found - names_.begin())];
    if (place != nullptr) fail(fmt::format("{}: '{}' is given twice", callee, name));
    place = &value;
  }
  for (size_t i = 0; i < num_required; ++i) {
    if (values_[i] == nullptr) fail(fmt::format("{} needs an argument '{}'", callee, names_[i]));
  }
}

Integer Matched::whole(size_t i, Integer absent) const {
  if (!has(i)) return absent;
  if (!at(i).is_whole()) fail(fmt::format("{}: '{}' is a whole number, found {}", callee_, names_[i], type_name(at(i))));
  return at(i).whole();
}

const std::string& Matched::text_at(size_t i) const {
  if (!at(i).is(Type::kText)) fail(fmt::format("{}: '{}' is a text, found {}", callee_, names_[i], type_name(at(i))));
  return text_of(at(i));
}

}  // namespace distsetup::jinja
