// What the readers of kernels and of programs share: words, lists of texts, sizes.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/value.h"
#include "planner/replay/size_expression.h"

namespace distsetup::replay {

std::vector<std::string_view> words_of(std::string_view text);

// A text or a list of texts; nullptr: none.
std::vector<std::string> texts_of(const Value* value, Diagnostics& said);

// `find`: the index of a name's value, -1 when there is none. A mistake goes to `said`, at `at`.
SizeExpression size_of(std::string_view text, const std::function<int(std::string_view)>& find, const Location& at, Diagnostics& said);

}  // namespace distsetup::replay
