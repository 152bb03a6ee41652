// What stands inside $(( … )), (( … )) and behind -eq.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace distsetup::foreign {

using ValueOfName = std::function<std::optional<std::string>(std::string_view name)>;

// Its value; nothing where a variable is not known, or it is no arithmetic (an assignment, a division by zero).
std::optional<int64_t> arithmetic(std::string_view text, const ValueOfName& value_of);

// Of the command expr, where it is a sum ("expr 32 / $N", "expr $A \\* $B").
std::optional<int64_t> sum_of_expr(std::string_view command, const ValueOfName& value_of);

}  // namespace distsetup::foreign
