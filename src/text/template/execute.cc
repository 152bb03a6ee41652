#include "text/template/execute.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/template/call.h"
#include "text/template/evaluate.h"
#include "text/template/parse_expression.h"
#include "text/template/python_text.h"
#include "text/template/steps.h"
#include "text/template/template_loop.h"

namespace distsetup::jinja {
namespace {

enum class LoopFlow { kOn, kBreak, kContinue };

LoopFlow execute(TemplateRun& run, const Body& body, const ScopePointer& scope);

void store(TemplateRun& run, const Target& target, PyValue value, const ScopePointer& scope) {
  if (target.is_tuple) {
    Values items = all_items(value);
    if (items.size() != target.parts.size()) {
      fail_at(target.line, target.column, fmt::format("{} names for {} values", target.parts.size(), items.size()));
    }
    for (size_t i = 0; i < items.size(); ++i) store(run, target.parts[i], std::move(items[i]), scope);
  } else if (target.attribute.empty()) {
    set_name(*scope, target.name, std::move(value));
  } else {
    PyValue object = value_of_name(run, scope, target.name);
    if (!object.is(Type::kNamespace)) {
      fail_at(target.line, target.column,
              fmt::format("'{}' is a {}: only a namespace has attributes to set", target.name, type_name(object)));
    }
    if (target.attribute[0] == '_')
      fail_at(target.line, target.column, "a namespace takes no attribute that begins with an underscore");
    set_entry(static_cast<HeldEntries&>(*object.held).entries, text(target.attribute), std::move(value));
  }
}

std::string captured(TemplateRun& run, const Body& body, const ScopePointer& scope, LoopFlow& flow) {
  Capture capture(run);
  flow = execute(run, body, scope);
  return capture.take();
}

LoopFlow execute_if(TemplateRun& run, const Statement& statement, const ScopePointer& scope) {
  for (const Branch& branch : statement.branches) {
    if (truth(evaluate(run, *branch.condition, scope))) return execute(run, branch.body, scope);
  }
  return execute(run, statement.otherwise, scope);
}

LoopFlow execute_for(TemplateRun& run, const Statement& statement, const ScopePointer& scope) {
  const PyValue items = evaluate(run, *statement.expression, scope);
  std::function<bool(const PyValue&)> accepts;
  if (statement.condition) {
    accepts = [&](const PyValue& item) {
      const ScopePointer inner = inner_scope(scope);
      store(run, statement.target, item, inner);
      return truth(evaluate(run, *statement.condition, inner));
    };
  }
  auto held = std::make_shared<HeldLoop>(items, std::move(accepts));
  const PyValue loop = {.type = Type::kLoop, .held = held};
  bool was_run = false;
  while (held->advance()) {
    was_run = true;
    const ScopePointer inner = inner_scope(scope);
    set_name(*inner, "loop", loop);
    store(run, statement.target, held->current(), inner);
    if (execute(run, statement.body, inner) == LoopFlow::kBreak) break;
  }
  held->finish();
  return was_run ? LoopFlow::kOn : execute(run, statement.otherwise, inner_scope(scope));
}

LoopFlow execute_set_block(TemplateRun& run, const Statement& statement, const ScopePointer& scope) {
  const ScopePointer inner = inner_scope(scope);
  LoopFlow flow = LoopFlow::kOn;
  PyValue value = text(captured(run, statement.body, inner, flow));
  if (flow != LoopFlow::kOn) return flow;
  if (statement.expression) value = apply_filters(run, *statement.expression, std::move(value), inner);
  store(run, statement.target, std::move(value), scope);
  return LoopFlow::kOn;
}

LoopFlow execute_filter(TemplateRun& run, const Statement& statement, const ScopePointer& scope) {
  const ScopePointer inner = inner_scope(scope);
  LoopFlow flow = LoopFlow::kOn;
  PyValue value = text(captured(run, statement.body, inner, flow));
  if (flow == LoopFlow::kOn) run.write(python_str(apply_filters(run, *statement.expression, std::move(value), inner)));
  return flow;
}

LoopFlow execute_with(TemplateRun& run, const Statement& statement, const ScopePointer& scope) {
  const ScopePointer inner = inner_scope(scope);
  Values values;
  for (const ExpressionPointer& one : statement.expressions) values.push_back(evaluate(run, *one, scope));
  for (size_t i = 0; i < values.size(); ++i) store(run, statement.targets[i], std::move(values[i]), inner);
  return execute(run, statement.body, inner);
}

void execute_call(TemplateRun& run, const Statement& statement, const ScopePointer& scope) {
  const PyValue callee = evaluate(run, *statement.expression->parts[0], scope);
  CallArguments arguments = evaluate_arguments(run, statement.expression->call, scope);
  arguments.keywords.emplace_back("caller", run.make_macro(statement, "caller", scope));
  run.write(python_str(call(run, callee, std::move(arguments))));
}

// The body is a call in jinja2: names that it sets are its own. Its place is known where nothing keeps the output aside.
void execute_generation(TemplateRun& run, const Statement& statement, const ScopePointer& scope) {
  const bool was_generating = std::exchange(run.is_generating, true);
  if (was_generating) return void(execute(run, statement.body, inner_scope(scope)));  // a part of what is marked anyway
  if (run.captures > 0 && !run.lost_span) run.lost_span = {statement.line, statement.column};
  const size_t begin = run.output.size();
  execute(run, statement.body, inner_scope(scope));
  if (run.captures == 0) run.spans.push_back({begin, run.output.size()});
  run.is_generating = was_generating;
}

LoopFlow execute_one(TemplateRun& run, const Statement& statement, const ScopePointer& scope) {
  switch (statement.kind) {
    case StatementKind::kText: run.write(statement.text); return LoopFlow::kOn;
    case StatementKind::kPrint:
      for (const ExpressionPointer& one : statement.expressions) run.write(python_str(evaluate(run, *one, scope)));
      return LoopFlow::kOn;
    case StatementKind::kIf: return execute_if(run, statement, scope);
    case StatementKind::kFor: return execute_for(run, statement, scope);
    case StatementKind::kSet: store(run, statement.target, evaluate(run, *statement.expression, scope), scope); return LoopFlow::kOn;
    case StatementKind::kSetBlock: return execute_set_block(run, statement, scope);
    case StatementKind::kMacro:
      set_name(*scope, statement.text, run.make_macro(statement, statement.text, scope));
      return LoopFlow::kOn;
    case StatementKind::kCall: execute_call(run, statement, scope); return LoopFlow::kOn;
    case StatementKind::kFilter: return execute_filter(run, statement, scope);
    case StatementKind::kWith: return execute_with(run, statement, scope);
    case StatementKind::kGeneration: execute_generation(run, statement, scope); return LoopFlow::kOn;
    case StatementKind::kBreak: return LoopFlow::kBreak;
    case StatementKind::kContinue: return LoopFlow::kContinue;
  }
  return LoopFlow::kOn;
}

LoopFlow execute(TemplateRun& run, const Body& body, const ScopePointer& scope) {
  const Deeper deeper(run);
  for (const Statement& statement : body) {
    count_steps(1);
    try {
      const LoopFlow flow = execute_one(run, statement, scope);
      if (flow != LoopFlow::kOn) return flow;
    } catch (TemplateError& failure) {
      if (failure.line == 0) failure.line = statement.line, failure.column = statement.column;
      throw;
    }
  }
  return LoopFlow::kOn;
}

// Gives a macro's parameters their values: by position, by name, then their defaults.
void bind_parameters(TemplateRun& run, const HeldCallable& macro, CallArguments& arguments, const ScopePointer& scope) {
  const std::vector<MacroParameter>& parameters = macro.macro->parameters;
  if (macro.macro->uses_varargs) {
    const size_t num_bound = std::min(parameters.size(), arguments.positional.size());
    set_name(*scope, "varargs",
             tuple(Values(arguments.positional.begin() + static_cast<std::ptrdiff_t>(num_bound), arguments.positional.end())));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const MacroParameter& one = parameters[i];
    const auto named =
        std::find_if(arguments.keywords.begin(), arguments.keywords.end(), [&](const auto& k) { return k.first == one.name; });
    if (i < arguments.positional.size()) {
      set_name(*scope, one.name, arguments.positional[i]);
    } else if (named != arguments.keywords.end()) {
      set_name(*scope, one.name, named->second);
      arguments.keywords.erase(named);
    } else if (one.absent) {
      set_name(*scope, one.name, evaluate(run, *one.absent, scope));
    } else {
      set_name(*scope, one.name, undefined(fmt::format("parameter '{}' was not provided", one.name)));
    }
  }
}

}  // namespace

PyValue call_macro(TemplateRun& run, const PyValue& macro, CallArguments arguments) {
  const HeldCallable& held = callable_of(macro);
  const ScopePointer scope = inner_scope(held.scope);
  const Statement& written = *held.macro;
  const size_t num_parameters = written.parameters.size();
  if (arguments.positional.size() > num_parameters && !written.uses_varargs) {
    fail(fmt::format("macro '{}' takes at most {} arguments, found {}", held.name, num_parameters, arguments.positional.size()));
  }
  bind_parameters(run, held, arguments, scope);
  if (written.uses_caller && find_name(*scope, "caller") == nullptr) {
    const auto given =
        std::find_if(arguments.keywords.begin(), arguments.keywords.end(), [](const auto& one) { return one.first == "caller"; });
    set_name(*scope, "caller", given != arguments.keywords.end() ? given->second : undefined("No caller defined"));
    if (given != arguments.keywords.end()) arguments.keywords.erase(given);
  }
  if (!arguments.keywords.empty() && !written.uses_kwargs) {
    fail(fmt::format("macro '{}' has no parameter '{}'", held.name, arguments.keywords.front().first));
  }
  Entries rest;
  for (auto& [name, value] : arguments.keywords) rest.emplace_back(text(name), std::move(value));
  if (written.uses_kwargs) set_name(*scope, "kwargs", dict(std::move(rest)));
  LoopFlow flow = LoopFlow::kOn;
  return text(captured(run, written.body, scope, flow));
}

void execute_template(TemplateRun& run, const Syntax& syntax) {
  const ScopePointer scope = inner_scope(nullptr);
  for (const std::string& name : syntax.hidden_names) set_name(*scope, name, undefined(fmt::format("'{}' is undefined", name)));
  execute(run, syntax.body, scope);
}

}  // namespace distsetup::jinja
