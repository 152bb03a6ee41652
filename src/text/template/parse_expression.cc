#include "text/template/parse_expression.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/names.h"
#include "text/template/filters.h"
#include "text/template/parse_arguments.h"
#include "text/template/value_tests.h"

namespace distsetup::jinja {

namespace {

ExpressionPointer make(ExpressionKind kind, int line, int column) {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = line;
  made->column = column;
  return made;
}
ExpressionPointer make(ExpressionKind kind, const Token& at) { return make(kind, at.line, at.column); }

void add_part(Expression& to, ExpressionPointer part) {
  if (part) to.nesting = std::max(to.nesting, part->nesting + 1);
  if (to.nesting > kMaxNesting) fail_at(to.line, to.column, fmt::format("an expression is nested more than {} deep", kMaxNesting));
  to.parts.push_back(std::move(part));
}

ExpressionPointer joined(ExpressionKind kind, ExpressionPointer left, ExpressionPointer right, std::string name = "") {
  ExpressionPointer made = make(kind, left->line, left->column);
  made->name = std::move(name);
  add_part(*made, std::move(left));
  add_part(*made, std::move(right));
  return made;
}

// What is inside of an expression that is being read counts the levels: parentheses can be nested without end.
thread_local int open_levels = 0;
struct Level {
  explicit Level(const TokenReader& tokens) {
    if (++open_levels > kMaxNesting) {
      --open_levels;
      fail_at(tokens.current().line, tokens.current().column, fmt::format("an expression is nested more than {} deep", kMaxNesting));
    }
  }
  ~Level() { --open_levels; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
};

// What may stand between [ and ]: an expression or start:stop:step.
ExpressionPointer parse_subscript(TokenReader& tokens) {
  const Token at = tokens.current();
  const auto is_end = [&] { return tokens.is_sign(":") || tokens.is_sign("]") || tokens.is_sign(","); };
  ExpressionPointer first = is_end() ? nullptr : parse_expression(tokens);
  if (!tokens.skip_sign(":")) {
    if (!first) tokens.unexpected("an expression");
    return first;
  }
  ExpressionPointer slice = make(ExpressionKind::kSlice, at);
  add_part(*slice, std::move(first));
  add_part(*slice, is_end() ? nullptr : parse_expression(tokens));
  add_part(*slice, tokens.skip_sign(":") && !is_end() ? parse_expression(tokens) : nullptr);
  return slice;
}

ExpressionPointer parse_item(TokenReader& tokens, ExpressionPointer of) {
  const Token at = tokens.take();  // '[' or '.'
  if (at.text == "." && tokens.current().kind == TokenType::kName) {
    ExpressionPointer made = make(ExpressionKind::kAttribute, tokens.current());
    made->name = tokens.take().text;
    add_part(*made, std::move(of));
    return made;
  }
  ExpressionPointer made = make(ExpressionKind::kItem, at);
  add_part(*made, std::move(of));
  if (at.text == ".") {
    ExpressionPointer index = make(ExpressionKind::kConstant, tokens.current());
    index->value = integer(tokens.expect(TokenType::kInteger, "a name or a number").integer);
    add_part(*made, std::move(index));
    return made;
  }
  ExpressionPointer index = parse_subscript(tokens);
  if (tokens.is_sign(",")) {
    fail_at(at.line, at.column, "a subscript with a comma: no value of a template has one");
  }
  add_part(*made, std::move(index));
  tokens.expect_sign("]");
  return made;
}

ExpressionPointer parse_call(TokenReader& tokens, ExpressionPointer callee) {
  ExpressionPointer made = make(ExpressionKind::kCall, callee->line, callee->column);
  add_part(*made, std::move(callee));
  read_arguments(tokens, *made);
  if (made->nesting > kMaxNesting) tokens.unexpected(fmt::format("calls nested at most {} deep", kMaxNesting));
  return made;
}

ExpressionPointer parse_postfix(TokenReader& tokens, ExpressionPointer value) {
  while (true) {
    if (tokens.is_sign(".") || tokens.is_sign("[")) {
      value = parse_item(tokens, std::move(value));
    } else if (tokens.is_sign("(")) {
      value = parse_call(tokens, std::move(value));
    } else {
      return value;
    }
  }
}

// "a.b.c": filters and tests have dotted names in jinja2; none that we know has.
Token dotted_name(TokenReader& tokens, std::string_view what) {
  Token name = tokens.expect(TokenType::kName, what);
  while (tokens.skip_sign(".")) name.text += "." + tokens.expect(TokenType::kName, what).text;
  return name;
}

void check_known(const Token& name, std::string_view what, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), name.text) != known.end()) return;
  const std::string near = nearest_name(name.text, known);
  const std::string all = fmt::format("{}", fmt::join(known, ", "));
  fail_at(name.line, name.column, fmt::format("unknown {} '{}'", what, name.text),
          near.empty() ? "known: " + all : fmt::format("did you mean '{}'; known: {}", near, all));
}

