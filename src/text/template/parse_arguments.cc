#include "text/template/parse_arguments.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/template/parse_expression.h"

namespace distsetup::jinja {
namespace {

void read_argument(TokenReader& tokens, Expression& call) {
  CallSyntax& to = call.call;
  const Token at = tokens.current();
  const auto read = [&] {
    ExpressionPointer value = parse_expression(tokens);
    call.nesting = std::max(call.nesting, value->nesting + 1);
    return value;
  };
  const bool is_last = to.double_star != nullptr;
  if (tokens.skip_sign("*")) {
    if (is_last || to.star) fail_at(at.line, at.column, "a second '*' in a call");
    to.star = read();
  } else if (tokens.skip_sign("**")) {
    if (is_last) fail_at(at.line, at.column, "a second '**' in a call");
    to.double_star = read();
  } else if (at.kind == TokenType::kName && tokens.next().kind == TokenType::kSign && tokens.next().text == "=") {
    if (is_last) fail_at(at.line, at.column, "an argument behind '**'");
    tokens.take();
    tokens.take();
    if (std::any_of(to.keywords.begin(), to.keywords.end(), [&](const auto& one) { return one.first == at.text; })) {
      fail_at(at.line, at.column, fmt::format("'{}' is given twice", at.text));
    }
    to.keywords.emplace_back(at.text, read());
  } else {
    if (is_last || to.star || !to.keywords.empty())
      fail_at(at.line, at.column, "an argument without a name stands behind one with a name");
    to.positional.push_back(read());
  }
}

}  // namespace

void read_arguments(TokenReader& tokens, Expression& call) {
  tokens.expect_sign("(");
  for (bool is_first = true; !tokens.is_sign(")"); is_first = false) {
    if (!is_first) tokens.expect_sign(",");
    if (tokens.is_sign(")") && !is_first) break;
    read_argument(tokens, call);
  }
  tokens.expect_sign(")");
}

}  // namespace distsetup::jinja
