#include "data/dropped_rows.h"

#include <string_view>

namespace distsetup {
namespace {

// A reason without what changes from row to row: numbers, and what stands in quotes.
std::string without_details(const std::string& reason) {
  std::string out;
  for (size_t i = 0; i < reason.size(); ++i) {
    const char c = reason[i];
    if (c == '\'') {
      const size_t end = reason.find(c, i + 1);
      if (end != std::string::npos) i = end;
      constexpr std::string_view kQuoted = "''", kNext = "'', ";
      if (out.ends_with(kNext))
        out.resize(out.size() - 2);  // several after commas are one
      else
        out += kQuoted;
      continue;
    }
    const bool is_digit = c >= '0' && c <= '9';
    if (is_digit && out.ends_with('0')) continue;
    out += is_digit ? '0' : c;
  }
  constexpr std::string_view kMore = ", …";  // "'', …": a list that is not shown whole
  if (out.ends_with(kMore)) out.resize(out.size() - kMore.size());
  return out;
}

}  // namespace

void DroppedRows::add(const std::string& reason, const Location& at) {
  const std::string& said = said_.try_emplace(without_details(reason), reason).first->second;
  ++by_reason[said];
  first.emplace(said, at);
}

}  // namespace distsetup
