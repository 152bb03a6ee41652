#include "text/template/evaluate.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/template/arithmetic.h"
#include "text/template/attributes.h"
#include "text/template/call.h"
#include "text/template/compare.h"
#include "text/template/filters.h"
#include "text/template/functions.h"
#include "text/template/python_text.h"
#include "text/template/steps.h"
#include "text/template/value_tests.h"
#include "text/template/walk.h"

namespace distsetup::jinja {
namespace {

Values evaluate_parts(TemplateRun& run, const Expression& expression, const ScopePointer& scope) {
  Values values;
  values.reserve(expression.parts.size());
  for (const ExpressionPointer& part : expression.parts) values.push_back(evaluate(run, *part, scope));
  return values;
}

PyValue evaluate_dict(TemplateRun& run, const Expression& expression, const ScopePointer& scope) {
  Entries entries;
  for (size_t i = 0; i + 1 < expression.parts.size(); i += 2) {
    PyValue key = evaluate(run, *expression.parts[i], scope);
    count_steps(entries.size() / 8);
    set_entry(entries, std::move(key), evaluate(run, *expression.parts[i + 1], scope));
  }
  return dict(std::move(entries));
}

bool holds(const std::string& sign, const PyValue& left, const PyValue& right) {
  if (sign == "==") return equal(left, right);
  if (sign == "!=") return !equal(left, right);
  if (sign == "in") return contains(right, left);
  if (sign == "not in") return !contains(right, left);
  return is_ordered(sign, left, right);
}

// As in Python, a < b < c asks both, and the second only when the first holds.
PyValue evaluate_comparison(TemplateRun& run, const Expression& expression, const ScopePointer& scope) {
  PyValue left = evaluate(run, *expression.parts[0], scope);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    PyValue right = evaluate(run, *expression.parts[i + 1], scope);
    if (!holds(expression.operators[i], left, right)) return boolean(false);
    left = std::move(right);
  }
  return boolean(true);
}

PyValue evaluate_item(TemplateRun& run, const Expression& expression, const ScopePointer& scope) {
  const PyValue object = evaluate(run, *expression.parts[0], scope);
  const Expression& index = *expression.parts[1];
  if (index.kind != ExpressionKind::kSlice) return item_of(object, evaluate(run, index, scope));
  Slice slice;
  PyValue* const ends[] = {&slice.start, &slice.stop, &slice.step};
  for (size_t i = 0; i < 3; ++i) *ends[i] = index.parts[i] ? evaluate(run, *index.parts[i], scope) : none();
  return slice_of(object, slice);
}

PyValue evaluate_concat(TemplateRun& run, const Expression& expression, const ScopePointer& scope) {
  std::string joined;
  for (const ExpressionPointer& part : expression.parts) joined += python_str(evaluate(run, *part, scope));
  count_bytes(joined.size());
  return text(std::move(joined));
}

PyValue evaluate_conditional(TemplateRun& run, const Expression& expression, const ScopePointer& scope) {
  if (truth(evaluate(run, *expression.parts[0], scope))) return evaluate(run, *expression.parts[1], scope);
  if (expression.parts[2]) return evaluate(run, *expression.parts[2], scope);
  return undefined(fmt::format("the condition of line {} is false and it has no 'else'", expression.line));
}

PyValue evaluate_form(TemplateRun& run, const Expression& expression, const ScopePointer& scope) {
  const auto part = [&](size_t i) { return evaluate(run, *expression.parts[i], scope); };
  switch (expression.kind) {
    case ExpressionKind::kConstant: return expression.value;
    case ExpressionKind::kName: return value_of_name(run, scope, expression.name);
    case ExpressionKind::kList: return list(evaluate_parts(run, expression, scope));
    case ExpressionKind::kTuple: return tuple(evaluate_parts(run, expression, scope));
    case ExpressionKind::kDict: return evaluate_dict(run, expression, scope);
    case ExpressionKind::kAttribute: return attribute_of(part(0), expression.name);
    case ExpressionKind::kItem: return evaluate_item(run, expression, scope);
    case ExpressionKind::kSlice: break;  // evaluate_item
    case ExpressionKind::kCall: {
      const PyValue callee = part(0);
      return call(run, callee, evaluate_arguments(run, expression.call, scope));
    }
    case ExpressionKind::kFilter: {
      const PyValue input = part(0);
      return apply_filter(run, expression.name, input, evaluate_arguments(run, expression.call, scope));
    }
    case ExpressionKind::kTest: {
      const PyValue value = part(0);
      return boolean(apply_test(expression.name, value, evaluate_arguments(run, expression.call, scope)));
    }
    case ExpressionKind::kNot: return boolean(!truth(part(0)));
    case ExpressionKind::kNegative: return negative(part(0));
    case ExpressionKind::kPositive: return positive(part(0));
    case ExpressionKind::kArithmetic: {
      const PyValue left = part(0);
      return arithmetic(expression.name, left, part(1));
    }
    case ExpressionKind::kConcat: return evaluate_concat(run, expression, scope);
    case ExpressionKind::kCompare: return evaluate_comparison(run, expression, scope);
    case ExpressionKind::kAnd: {
      PyValue left = part(0);
      return truth(left) ? part(1) : left;
    }
    case ExpressionKind::kOr: {
      PyValue left = part(0);
      return truth(left) ? left : part(1);
    }
    case ExpressionKind::kConditional: return evaluate_conditional(run, expression, scope);
  }
  fail("a slice stands alone");
}

}  // namespace