ExpressionPointer parse_test(TokenReader& tokens, ExpressionPointer value) {
  const Token at = tokens.take();  // is
  const bool is_negated = tokens.skip_name("not");
  ExpressionPointer made = make(ExpressionKind::kTest, at);
  add_part(*made, std::move(value));
  const Token name = dotted_name(tokens, "the name of a test");
  check_known(name, "test", test_names());
  made->name = name.text;
  const Token& next = tokens.current();
  const bool is_value = next.kind == TokenType::kName || next.kind == TokenType::kText || next.kind == TokenType::kInteger ||
                        next.kind == TokenType::kFloat || tokens.is_sign("[") || tokens.is_sign("{");
  if (tokens.is_sign("(")) {
    read_arguments(tokens, *made);
  } else if (is_value && !tokens.is_name("else") && !tokens.is_name("or") && !tokens.is_name("and")) {
    if (tokens.is_name("is")) fail_at(next.line, next.column, "a test behind a test: join them with 'and'");
    made->call.positional.push_back(parse_postfix(tokens, parse_primary(tokens)));
    made->nesting = std::max(made->nesting, made->call.positional[0]->nesting + 1);
  }
  if (!is_negated) return made;
  ExpressionPointer negated = make(ExpressionKind::kNot, at);
  add_part(*negated, std::move(made));
  return negated;
}

ExpressionPointer parse_behind_value(TokenReader& tokens, ExpressionPointer value) {
  while (true) {
    if (tokens.is_sign("|")) {
      value = parse_filters(tokens, std::move(value));
    } else if (tokens.is_name("is")) {
      value = parse_test(tokens, std::move(value));
    } else if (tokens.is_sign("(")) {
      value = parse_call(tokens, std::move(value));
    } else {
      return value;
    }
  }
}

enum class Behind { kFilters, kNothing };
ExpressionPointer parse_unary(TokenReader& tokens, Behind behind = Behind::kFilters) {
  const Level level(tokens);
  const Token at = tokens.current();
  ExpressionPointer value;
  if (tokens.is_sign("-") || tokens.is_sign("+")) {
    value = make(tokens.take().text == "-" ? ExpressionKind::kNegative : ExpressionKind::kPositive, at);
    add_part(*value, parse_unary(tokens, Behind::kNothing));
  } else {
    value = parse_primary(tokens);
  }
  value = parse_postfix(tokens, std::move(value));
  return behind == Behind::kFilters ? parse_behind_value(tokens, std::move(value)) : std::move(value);
}

ExpressionPointer parse_power(TokenReader& tokens) {
  ExpressionPointer left = parse_unary(tokens);
  while (tokens.skip_sign("**")) left = joined(ExpressionKind::kArithmetic, std::move(left), parse_unary(tokens), "**");
  return left;
}

ExpressionPointer parse_product(TokenReader& tokens) {
  ExpressionPointer left = parse_power(tokens);
  while (tokens.is_sign("*") || tokens.is_sign("/") || tokens.is_sign("//") || tokens.is_sign("%")) {
    const std::string sign = tokens.take().text;
    left = joined(ExpressionKind::kArithmetic, std::move(left), parse_power(tokens), sign);
  }
  return left;
}

ExpressionPointer parse_concat(TokenReader& tokens) {
  ExpressionPointer first = parse_product(tokens);
  if (!tokens.is_sign("~")) return first;
  ExpressionPointer made = make(ExpressionKind::kConcat, first->line, first->column);
  add_part(*made, std::move(first));
  while (tokens.skip_sign("~")) add_part(*made, parse_product(tokens));
  return made;
}

ExpressionPointer parse_sum(TokenReader& tokens) {
  ExpressionPointer left = parse_concat(tokens);
  while (tokens.is_sign("+") || tokens.is_sign("-")) {
    const std::string sign = tokens.take().text;
    left = joined(ExpressionKind::kArithmetic, std::move(left), parse_concat(tokens), sign);
  }
  return left;
}

std::string take_comparison(TokenReader& tokens) {
  static constexpr std::array<std::string_view, 6> kSigns = {"==", "!=", "<", "<=", ">", ">="};
  if (tokens.current().kind == TokenType::kSign && std::find(kSigns.begin(), kSigns.end(), tokens.current().text) != kSigns.end()) {
    return tokens.take().text;
  }
  if (tokens.skip_name("in")) return "in";
  if (tokens.is_name("not") && tokens.next().kind == TokenType::kName && tokens.next().text == "in") {
    tokens.take();
    tokens.take();
    return "not in";
  }
  return "";
}

ExpressionPointer parse_comparison(TokenReader& tokens) {
  ExpressionPointer first = parse_sum(tokens);
  std::string sign = take_comparison(tokens);
  if (sign.empty()) return first;
  ExpressionPointer made = make(ExpressionKind::kCompare, first->line, first->column);
  add_part(*made, std::move(first));
  for (; !sign.empty(); sign = take_comparison(tokens)) {
    made->operators.push_back(sign);
    add_part(*made, parse_sum(tokens));
  }
  return made;
}

ExpressionPointer parse_not(TokenReader& tokens) {
  if (!tokens.is_name("not")) return parse_comparison(tokens);
  const Level level(tokens);
  ExpressionPointer made = make(ExpressionKind::kNot, tokens.take());
  add_part(*made, parse_not(tokens));
  return made;
}

