// What stands between the parentheses of a call: a, name=b, *c, **d.
#pragma once
#include "text/template/syntax.h"
#include "text/template/token_reader.h"

namespace distsetup::jinja {

// From '(' to ')', into call.call.
void read_arguments(TokenReader& tokens, Expression& call);

}  // namespace distsetup::jinja
