#include "text/template/template_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/template/steps.h"

namespace distsetup::jinja {
namespace {

constexpr int kMaxRunDepth = 1500;    // about 2 MB of stack with a sanitizer
constexpr size_t kMaxKept = 100'000;  // namespaces and macros, which live as long as the run

}  // namespace

PyValue* find_name(Scope& scope, std::string_view name) {
  for (auto& [known, value] : scope.names) {
    if (known == name) return &value;
  }
  return nullptr;
}

void set_name(Scope& scope, const std::string& name, PyValue value) {
  if (PyValue* known = find_name(scope, name)) {
    *known = std::move(value);
  } else {
    scope.names.emplace_back(name, std::move(value));
  }
}

ScopePointer inner_scope(ScopePointer outer) {
  auto scope = std::make_shared<Scope>();
  scope->parent = std::move(outer);
  return scope;
}

const HeldCallable& callable_of(const PyValue& value) { return static_cast<const HeldCallable&>(*value.held); }

PyValue function(std::string name) {
  auto held = std::make_shared<HeldCallable>();
  held->name = std::move(name);
  return {.type = Type::kCallable, .held = std::move(held)};
}

PyValue method(PyValue self, std::string_view name) {
  auto held = std::make_shared<HeldCallable>();
  held->name = name;
  held->depth = depth_over(self);
  held->self = std::move(self);
  return {.type = Type::kCallable, .held = std::move(held)};
}

TemplateRun::TemplateRun(const RenderLimits& limits, const std::tm& now, PyValue values)
    : limits(limits), now(now), values(std::move(values)) {}

// Only namespaces and scopes can be part of a cycle or of a chain without end. Both are emptied first and freed last, the newest
// first, so that nothing is freed from inside of another.
TemplateRun::~TemplateRun() {
  Values freed;
  for (const PyValue& one : namespaces_) {
    for (auto& [key, value] : static_cast<HeldEntries&>(*one.held).entries) freed.push_back(std::move(value));
    static_cast<HeldEntries&>(*one.held).entries.clear();
  }
  for (const ScopePointer& scope : closures_) {
    for (auto& [name, value] : scope->names) freed.push_back(std::move(value));
    scope->names.clear();
  }
  freed.clear();
  while (!closures_.empty()) closures_.pop_back();
}

void TemplateRun::write(std::string_view text) {
  count_bytes(text.size());
  if (output.size() + text.size() > limits.output_bytes) {
    fail(fmt::format("the text is longer than {} bytes", limits.output_bytes), "the limit is RenderLimits::output_bytes");
  }
  output += text;
}

PyValue TemplateRun::make_namespace(Entries entries) {
  PyValue made = dict(std::move(entries));
  made.held->depth = 1;  // what walks values counts its levels itself
  made.type = Type::kNamespace;
  if (namespaces_.size() == kMaxKept) fail(fmt::format("more than {} namespaces", kMaxKept));
  namespaces_.push_back(made);
  return made;
}

PyValue TemplateRun::make_macro(const Statement& macro, const std::string& name, ScopePointer scope) {
  auto held = std::make_shared<HeldCallable>();
  held->name = name;
  held->macro = &macro;
  held->scope = scope;
  if (closures_.size() == kMaxKept) fail(fmt::format("more than {} macros", kMaxKept));
  if (closures_.empty() || closures_.back() != scope) closures_.push_back(std::move(scope));
  return {.type = Type::kCallable, .held = std::move(held)};
}

Deeper::Deeper(TemplateRun& run) : run_(run) {
  if (++run.depth > kMaxRunDepth) {
    --run.depth;
    fail("blocks, expressions and macros are nested too deep", "look for a macro that calls itself without end");
  }
}

}  // namespace distsetup::jinja
