#include "codegen/shell/counted_list.h"

#include <algorithm>
#include <string>
#include <vector>

namespace distsetup::foreign {
namespace {

// awk -F',' '{print NF}'
std::optional<char> counts_fields(const std::vector<ShellWord>& words) {
  if (words.size() < 3 || words[0].text != "awk") return std::nullopt;
  std::string between, program;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i].text;
    if (word == "-F" && i + 1 < words.size()) {
      between = words[++i].text;
    } else if (word.starts_with("-F")) {
      between = word.substr(2);
    } else {
      program += word;
    }
  }
  std::erase_if(program, [](char c) { return c == ' ' || c == ';'; });
  return between.size() == 1 && program == "{printNF}" ? std::optional<char>(between[0]) : std::nullopt;
}

// tr ',' '\n', sed 's/,/\n/g'
std::optional<char> makes_lines(const std::vector<ShellWord>& words) {
  if (words.size() == 3 && words[0].text == "tr" && words[1].text.size() == 1 && words[2].text == "\\n") return words[1].text[0];
  const bool is_sed = words.size() == 2 && words[0].text == "sed" && words[1].text.size() == 8;
  return is_sed && words[1].text.starts_with("s/") && words[1].text.substr(3) == "/\\n/g" ? std::optional<char>(words[1].text[2])
                                                                                          : std::nullopt;
}

bool counts_lines(const std::vector<ShellWord>& words) { return words.size() == 2 && words[0].text == "wc" && words[1].text == "-l"; }

}  // namespace

std::optional<CountedList> counted_list(const ShellScript& inside) {
  const std::vector<ShellCommand>& all = inside.commands;
  if (all.empty() || all.size() > 3) return std::nullopt;
  for (const ShellCommand& one : all) {
    const bool is_last = &one == &all.back();
    if (!one.here.empty() || one.words.empty() || one.depth > 0 || (!is_last && one.ends_with != "|")) return std::nullopt;
  }
  const ShellRedirection* text = nullptr;  // tr ',' '\n' <<< "$LIST"
  if (all[0].redirections.size() == 1 && all[0].redirections[0].how == "<<<") text = &all[0].redirections[0];
  const bool is_echo = text == nullptr && all[0].words.size() == 2 && all[0].words[0].text == "echo";
  if (text == nullptr && !is_echo) return std::nullopt;
  CountedList out;
  out.list = text != nullptr ? text->target : all[0].words[1];
  const size_t first = is_echo ? 1 : 0;
  std::optional<char> between;
  if (all.size() == first + 1) between = counts_fields(all[first].words);
  if (all.size() == first + 2 && counts_lines(all[first + 1].words)) between = makes_lines(all[first].words);
  if (!between) return std::nullopt;
  out.between = *between;
  return out;
}

}  // namespace distsetup::foreign
