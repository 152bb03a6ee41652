// Calling what an expression gives: macros, methods, functions. And arguments matched with the names that Python gives parameters.
#pragma once
#include <initializer_list>

#include "text/template/template_run.h"

namespace distsetup::jinja {

PyValue call(TemplateRun& run, const PyValue& callee, CallArguments arguments);

// Arguments by the place of their parameter. Fails for names that are unknown, too many arguments and missing ones.
class Matched {
 public:
  Matched(std::string_view callee, const CallArguments& arguments, std::initializer_list<std::string_view> names,
          size_t num_required = 0);
  bool has(size_t i) const { return values_[i] != nullptr; }
  const PyValue& at(size_t i) const { return *values_[i]; }
  PyValue value(size_t i, PyValue absent) const { return has(i) ? at(i) : std::move(absent); }
  bool truth_of(size_t i, bool absent) const { return has(i) ? truth(at(i)) : absent; }
  Integer whole(size_t i, Integer absent) const;  // fails for what is no whole number
  const std::string& text_at(size_t i) const;     // fails for what is no text
  // None counts as absent.
  bool has_value(size_t i) const { return has(i) && !at(i).is(Type::kNone); }

 private:
  std::string callee_;
  std::vector<std::string_view> names_;
  std::vector<const PyValue*> values_;
};

}  // namespace distsetup::jinja
