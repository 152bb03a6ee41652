#include "base/text.h"

#include <algorithm>

namespace distsetup {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<std::string> split_words(std::string_view text, char separator) {
  std::vector<std::string> words = split(text, separator);
  for (std::string& word : words) {
    word.erase(0, std::min(word.find_first_not_of(' '), word.size()));
    word.erase(word.find_last_not_of(' ') + 1);
  }
  std::erase(words, "");
  return words;
}

}  // namespace distsetup
