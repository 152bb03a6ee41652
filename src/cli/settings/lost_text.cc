#include "cli/settings/lost_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace distsetup {
namespace {

std::string place_in_file(const Location& at) { return at.line > 0 ? fmt::format("{}:{}", at.file, at.line) : at.file; }

}  // namespace

std::string lost_text(const std::vector<LostKey>& lost) {
  if (lost.empty()) return "";
  std::string out = "could not be carried over:\n";
  size_t width = 0;
  for (const LostKey& one : lost) width = std::max(width, place_in_file(one.at).size());
  width = std::min<size_t>(width, 32);
  constexpr size_t kMany = 8;  // that a reason is said of before it is said once
  for (size_t i = 0, end = 0; i < lost.size(); i = end) {
    const LostKey& first = lost[i];
    while (end < lost.size() && lost[end].reason == first.reason && lost[end].help == first.help) ++end;
    const std::string why = first.reason + (first.help.empty() ? "" : "; " + first.help);
    for (size_t j = i; j < end; ++j) {
      std::string text = shown_text(lost[j]);
      if (text.size() > 48) text = text.substr(0, 45) + "...";
      out += fmt::format("  {:<{}}  {}{}: {}\n", place_in_file(lost[j].at), width, lost[j].key, text.empty() ? "" : " = " + text,
                         j > i && end - i >= kMany ? "likewise" : why);
    }
  }
  return out;
}

}  // namespace distsetup