PyValue value_of_name(const TemplateRun& run, const ScopePointer& scope, std::string_view name) {
  for (Scope* one = scope.get(); one != nullptr; one = one->parent.get()) {
    count_steps(1 + one->names.size() / 16);
    if (const PyValue* known = find_name(*one, name)) return *known;
  }
  if (const PyValue* given = find_entry(entries_of(run.values), name)) return *given;
  if (is_function(name)) return function(std::string(name));
  return undefined(fmt::format("'{}' is undefined", name));
}

CallArguments evaluate_arguments(TemplateRun& run, const CallSyntax& syntax, const ScopePointer& scope) {
  CallArguments arguments;
  for (const ExpressionPointer& one : syntax.positional) arguments.positional.push_back(evaluate(run, *one, scope));
  for (const auto& [name, one] : syntax.keywords) arguments.keywords.emplace_back(name, evaluate(run, *one, scope));
  if (syntax.star) {
    for (PyValue& one : all_items(evaluate(run, *syntax.star, scope))) arguments.positional.push_back(std::move(one));
  }
  if (!syntax.double_star) return arguments;
  const PyValue more = evaluate(run, *syntax.double_star, scope);
  if (!more.is(Type::kDict)) fail(fmt::format("'**' needs a dict, found {}", type_name(more)));
  for (const auto& [key, value] : entries_of(more)) {
    if (!key.is(Type::kText)) fail(fmt::format("'**' needs names as keys, found {}", type_name(key)));
    const std::string& name = text_of(key);
    if (std::any_of(arguments.keywords.begin(), arguments.keywords.end(), [&](const auto& one) { return one.first == name; })) {
      fail(fmt::format("'{}' is given twice", name));
    }
    arguments.keywords.emplace_back(name, value);
  }
  return arguments;
}

PyValue evaluate(TemplateRun& run, const Expression& expression, const ScopePointer& scope) {
  try {
    const Deeper deeper(run);
    count_steps(1);
    return evaluate_form(run, expression, scope);
  } catch (TemplateError& failure) {
    if (failure.line == 0) failure.line = expression.line, failure.column = expression.column;
    throw;
  }
}

PyValue apply_filters(TemplateRun& run, const Expression& filters, PyValue input, const ScopePointer& scope) {
  if (filters.parts[0]) input = apply_filters(run, *filters.parts[0], std::move(input), scope);
  return apply_filter(run, filters.name, input, evaluate_arguments(run, filters.call, scope));
}

}  // namespace distsetup::jinja
