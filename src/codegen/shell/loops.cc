#include "codegen/shell/loops.h"

#include <algorithm>
#include <string>

#include "codegen/shell/words.h"

namespace distsetup::foreign {

bool is_over_list(const ShellCommand& header) {
  const std::vector<ShellWord>& words = header.words;
  if (words.size() < 4 || words[2].text != "in") return false;
  return std::none_of(words.begin() + 3, words.end(), [](const ShellWord& word) {
    return word.text.find("$@") != std::string::npos || word.text.find("$*") != std::string::npos;
  });
}

bool names_itself(const ShellAssignment& one) {
  for (const std::string& how : {"$" + one.name, "${" + one.name}) {
    for (size_t at = one.value.text.find(how); at != std::string::npos; at = one.value.text.find(how, at + 1)) {
      const size_t end = at + how.size();
      if (end >= one.value.text.size() || !is_name_char(one.value.text[end])) return true;
    }
  }
  return false;
}

}  // namespace distsetup::foreign