ExpressionPointer parse_and(TokenReader& tokens) {
  ExpressionPointer left = parse_not(tokens);
  while (tokens.skip_name("and")) left = joined(ExpressionKind::kAnd, std::move(left), parse_not(tokens));
  return left;
}

ExpressionPointer parse_or(TokenReader& tokens) {
  ExpressionPointer left = parse_and(tokens);
  while (tokens.skip_name("or")) left = joined(ExpressionKind::kOr, std::move(left), parse_and(tokens));
  return left;
}

ExpressionPointer parse_row(TokenReader& tokens, ExpressionKind kind, std::string_view end) {
  ExpressionPointer made = make(kind, tokens.take());
  for (bool is_first = true; !tokens.is_sign(end); is_first = false) {
    if (!is_first) tokens.expect_sign(",");
    if (tokens.is_sign(end)) break;
    add_part(*made, parse_expression(tokens));
    if (kind != ExpressionKind::kDict) continue;
    tokens.expect_sign(":");
    add_part(*made, parse_expression(tokens));
  }
  tokens.expect_sign(end);
  return made;
}

ExpressionPointer parse_parentheses(TokenReader& tokens) {
  const Token at = tokens.take();
  if (tokens.skip_sign(")")) return make(ExpressionKind::kTuple, at);
  ExpressionPointer inside = parse_expressions(tokens);
  tokens.expect_sign(")");
  return inside;
}

ExpressionPointer parse_name(TokenReader& tokens) {
  const Token at = tokens.take();
  ExpressionPointer made = make(ExpressionKind::kConstant, at);
  if (at.text == "true" || at.text == "True") {
    made->value = boolean(true);
  } else if (at.text == "false" || at.text == "False") {
    made->value = boolean(false);
  } else if (at.text == "none" || at.text == "None") {
    made->value = none();
  } else {
    made->kind = ExpressionKind::kName;
    made->name = at.text;
  }
  return made;
}

}  // namespace

ExpressionPointer parse_primary(TokenReader& tokens) {
  const Token& at = tokens.current();
  if (at.kind == TokenType::kName) return parse_name(tokens);
  if (tokens.is_sign("(")) return parse_parentheses(tokens);
  if (tokens.is_sign("[")) return parse_row(tokens, ExpressionKind::kList, "]");
  if (tokens.is_sign("{")) return parse_row(tokens, ExpressionKind::kDict, "}");
  ExpressionPointer made = make(ExpressionKind::kConstant, at);
  if (at.kind == TokenType::kText) {
    std::string joined_text;  // texts side by side are one
    while (tokens.current().kind == TokenType::kText) joined_text += tokens.take().text;
    made->value = text(std::move(joined_text));
  } else if (at.kind == TokenType::kInteger) {
    made->value = integer(tokens.take().integer);
  } else if (at.kind == TokenType::kFloat) {
    made->value = real(tokens.take().real);
  } else {
    tokens.unexpected("an expression");
  }
  return made;
}

ExpressionPointer parse_one_filter(TokenReader& tokens, ExpressionPointer input) {
  const Token name = dotted_name(tokens, "the name of a filter");
  check_known(name, "filter", filter_names());
  ExpressionPointer made = make(ExpressionKind::kFilter, name);
  made->name = name.text;
  add_part(*made, std::move(input));
  if (tokens.is_sign("(")) read_arguments(tokens, *made);
  return made;
}

ExpressionPointer parse_filters(TokenReader& tokens, ExpressionPointer input) {
  while (tokens.skip_sign("|")) input = parse_one_filter(tokens, std::move(input));
  return input;
}

ExpressionPointer parse_expression(TokenReader& tokens, Conditional conditional) {
  const Level level(tokens);
  ExpressionPointer value = parse_or(tokens);
  while (conditional == Conditional::kRead && tokens.is_name("if")) {
    ExpressionPointer made = make(ExpressionKind::kConditional, tokens.take());
    add_part(*made, parse_or(tokens));
    add_part(*made, std::move(value));
    add_part(*made, tokens.skip_name("else") ? parse_expression(tokens) : nullptr);
    value = std::move(made);
  }
  return value;
}

ExpressionPointer parse_expressions(TokenReader& tokens, Conditional conditional, std::string_view end) {
  const auto is_end = [&] {
    const TokenType kind = tokens.current().kind;
    return kind == TokenType::kVariableEnd || kind == TokenType::kBlockEnd || tokens.is_sign(")") ||
           (!end.empty() && tokens.is_name(end));
  };
  if (is_end()) tokens.unexpected("an expression");
  ExpressionPointer first = parse_expression(tokens, conditional);
  if (!tokens.is_sign(",")) return first;
  ExpressionPointer made = make(ExpressionKind::kTuple, first->line, first->column);
  add_part(*made, std::move(first));
  while (tokens.skip_sign(",") && !is_end()) add_part(*made, parse_expression(tokens, conditional));
  return made;
}

}  // namespace distsetup::jinja
