#include "codegen/shell/expand.h"

#include "codegen/shell/words.h"

namespace distsetup::foreign {
std::vector<std::pair<std::string, size_t>> expansions(std::string_view text, TextSpan range) {
  std::vector<std::pair<std::string, size_t>> out;
  for (size_t i = range.begin; i + 1 < range.end; ++i) {
    if (text[i] == '\\') {
      ++i;
      continue;
    }
    if (text[i] != '$') continue;
    size_t begin = i + 1;
    if (text[begin] == '{') ++begin;
    size_t end = begin;
    while (end < range.end && is_name_char(text[end])) ++end;
    if (end > begin && is_name_start(text[begin])) out.emplace_back(std::string(text.substr(begin, end - begin)), i);
  }
  return out;
}

}  // namespace distsetup::foreign
