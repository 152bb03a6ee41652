// One page per diagnostic code: why it is an error, what is wrong, what is right. A unit test compares the list with
// base/diagnostic_codes.h.
#pragma once
#include <span>
#include <string_view>

namespace distsetup {

struct Explanation {
  std::string_view code;
  std::string_view title;
  std::string_view why;
  std::string_view wrong, right;  // empty: not about a spelling
};
std::span<const Explanation> explanations();

}  // namespace distsetup
