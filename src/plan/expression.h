// Sizes as symbols: "T*h", "(a+2*kv)*d", "ceil_div(V,64)". Integers, + - * /, ceil_div, min, max, parentheses.
// Symbols of programs: T tokens of a micro-batch on a rank, S sequence length, h hidden, f feed-forward, a heads, kv kv heads,
// d head size, V vocabulary.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "plan/expression_reader.h"

namespace distsetup {

using Symbols = std::map<std::string, int64_t, std::less<>>;

// CHECKs on an unknown symbol, bad syntax or a division with a rest: what comes out of a file is asked for with expression_problem().
int64_t evaluate(std::string_view expression, const Symbols& symbols);
// "": it is an expression over these symbols; their values do not matter.
std::string expression_problem(std::string_view expression, const Symbols& symbols);

}  // namespace distsetup
