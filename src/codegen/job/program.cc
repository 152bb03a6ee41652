#include "codegen/job/program.h"

#include <algorithm>
#include <string_view>

namespace distsetup {
namespace {

bool ends_with_py(std::string_view word) { return word.size() > 3 && word.ends_with(".py"); }

bool starts_python_code(const std::vector<std::string>& words, size_t at) {
  return at < words.size() && (ends_with_py(words[at]) || (words[at] == "-m" && at + 1 < words.size()));
}

// python, python3, /usr/bin/python3.12
bool is_interpreter(std::string_view word) {
  const std::string_view name = word.substr(word.rfind('/') + 1);  // npos + 1 = 0
  constexpr std::string_view kPython = "python";
  if (!name.starts_with(kPython)) return false;
  return name.find_first_not_of("0123456789.", kPython.size()) == std::string_view::npos;
}

}  // namespace

std::vector<std::string> as_command(const std::vector<std::string>& words) {
  std::vector<std::string> out = words;
  if (starts_python_code(words, 0)) out.insert(out.begin(), "python3");
  return out;
}

std::vector<std::string> without_interpreter(const std::vector<std::string>& words) {
  if (words.empty() || !is_interpreter(words[0])) return words;
  const auto code = std::find_if(words.begin() + 1, words.end(), [](const std::string& word) { return word != "-u"; });
  const size_t at = static_cast<size_t>(code - words.begin());
  return starts_python_code(words, at) ? std::vector<std::string>(code, words.end()) : words;
}

std::vector<std::string> as_python_script(const std::vector<std::string>& words) {
  std::vector<std::string> out = without_interpreter(words);
  const bool is_option = !out.empty() && out[0].starts_with("-");  // -m, or one of the launcher's that was given
  if (!out.empty() && !is_option && !starts_python_code(out, 0)) out.insert(out.begin(), "--no_python");
  return out;
}

}  // namespace distsetup
