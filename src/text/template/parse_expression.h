// Expressions of a template, with the precedence that jinja2 gives them: if-else, or, and, not, comparisons, + -, ~, * / // %, **,
// signs, then what stands behind a value: attributes, subscripts, calls, filters, tests.
#pragma once
#include "text/template/syntax.h"
#include "text/template/token_reader.h"

namespace distsetup::jinja {

enum class Conditional { kRead, kLeave };  // whether `a if b` belongs to the expression
ExpressionPointer parse_expression(TokenReader& tokens, Conditional conditional = Conditional::kRead);
// As parse_expression; with commas, a tuple. `end`: a name that ends it.
ExpressionPointer parse_expressions(TokenReader& tokens, Conditional conditional = Conditional::kRead, std::string_view end = "");
ExpressionPointer parse_primary(TokenReader& tokens);
// "| name(…)" one or more times behind `input` (null in a block); none: null or `input`.
ExpressionPointer parse_filters(TokenReader& tokens, ExpressionPointer input);
ExpressionPointer parse_one_filter(TokenReader& tokens, ExpressionPointer input);  // without the '|'

}  // namespace distsetup::jinja
